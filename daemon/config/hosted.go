package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"holdline/daemon/config/expand"
	"holdline/daemon/redact"
)

// Transports of a server.
const (
	Stdio = "stdio" // a process of ours
	HTTP  = "http"  // streamable HTTP
	SSE   = "sse"   // the HTTP transport of 2024-11-05
)

// Scopes: who shares one process of a server.
const (
	ScopeProject = "project" // the sessions of a project
	ScopeShared  = "shared"  // all sessions
	ScopeSession = "session" // none: each session has its own process
)

// What becomes of a tool that is not what it was when it was first seen.
const (
	PinWarn  = "warn"  // people are told
	PinBlock = "block" // it cannot be used until it is accepted, too
)

// hosting is the type of the holdline object of a server.
var hosting = reflect.TypeFor[Hosting]()

// Settings is what the configuration says of one hosted server, with the defaults for
// what it does not say. Its strings are as they stand in the file; [Settings.Process]
// and [Settings.Address] expand them.
type Settings struct {
	Name      string
	Enabled   bool
	Transport string // Stdio, HTTP or SSE

	Command string
	Args    []string
	Env     map[string]Secret // the variables that are texts
	Cwd     string            // "" is the project's root, or the home directory for ScopeShared
	URL     string
	Headers map[string]Secret
	OAuth   OAuth

	EnvCommands map[string]Command // the variables that commands print
	Commands    map[string]Command // those that Env and Headers name as ${cmd:NAME}

	Hosting                   // with defaults
	MaxRestarts int           // as in Hosting
	TaskAfter   time.Duration // the same
}

// Server returns what the configuration says of a server; false if it names none.
func (c Config) Server(name string) (Settings, bool) {
	s, ok := c.Servers[name]
	h := s.Holdline.effective(s)
	out := Settings{
		Name: name, Transport: s.transport(),
		Enabled: !s.Disabled && !h.Disabled && (s.Enabled == nil || *s.Enabled),
		Command: s.Command, Args: s.Args, Cwd: s.Cwd, URL: s.URL, Headers: s.Headers,
		OAuth:   s.OAuth.effective(),
		Hosting: h, MaxRestarts: *h.MaxRestarts, TaskAfter: *h.TaskAfter,
	}
	useCommands(&out, s.Env, c.Commands)
	return out, ok
}

// transport follows from the type, or else from what else there is.
func (s Server) transport() string {
	switch s.Type {
	case "http", "streamable-http", "streamableHttp":
		return HTTP
	case "":
		if s.URL != "" && s.Command == "" {
			return HTTP
		}
		return Stdio
	}
	return s.Type
}

// Equal reports whether two settings say the same.
func (s Settings) Equal(other Settings) bool { return reflect.DeepEqual(s, other) }

// Contract returns the replay contract that the configuration gives a tool, and false
// if it gives none. Of the globs that match the tool, the one with the most characters
// that are no wildcard counts, and of equal ones the first in the alphabet.
func (s Settings) Contract(tool string) (contract string, ok bool) {
	best := -1
	for _, glob := range sorted(s.Contracts) {
		if n := len(glob) - strings.Count(glob, "*") - strings.Count(glob, "?"); n > best && Match(glob, tool) {
			best, contract = n, s.Contracts[glob]
		}
	}
	return contract, best >= 0
}

// VisibleIn reports whether the sessions of a project, whose root is an absolute
// path, see the server. Symbolic links are followed.
func (s Settings) VisibleIn(root string) bool {
	if s.Projects == nil {
		return true
	}
	root = resolved(root)
	return slices.ContainsFunc(s.Projects, func(dir string) bool {
		rel, err := filepath.Rel(resolved(dir), root)
		return err == nil && filepath.IsLocal(rel)
	})
}

// resolved returns path with its links followed, or path itself if it leads nowhere.
func resolved(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	return filepath.Clean(path)
}

