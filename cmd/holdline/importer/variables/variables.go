// Package variables translates the variables in strings of clients' configurations into those of
// holdline's.
package variables

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"holdline/daemon/clienttable"
	"holdline/daemon/config/expand"
)

var (
	dollarName = regexp.MustCompile(`\$([A-Za-z_][A-Za-z0-9_]*)`)
	braced     = regexp.MustCompile(`\$\{([^{}]*)\}`)
	bracketed  = regexp.MustCompile(`\{(env|file):([^{}]*)\}`)
	variable   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// dollarBefore finds a dollar in front of a variable, by the syntax of the variable. Clients put it
// before the value; for holdline it makes the variable a plain text.
var dollarBefore = map[clienttable.Syntax]*regexp.Regexp{
	clienttable.Shell:    regexp.MustCompile(`\$\$\{`),
	clienttable.Dollar:   regexp.MustCompile(`\$\$[{A-Za-z_]`),
	clienttable.Editor:   regexp.MustCompile(`\$\$\{`),
	clienttable.Brackets: regexp.MustCompile(`\$\{(env|file):`),
}

// A Translator translates the strings of one entry.
type Translator struct {
	Syntax  clienttable.Syntax
	Project string // root; "" if the entry is for all projects
	// Stays is called with the reason why a string cannot be translated: it names the key, and
	// shows no value.
	Stays func(format string, args ...any)
}

// Translate returns a string with its variables as holdline writes them, so that holdline's file
// says the same. key is that of the string.
func (t *Translator) Translate(key, s string) string {
	if found := dollarBefore[t.Syntax]; found != nil && found.MatchString(s) {
		t.Stays("its %s has a $ in front of a variable, which Holdline cannot write", key)
		return s
	}
	switch t.Syntax {
	case clienttable.Literal:
		return escape(s)
	case clienttable.Shell, clienttable.Dollar:
		return t.expandShell(key, s)
	case clienttable.Editor:
		return braced.ReplaceAllStringFunc(s, func(m string) string { return t.expandEditor(key, m[2:len(m)-1]) })
	case clienttable.Brackets:
		return bracketed.ReplaceAllStringFunc(escape(s), func(m string) string {
			parts := bracketed.FindStringSubmatch(m)
			if parts[1] == "env" && variable.MatchString(parts[2]) {
				return "${" + parts[2] + "}"
			}
			t.Stays("its %s has {%s:…}, which only its client knows", key, parts[1])
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
func (t *Translator) expandShell(key, s string) string {
	if strings.Contains(s, "CLAUDE_PROJECT_DIR") {
		if t.Project == "" {
			t.Stays("its %s has ${CLAUDE_PROJECT_DIR}, which only its client knows", key)
			return s
		}
		s = regexp.MustCompile(`\$\{CLAUDE_PROJECT_DIR(:-[^}]*)?\}`).ReplaceAllLiteralString(s, escape(t.Project))
	}
	if strings.Contains(s, "${CLAUDE_PLUGIN_ROOT") {
		t.Stays("its %s has ${CLAUDE_PLUGIN_ROOT}, which only its client knows", key)
	}
	if t.Syntax == clienttable.Dollar {
		s = dollarName.ReplaceAllString(s, "$${$1}")
	}
	if _, err := expand.Text(s, func(string) (string, bool) { return "", true }); err != nil {
		t.Stays("its %s has a ${…} that Holdline does not know", key)
	}
	return s
}

// expandEditor returns one variable of an editor as holdline writes it; name is what
// is between its braces. Variables that ask the user, or depend on the open file, make
// the server stay.
func (t *Translator) expandEditor(key, name string) string {
	kind, rest, _ := strings.Cut(name, ":")
	switch {
	case kind == "env" && variable.MatchString(rest):
		return "${" + rest + "}"
	case name == "userHome":
		return "${HOME}"
	case name == "/" || name == "pathSeparator":
		return "/"
	case name == "workspaceFolder" && t.Project != "":
		return escape(t.Project)
	case name == "workspaceFolderBasename" && t.Project != "":
		return escape(filepath.Base(t.Project))
	}
	shown := kind
	if !variable.MatchString(kind) {
		shown = "…"
	} else if kind != name {
		shown += ":…"
	}
	t.Stays("its %s has ${%s}, which only its client knows", key, shown)
	return ""
}

// Unset returns the names of the variables, sorted, that strings of holdline's file need and that
// lookup does not find.
func Unset(texts []string, lookup func(name string) (string, bool)) (unset []string) {
	for _, s := range texts {
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
	return slices.Compact(unset)
}
