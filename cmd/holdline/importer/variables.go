package importer

import (
	"maps"
	"slices"
	"strings"

	"holdline/cmd/holdline/importer/variables"
	"holdline/daemon/config/expand"
)

// noteUnsetVariables adds a note that names the variables which the server needs and
// which are not set here. The server moves nevertheless: the daemon may have another
// environment.
func (t *translation) noteUnsetVariables() {
	texts := slices.Concat(
		[]string{t.s.Command, t.s.Cwd, t.s.URL}, t.s.Args,
		slices.Collect(maps.Values(t.s.Env)), slices.Collect(maps.Values(t.s.Headers)),
	)
	environ, where := t.o.Environ, "in this shell"
	if t.o.Daemon != nil {
		environ, where = t.o.Daemon, "for the daemon"
	}
	lookup := expand.Lookup(environ)
	unset := variables.Unset(texts, lookup)
	if len(unset) > 0 && t.o.Try == nil { // a try has the daemon's environment, and shows whether the server starts
		t.addNote("needs %s, which is not set %s: to keep it: holdline env set NAME", strings.Join(unset, ", "), where)
	}
	lacks := slices.DeleteFunc(expand.Names(texts...), func(name string) bool {
		_, set := lookup(name)
		return set || slices.Contains(unset, name)
	})
	if slices.Sort(lacks); len(lacks) > 0 {
		t.addNote("%s%s, which is not set %s: the default in its entry counts; to keep a value: holdline env set NAME=VALUE",
			LacksNote, strings.Join(lacks, ", "), where)
	}
}

// LacksNote begins the note of a server that has a default in the place of a variable.
const LacksNote = "lacks "

// expand returns a string of the entry with its variables as holdline writes them. The server
// stays if one of them cannot be translated.
func (t *translation) expand(key, s string) string {
	translator := variables.Translator{Syntax: t.c.Syntax, Project: t.project, Stays: t.stays}
	return translator.Translate(key, s)
}