// Around is what the start of a server needs besides its settings. A variable is
// looked up in EnvFile first, then in Variables, then in Environ.
type Around struct {
	Environ   []string // the daemon's environment, as the user's login shell would have it
	Variables []string // NAME=VALUE of $XDG_CONFIG_HOME/holdline/env
	EnvFile   []string // NAME=VALUE of the server's own env_file
	Home      string   // absolute
	Root      string   // the project's root, absolute; "" for ScopeShared
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
}

// Process expands the settings of a server of transport Stdio for a start in these
// surroundings. The directory is the project's root if the settings name none, and the
// PATH has no relative directories.
//
// The error names the key, and wraps an [*expand.UnsetError] for the first variable that is
// missing. It shows no value.
func (s Settings) Process(a Around) (Process, error) {
	e := newExpander(a, s.Commands)
	p := Process{Command: e.one("command", s.Command), Dir: e.one("cwd", s.Cwd)}
	for i, arg := range s.Args {
		p.Args = append(p.Args, e.one(fmt.Sprintf("args[%d]", i), arg))
	}
	env := e.all("env", s.Env)
	for _, name := range sorted(s.EnvCommands) {
		env[name] = e.run(s.EnvCommands[name])
		e.check("env."+name, nil)
	}
	maps.DeleteFunc(env, func(name, value string) bool {
		return value == "" && optional.MatchString(string(s.Env[name]))
	})
	if e.err != nil {
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
	p.Secrets = secrets(env, slices.Concat(e.used, redact.Secrets(p.Args)))
	return p, nil
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
}

// Address expands the settings of a server of transport HTTP or SSE. The error names
// the key, and wraps an [*expand.UnsetError] for the first variable that is missing. It shows
// no value.
func (s Settings) Address(a Around) (Address, error) {
	e := newExpander(a, s.Commands)
	out := Address{URL: e.one("url", s.URL), Headers: e.all("headers", s.Headers)}
	e.one("oauth.clientId", s.OAuth.ClientID) // as Client does: a start needs its variables, too
	client := e.one("oauth.clientSecret", s.OAuth.ClientSecret.Reveal())
	if e.err != nil {
		return Address{}, fmt.Errorf("mcpServers.%s.%w", s.Name, e.err)
	}
	if err := checkURL(out.URL); err != nil {
		return Address{}, fmt.Errorf("mcpServers.%s.url: %w", s.Name, err)
	}
	for _, name := range sorted(out.Headers) {
		if strings.ContainsAny(out.Headers[name], "\r\n\x00") {
			return Address{}, fmt.Errorf("mcpServers.%s.headers.%s: must be one line", s.Name, name)
		}
	}
	for _, value := range out.Headers {
		// The token of "Bearer token" is one by itself, too.
		out.Secrets = append(out.Secrets, strings.Fields(value)...)
	}
	words := slices.DeleteFunc(out.Secrets, func(v string) bool { return len(v) < leastSecret })
	words = slices.Concat(words, []string{client}, e.used, redact.Secrets([]string{out.URL}))
	out.Secrets = secrets(out.Headers, words)
	return out, nil
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
func newExpander(a Around, commands map[string]Command) *expander {
	e, lookup := &expander{runCommand: a.Run}, a.lookup()
	e.lookup = func(name string) (string, bool) {
		if ref, ok := strings.CutPrefix(name, commandRef); ok {
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
func (e *expander) all(key string, in map[string]Secret) map[string]string {
	out := make(map[string]string, len(in))
	for _, name := range sorted(in) {
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
func (s Settings) Unset(a Around) []string {
	a.Environ = slices.Clone(a.Environ)
	var names []string
	for {
		var err error
		if s.Transport == Stdio {
			_, err = s.Process(a)
		} else {
			_, err = s.Address(a)
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

// Hidden stands for a secret.
const Hidden = redact.Hidden

// Mask returns what a process says with [Hidden] in place of each of the secrets, which must be
// sorted longest first (see [Process]), and of tokens that it has from elsewhere.
func Mask(s string, secrets []string) string {
	for _, secret := range secrets {
		s = strings.ReplaceAll(s, secret, Hidden)
	}
	return redact.Text(s)
}
