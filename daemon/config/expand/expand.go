// Package expand replaces the variables in values of the configuration.
package expand

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errSyntax is returned by [Text] for a ${ that it does not know. It does
// not show the text, which may be a secret.
var errSyntax = errors.New("wants ${NAME}, ${NAME:-default} or ${cmd:NAME}; a plain ${ is written $${")

// UnsetError is returned by [Text] for a variable that is not set and has no
// default.
type UnsetError struct {
	Name string
}

// Error names the variable.
func (e *UnsetError) Error() string {
	return fmt.Sprintf("variable %s is not set and ${%s} has no default", e.Name, e.Name)
}

// Text replaces each ${NAME} in s by its value and each ${NAME:-default} by
// its value or, if that is empty or not set, by the default, which is expanded
// too. ${cmd:NAME} is the value that lookup has for cmd:NAME, and has no default. $${
// stands for a plain ${, and a dollar without a brace for itself. Values are taken as
// they are. The error names the first variable that is missing, as an [*UnsetError], or
// says that s makes no sense.
func Text(s string, lookup func(name string) (string, bool)) (string, error) {
	return text(s, lookup, 0)
}

// Quote returns a text that [Text] turns into s.
func Quote(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// maxNesting is how deep defaults may stand in defaults.
const maxNesting = 8

// text does what [Text] does, for a default that is inside of depth other
// defaults.
func text(s string, lookup func(string) (string, bool), depth int) (string, error) {
	if depth > maxNesting {
		return "", errSyntax
	}
	var out strings.Builder
	for {
		at := strings.Index(s, "${")
		if at < 0 {
			out.WriteString(s)
			return out.String(), nil
		}
		if at > 0 && s[at-1] == '$' {
			out.WriteString(s[:at-1] + "${")
			s = s[at+2:]
			continue
		}
		out.WriteString(s[:at])
		end := closing(s[at+2:])
		if end < 0 {
			return "", errSyntax
		}
		inner := s[at+2 : at+2+end]
		s = s[at+2+end+1:]
		value, err := variable(inner, lookup, depth)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
	}
}

// Names returns the names of the variables that texts refer to, each once, those in defaults included.
func Names(texts ...string) (names []string) {
	for _, s := range texts {
		for {
			at := strings.Index(s, "${")
			if at < 0 {
				break
			}
			quoted := at > 0 && s[at-1] == '$'
			s = s[at+2:]
			name := s[:strings.IndexFunc(s+"}", func(r rune) bool { return r == '}' || r == ':' })]
			if !quoted && validVariable(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// closing returns the index in s of the brace that ends the expression which a ${
// before s began, or -1.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch {
		case s[i] == '}' && depth == 0:
			return i
		case s[i] == '}':
			depth--
		case s[i] == '{' && i > 0 && s[i-1] == '$':
			depth++
		}
	}
	return -1
}

// variable returns the value of one expression; inner is what is between its braces.
func variable(inner string, lookup func(string) (string, bool), depth int) (string, error) {
	name, fallback, hasDefault := strings.Cut(inner, ":-")
	command, isCommand := strings.CutPrefix(name, "cmd:")
	if isCommand && (hasDefault || !validCommand(command)) || !isCommand && !validVariable(name) {
		return "", errSyntax
	}
	value, set := lookup(name)
	if !hasDefault && !set {
		return "", &UnsetError{name}
	}
	if !hasDefault || value != "" {
		return value, nil
	}
	return text(fallback, lookup, depth+1)
}

// validVariable reports whether a shell would take name for a variable.
func validVariable(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// validCommand reports whether name is one that a command of the configuration can have.
func validCommand(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// Lookup returns a function that finds variables in lists of NAME=VALUE: the first
// list that has the name counts, and in a list its last entry. The lists must not
// change meanwhile.
func Lookup(lists ...[]string) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		for _, list := range lists {
			for _, kv := range slices.Backward(list) {
				if n, value, ok := strings.Cut(kv, "="); ok && n == name {
					return value, true
				}
			}
		}
		return "", false
	}
}
