package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdline/daemon/config/expand"
	"holdline/daemon/redact"
)

// A Command prints a value, which is the only line of its output. It is run without a shell.
type Command struct {
	Argv []string `json:"command"`
}

// A Variable is the value of a server's variable: a text, or what a command prints.
type Variable struct {
	Text    redact.Secret
	Command Command // without Argv if the value is a text
}

// shown returns the command without what seems to be a secret in its arguments.
func (c Command) shown() Command { return Command{redact.Args(c.Argv)} }

// shown returns the variable without what seems to be a secret in its command. A text hides itself.
func (v Variable) shown() Variable {
	if v.Command.Argv != nil {
		v.Command = v.Command.shown()
	}
	return v
}

// CommandRef begins the name of a command in ${cmd:NAME}.
const CommandRef = "cmd:"

// A CommandUse is a command of which a server needs the output.
type CommandUse struct {
	Key  string // of the value that has the output in it, such as env.TOKEN
	Argv []string
}

// Shown returns the command as one line, without what seems to be a secret.
func (u CommandUse) Shown() string { return strings.Join(redact.Args(u.Argv), " ") }

// CommandUses returns the commands that a start of the server runs, by the values that need them.
func (s Settings) CommandUses() []CommandUse {
	var all []CommandUse
	for _, name := range sorted(s.EnvCommands) {
		all = append(all, CommandUse{"env." + name, s.EnvCommands[name].Argv})
	}
	for key, in := range map[string]map[string]redact.Secret{"env.": s.Env, "headers.": s.Headers} {
		for _, name := range sorted(in) {
			for _, ref := range commandRefs(in[name].Reveal()) {
				all = append(all, CommandUse{key + name, s.Commands[ref].Argv})
			}
		}
	}
	slices.SortFunc(all, func(a, b CommandUse) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// commandRefs returns the names of the commands that a value has as ${cmd:NAME}.
func commandRefs(s string) (names []string) {
	_, _ = expand.Text(s, func(name string) (string, bool) {
		if ref, ok := strings.CutPrefix(name, CommandRef); ok {
			names = append(names, ref)
		}
		return "", true
	})
	return names
}

// useCommands fills in the commands of the settings, and the texts of the variables.
func useCommands(s *Settings, env map[string]Variable, table map[string]Command) {
	for name, v := range env {
		if v.Command.Argv != nil {
			s.EnvCommands = put(s.EnvCommands, name, v.Command)
		} else {
			s.Env = put(s.Env, name, v.Text)
		}
	}
	for _, in := range []map[string]redact.Secret{s.Env, s.Headers} {
		for _, value := range in {
			for _, ref := range commandRefs(value.Reveal()) {
				s.Commands = put(s.Commands, ref, table[ref])
			}
		}
	}
}

// put sets a value of a map, which it makes if it is nil.
func put[V any](m map[string]V, name string, v V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[name] = v
	return m
}

// commands checks the table of commands.
func (d *decoder) commands(table map[string]Command) {
	for _, name := range sorted(table) {
		at := "commands." + name
		d.name(at, name, serverName, "of A-Z a-z 0-9 _ . -")
		d.command(at, table[name])
	}
}

// command checks a command that prints a value.
func (d *decoder) command(at string, c Command) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		d.wrong(at, `wants {"command": ["program", "argument", ...]}`)
		return
	}
	d.program(at+".command[0]", c.Argv[0])
}

// expandsCommands is [decoder.expands] for a value that may have the output of commands in it.
func (d *decoder) expandsCommands(at, s string, table map[string]Command) {
	if _, err := expand.Text(s, func(string) (string, bool) { return "", true }); err != nil {
		d.wrong(at, "%v", err)
	}
	for _, ref := range commandRefs(s) {
		if _, ok := table[ref]; !ok {
			d.wrong(at, "%v", noCommand(ref, table))
		}
	}
}

// noCommand returns the error about a command that the table does not have.
func noCommand(name string, table map[string]Command) error {
	there := strings.Join(slices.Sorted(maps.Keys(table)), ", ")
	if there == "" {
		return fmt.Errorf("the key commands has no command %s; it has none", clipName(name))
	}
	return fmt.Errorf("the key commands has no command %s; it has %s", clipName(name), there)
}

// errCommandHere is the mistake of ${cmd:NAME} in a value that is shown or stored.
var errCommandHere = errors.New("${cmd:NAME} can only stand in env and headers of a server: other values are shown, " +
	"or stored")
