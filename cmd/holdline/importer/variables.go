package importer

import (
	"errors"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"holdline/cmd/holdline/clients"
	"holdline/daemon/config/expand"
)

var (
	dollarName = regexp.MustCompile(`\$([A-Za-z_][A-Za-z0-9_]*)`)
	braced     = regexp.MustCompile(`\$\{([^{}]*)\}`)
	bracketed  = regexp.MustCompile(`\{(env|file):([^{}]*)\}`)
	variable   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// expand returns a string of the entry with its variables as holdline writes them, so
// that holdline's file says the same. key is named in the reason why the server stays
// if a variable cannot be translated. The value is never shown.
func (t *translation) expand(key, s string) string {
	switch t.c.Syntax {
	case clients.Literal:
		return escape(s)
	case clients.Shell, clients.Dollar:
		return t.expandShell(key, s)
	case clients.Editor:
		return braced.ReplaceAllStringFunc(s, func(m string) string { return t.expandEditor(key, m[2:len(m)-1]) })
	case clients.Brackets:
		return bracketed.ReplaceAllStringFunc(escape(s), func(m string) string {
			parts := bracketed.FindStringSubmatch(m)
			if parts[1] == "env" && variable.MatchString(parts[2]) {
				return "${" + parts[2] + "}"
			}
			t.stays("its %s has {%s:…}, which only its client knows", key, parts[1])
			return m
		})
	}
	return s
}

// escape returns s so that holdline replaces nothing in it.
func escape(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// expandShell translates the variables of shells. ${NAME} and ${NAME:-default} stay,
// since holdline writes them so, too. The project directory, which Claude Code puts
// into a variable, is resolved; the directory of a plugin cannot be.
func (t *translation) expandShell(key, s string) string {
	if strings.Contains(s, "CLAUDE_PROJECT_DIR") {
		if t.project == "" {
			t.stays("its %s has ${CLAUDE_PROJECT_DIR}, which only its client knows", key)
			return s
		}
		s = regexp.MustCompile(`\$\{CLAUDE_PROJECT_DIR(:-[^}]*)?\}`).ReplaceAllLiteralString(s, escape(t.project))
	}
	if strings.Contains(s, "${CLAUDE_PLUGIN_ROOT") {
		t.stays("its %s has ${CLAUDE_PLUGIN_ROOT}, which only its client knows", key)
	}
	if t.c.Syntax == clients.Dollar {
		s = dollarName.ReplaceAllString(s, "$${$1}")
	}
	if _, err := expand.Text(s, func(string) (string, bool) { return "", true }); err != nil {
		t.stays("its %s has a ${…} that Holdline does not know", key)
	}
	return s
}

// expandEditor returns one variable of an editor as holdline writes it; name is what
// is between its braces. Variables that ask the user, or depend on the open file, make
// the server stay.
func (t *translation) expandEditor(key, name string) string {
	kind, rest, _ := strings.Cut(name, ":")
	switch {
	case kind == "env" && variable.MatchString(rest):
		return "${" + rest + "}"
	case name == "userHome":
		return "${HOME}"
	case name == "/" || name == "pathSeparator":
		return "/"
	case name == "workspaceFolder" && t.project != "":
		return escape(t.project)
	case name == "workspaceFolderBasename" && t.project != "":
		return escape(filepath.Base(t.project))
	}
	shown := kind
	if !variable.MatchString(kind) {
		shown = "…"
	} else if kind != name {
		shown += ":…"
	}
	t.stays("its %s has ${%s}, which only its client knows", key, shown)
	return ""
}

// noteUnsetVariables adds a note that names the variables which the server needs and
// which are not set here. The server moves nevertheless: the daemon may have another
// environment.
func (t *translation) noteUnsetVariables() {
	if t.o.Try != nil { // a try has the daemon's environment, and shows whether the server starts
		return
	}
	lookup := expand.Lookup(t.o.Environ)
	var unset []string
	for _, s := range slices.Concat(
		[]string{t.s.Command, t.s.Cwd, t.s.URL}, t.s.Args,
		slices.Collect(maps.Values(t.s.Env)), slices.Collect(maps.Values(t.s.Headers)),
	) {
		for {
			_, err := expand.Text(s, func(name string) (string, bool) {
				value, ok := lookup(name)
				return value, ok || slices.Contains(unset, name)
			})
			one, ok := errors.AsType[*expand.UnsetError](err)
			if !ok {
				break
			}
			unset = append(unset, one.Name)
		}
	}
	slices.Sort(unset)
	if unset = slices.Compact(unset); len(unset) > 0 {
		t.addNote("needs %s, which is not set in this shell: set it in %s or for your login shell",
			strings.Join(unset, ", "), filepath.Join(filepath.Dir(t.o.Config), "env"))
	}
}
