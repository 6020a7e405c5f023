package importer

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"holdline/daemon/config"
	"holdline/daemon/plural"
	"holdline/daemon/redact"
)

// differences says how a server differs from another one of its name, for people. Values are
// not shown: they may be secret.
func differences(s, other *config.Settings) []string {
	var out []string
	add := func(differs bool, format string, args ...any) {
		if differs {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	switch {
	case s.Transport != other.Transport:
		add(true, "by %s", map[bool]string{true: "its address", false: "a command"}[s.Transport == config.HTTP])
	case filepath.Base(s.Command) != filepath.Base(other.Command):
		add(true, "other command")
	default:
		add(s.Command != other.Command, "command at another path")
		differentArguments(s.Args, other.Args, add)
	}
	add(s.URL != other.URL, "other address")
	add(s.Cwd != other.Cwd, "other directory")
	differentNames("variable", s.Env, other.Env, add)
	differentNames("header", s.Headers, other.Headers, add)
	add(s.Scope != other.Scope, "other scope")
	if len(out) == 0 { // such as limits that the user has set in holdline's file
		add(!sameServer(*s, *other), "other settings")
		add(len(out) == 0, "for other projects")
	}
	return out
}

// differentArguments says which arguments differ, by their numbers from 1.
func differentArguments(args, others []string, add func(bool, string, ...any)) {
	switch more := len(args) - len(others); {
	case more > 0:
		add(true, "%d more %s", more, plural.Noun(more, "argument"))
	case more < 0:
		add(true, "%d fewer %s", -more, plural.Noun(-more, "argument"))
	default:
		for i := range args {
			add(args[i] != others[i], "argument %d differs", i+1)
		}
	}
}

// differentNames says which variables or headers differ, by their names.
func differentNames(what string, mine, others map[string]redact.Secret, add func(bool, string, ...any)) {
	all := maps.Clone(mine)
	if all == nil {
		all = map[string]redact.Secret{}
	}
	maps.Copy(all, others)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value, has := mine[name]
		other, had := others[name]
		switch name = printable(name); {
		case !has:
			add(true, "without %s %s", what, name)
		case !had:
			add(true, "with %s %s", what, name)
		default:
			add(value != other, "%s %s differs", what, name)
		}
	}
}
