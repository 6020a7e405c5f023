// Package resolve makes of what the configuration says of a server what its start needs. It
// expands ${NAME}, chooses what a process inherits of the daemon's environment, and collects
// the values that must not be shown.
package resolve

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/expand"
	"holdline/daemon/leaf"
	"holdline/daemon/redact"
	"holdline/protocol/process"
)

// Around is what the start of a server needs besides its settings. A variable is
// looked up in EnvFile first, then in Variables, then in Environ.
type Around struct {
	Environ   []string // the daemon's environment, as the user's login shell would have it
	Variables []string // NAME=VALUE of $XDG_CONFIG_HOME/holdline/env
	EnvFile   []string // NAME=VALUE of the server's own env_file
	Home      string   // absolute
	Root      string   // the project's root, absolute; "" for [config.ScopeShared]
	// Run returns what a command prints for a value. If it is nil no command is run, and their
	// values are empty.
	Run func(argv []string) (string, error)
}

// lookup returns a function that finds variables, those of the env_file first.
func (a Around) lookup() func(string) (string, bool) {
	return expand.Lookup(a.EnvFile, a.Variables, a.Environ)
}

// Process is how a server is started: what is to become of its settings. It
// holds secrets.
type Process struct {
	Command string // name or absolute path
	Args    []string
	Dir     string // absolute
	Env     []string
	Secrets []string // what must be shown as *** wherever it turns up
	// EndGrace is the least time that it needs for each step of its end: it closes its stdin, gets
	// SIGTERM, is killed. 0 is the usual time.
	EndGrace time.Duration
	Confine  *process.Confine // nil if it may do what its user may
	Bounds   *process.Bounds  // nil without limits
	Launch   *leaf.Launch     // nil if no launcher starts it
	// Host is where it runs, with the settings of that; then nothing above is expanded yet, and Env
	// is what the settings add. "" is this machine.
	Host                string
	InheritEnv, EnvFile string
	HostWindow          time.Duration
}

// There returns the process of a server of transport Elsewhere. Its host expands it, but for what
// commands print: they are run here, and their output is taken there as it is.
func (a Around) There(s config.Settings) (Process, error) {
	p := Process{
		Command: s.Command, Args: s.Args, Dir: s.Cwd,
		Host: s.Host, InheritEnv: s.InheritEnv, EnvFile: s.EnvFile, HostWindow: s.HostWindow,
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		p.Env = append(p.Env, name+"="+s.Env[name].Reveal())
	}
	e := newExpander(a, nil)
	for _, name := range slices.Sorted(maps.Keys(s.EnvCommands)) {
		p.Env = append(p.Env, name+"="+expand.Quote(e.run(s.EnvCommands[name])))
		e.check("env."+name, nil)
	}
	if e.err != nil {
		return Process{}, fmt.Errorf("mcpServers.%s.%w", s.Name, e.err)
	}
	return p, nil
}

// Process expands the settings of a server of transport Stdio for a start in these
// surroundings. The directory is the project's root if the settings name none, and the
// PATH has no relative directories.
//
// The error names the key, and wraps an [*expand.UnsetError] for the first variable that is
// missing. It shows no value.
func (a Around) Process(s config.Settings) (Process, error) {
	e := newExpander(a, s.Commands)
	env := e.environment(s)
	inEnv := e.err
	e.err = nil // a mistake in what comes first in an entry is named first
	e.lookFirst(env)
	p := Process{Command: e.one("command", s.Command), Dir: e.one("cwd", s.Cwd)}
	for i, arg := range s.Args {
		p.Args = append(p.Args, e.one(fmt.Sprintf("args[%d]", i), arg))
	}
	if e.err = cmp.Or(e.err, inEnv); e.err != nil {
		return Process{}, fmt.Errorf("mcpServers.%s.%w", s.Name, e.err)
	}
	if p.Command == "" || strings.Contains(p.Command, "/") && !filepath.IsAbs(p.Command) {
		return Process{}, fmt.Errorf("mcpServers.%s.command: wants a name or a path from the root, not %q",
			s.Name, p.Command)
	}
	if !filepath.IsAbs(p.Dir) {
		p.Dir = filepath.Join(cmp.Or(a.Root, a.Home), p.Dir)
	}
	p.Env = Environment(s.InheritEnv, a.Environ, env)
	p.Secrets = secrets(mayBeSecret(s, env), slices.Concat(e.used, redact.Secrets(p.Args)))
	return p, nil
}

