package importer

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"holdline/cmd/holdline/importer/variables"
	"holdline/daemon/config/expand"
)

// noteUnsetVariables adds a note that names the variables which the server needs and
// which are not set here. The server moves nevertheless: the daemon may have another
// environment.
func (t *translation) noteUnsetVariables() {
	if t.o.Try != nil { // a try has the daemon's environment, and shows whether the server starts
		return
	}
	unset := variables.Unset(slices.Concat(
		[]string{t.s.Command, t.s.Cwd, t.s.URL}, t.s.Args,
		slices.Collect(maps.Values(t.s.Env)), slices.Collect(maps.Values(t.s.Headers)),
	), expand.Lookup(t.o.Environ))
	if len(unset) > 0 {
		t.addNote("needs %s, which is not set in this shell: set it in %s or for your login shell",
			strings.Join(unset, ", "), filepath.Join(filepath.Dir(t.o.Config), "env"))
	}
}

// expand returns a string of the entry with its variables as holdline writes them. The server
// stays if one of them cannot be translated.
func (t *translation) expand(key, s string) string {
	translator := variables.Translator{Syntax: t.c.Syntax, Project: t.project, Stays: t.stays}
	return translator.Translate(key, s)
}