// environment returns the variables that the settings add, expanded.
func (e *expander) environment(s config.Settings) map[string]string {
	env := e.all("env", s.Env)
	for _, name := range slices.Sorted(maps.Keys(s.EnvCommands)) {
		env[name] = e.run(s.EnvCommands[name])
		e.check("env."+name, nil)
	}
	maps.DeleteFunc(env, func(name, value string) bool {
		return value == "" && optional.MatchString(string(s.Env[name]))
	})
	return env
}

// lookFirst makes the expander look into env before all else. An entry may name a variable of its own
// env, as in --header Authorization:${AUTH_HEADER}: its client would pass the text on, and the program
// would find the variable in its environment.
func (e *expander) lookFirst(env map[string]string) {
	elsewhere := e.lookup
	e.lookup = func(name string) (string, bool) {
		value, ok := env[name]
		switch {
		case !ok:
			return elsewhere(name)
		case redact.NamesSecret(name):
			e.used = append(e.used, value)
		}
		return value, true
	}
}

// mayBeSecret returns the variables of a server without those that are no secret: their names do not say so, and their
// values are paths or addresses, or words that stand in the file itself.
func mayBeSecret(s config.Settings, env map[string]string) map[string]string {
	some := maps.Clone(env)
	maps.DeleteFunc(some, func(name, value string) bool {
		written := s.Env[name].Reveal() == value
		return !redact.NamesSecret(name) && (redact.IsPlace(value) || written && redact.IsWords(value))
	})
	return some
}

// optional matches a value that is one variable, which need not be set: then
// the process has no such variable either.
var optional = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*:-\}$`)

// Address is where a remote server is, with what goes along. It holds
// secrets.
type Address struct {
	URL     string
	Headers map[string]string
	Secrets []string // what must be shown as *** wherever it turns up
	// Sent are those that the server itself is sent, and that are surely secret. They are hidden in its messages,
	// too, where a common word must stay.
	Sent []string
}

// Address expands the settings of a server of transport HTTP or SSE. The error names
// the key, and wraps an [*expand.UnsetError] for the first variable that is missing. It shows
// no value.
func (a Around) Address(s config.Settings) (Address, error) {
	e := newExpander(a, s.Commands)
	e.lookFirst(e.environment(s))
	out := Address{URL: e.one("url", s.URL), Headers: e.all("headers", s.Headers)}
	sent := slices.Concat(e.used, redact.Secrets([]string{out.URL}))
	e.one("oauth.clientId", s.OAuth.ClientID) // as Client does: a start needs its variables, too
	client := e.one("oauth.clientSecret", s.OAuth.ClientSecret.Reveal())
	if e.err != nil {
		return Address{}, fmt.Errorf("mcpServers.%s.%w", s.Name, e.err)
	}
	if err := config.CheckURL(out.URL); err != nil {
		return Address{}, fmt.Errorf("mcpServers.%s.url: %w", s.Name, err)
	}
	for _, name := range slices.Sorted(maps.Keys(out.Headers)) {
		if strings.ContainsAny(out.Headers[name], "\r\n\x00") {
			return Address{}, fmt.Errorf("mcpServers.%s.headers.%s: must be one line", s.Name, name)
		}
	}
	for name, value := range out.Headers {
		// The token of "Bearer token" is one by itself, too.
		words := slices.DeleteFunc(strings.Fields(value), func(v string) bool { return len(v) < leastSecret })
		out.Secrets = append(out.Secrets, words...)
		if redact.NamesSecret(name) {
			out.Sent = append(append(out.Sent, value), words...)
		}
	}
	out.Secrets = secrets(out.Headers, slices.Concat(out.Secrets, sent, []string{client}, e.used))
	out.Sent = secrets(nil, append(out.Sent, sent...))
	return out, nil
}

// Client returns the oauth object with its variables expanded. The error names the key, as
// that of [Around.Address].
func (a Around) Client(s config.Settings) (config.OAuth, error) {
	e, o := newExpander(a, nil), s.OAuth
	o.ClientID = e.one("oauth.clientId", o.ClientID)
	o.ClientSecret = redact.Secret(e.one("oauth.clientSecret", o.ClientSecret.Reveal()))
	if e.err != nil {
		return config.OAuth{}, fmt.Errorf("mcpServers.%s.%w", s.Name, e.err)
	}
	return o, nil
}

// Agent returns the variables that the configuration gives an agent beside those of any
// session, expanded in these surroundings. The error names the variable that is missing, and
// shows no value.
func (a Around) Agent(one config.Agent) ([]string, error) {
	e := newExpander(a, nil)
	env := e.all("env", one.Env)
	return command.List(env), e.err
}

// expander expands strings and keeps the first error.
type expander struct {
	lookup func(string) (string, bool)
	used   []string // what commands print, and values of variables whose names say that they are secret
	err    error

	runCommand func(argv []string) (string, error)
	failed     error // of a command for the value that is being expanded
}

// newExpander returns an expander with the variables of a and these commands, which remembers
// the values that are secret.
func newExpander(a Around, commands map[string]config.Command) *expander {
	e, lookup := &expander{runCommand: a.Run}, a.lookup()
	e.lookup = func(name string) (string, bool) {
		if ref, ok := strings.CutPrefix(name, config.CommandRef); ok {
			return e.run(commands[ref]), true
		}
		value, ok := lookup(name)
		if ok && redact.NamesSecret(name) {
			e.used = append(e.used, value)
		}
		return value, ok
	}
	return e
}

// one expands the string of a key.
func (e *expander) one(key, s string) string {
	out, err := expand.Text(s, e.lookup)
	if err == nil && strings.Contains(out, "\x00") {
		err = errors.New("has a NUL character")
	}
	e.check(key, err)
	return out
}

// check keeps the error of a key's value, or that of a command for it, if it is the first one.
func (e *expander) check(key string, err error) {
	if err = cmp.Or(e.failed, err); err != nil && e.err == nil {
		e.err = fmt.Errorf("%s: %w", key, err)
	}
	e.failed = nil
}

// all expands the values of the map of a key.
func (e *expander) all(key string, in map[string]redact.Secret) map[string]string {
	out := make(map[string]string, len(in))
	for _, name := range slices.Sorted(maps.Keys(in)) {
		out[name] = e.one(key+"."+name, in[name].Reveal())
	}
	return out
}

// Lengths, in bytes, from which on a configured value is hidden: shorter ones would blot out
// half of every text. Values that are surely secret are seldom common words.
const (
	leastSecret     = 8
	leastSureSecret = 6
)

// secrets returns what must not be shown, longest first: a shorter value may be part of a
// longer one. That is sure, which is secret by its name or looks, and the values of variables
// or headers. Each line of a value is one as well, since the output of a process is read line
// by line.
func secrets(named map[string]string, sure []string) []string {
	for name, value := range named {
		if len(value) >= leastSecret || redact.NamesSecret(name) {
			sure = append(sure, value)
		}
	}
	values := sure
	for _, value := range sure {
		if strings.Contains(value, "\n") {
			values = append(values, strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })...)
		}
	}
	values = slices.DeleteFunc(values, func(v string) bool { return len(v) < leastSureSecret })
	slices.SortFunc(values, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	return slices.Compact(values)
}

// Unset returns the names of the variables that are not set in a and without which the
// server does not start.
func (a Around) Unset(s config.Settings) []string {
	a.Environ = slices.Clone(a.Environ)
	var names []string
	for {
		var err error
		switch s.Transport {
		case config.Elsewhere:
		case config.Stdio:
			_, err = a.Process(s)
		default:
			_, err = a.Address(s)
		}
		unset, ok := errors.AsType[*expand.UnsetError](err)
		if !ok {
			return names
		}
		names = append(names, unset.Name)
		// The variable becomes empty: a default that has it would hide the next one.
		a.Environ = append(a.Environ, unset.Name+"=")
	}
}

// References returns the names of the variables that a server's entry refers to, whether it needs them or not.
func References(s *config.Settings) []string {
	texts := append([]string{s.Command, s.Cwd, s.URL, s.OAuth.ClientID, s.OAuth.ClientSecret.Reveal()}, s.Args...)
	for _, values := range []map[string]redact.Secret{s.Env, s.Headers} {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			texts = append(texts, values[name].Reveal())
		}
	}
	return expand.Names(texts...)
}

// run returns what a command prints, or "" if commands are not run or if there was an error
// before. Its output is a secret.
func (e *expander) run(c config.Command) string {
	if e.runCommand == nil || e.err != nil || e.failed != nil {
		return ""
	}
	out, err := e.runCommand(c.Argv)
	e.failed = err
	if out != "" {
		e.used = append(e.used, out)
	}
	return out
}
