package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"holdline/daemon/config/glob"
	"holdline/daemon/redact"
)

// Transports of a server.
const (
	Stdio = "stdio" // a process of ours
	HTTP  = "http"  // streamable HTTP
	SSE   = "sse"   // the HTTP transport of 2024-11-05
	// Elsewhere is Stdio for a server with a host. What its settings name is there, so nothing of
	// it can be looked up here.
	Elsewhere = "elsewhere"
)

// Unusable returns why a server is left out although nobody has switched it off, and what to do: its entry
// has mistakes, or the transport sse. It returns nil for other servers.
func (s Settings) Unusable() error {
	if s.wrong != "" {
		return fmt.Errorf("its entry is wrong, so the server is left out: %s; correct it, or remove it: "+
			"holdline servers remove %s", strings.ReplaceAll(s.wrong, "\n", "; "), s.Name)
	}
	if s.Transport != SSE || !s.Enabled {
		return nil
	}
	return fmt.Errorf("it has the transport sse, which MCP gave up in 2025 and Holdline does not speak. Most such servers "+
		"speak http, too, often at an address that ends in /mcp: write that, without type sse. Else have a bridge "+
		"speak it: holdline servers add %s --replace -- npx -y mcp-remote URL --transport sse-only", s.Name)
}

// Mistakes returns the mistakes in the entry of a server that is left out for them, one a line, with their places;
// "" for other servers.
func (s Settings) Mistakes() string { return s.wrong }

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

// What a server inherits of the daemon's environment.
const (
	InheritAll  = "all"  // everything but what no server gets
	InheritCore = "core" // what programs need to find their way
	InheritNone = "none"
)

// hosting is the type of the holdline object of a server.
var hosting = reflect.TypeFor[Hosting]()

// Settings is what the configuration says of one hosted server, with the defaults for what it does
// not say. Its strings are as they stand in the file; package resolve expands them.
type Settings struct {
	Name      string
	Enabled   bool
	Transport string // Stdio, HTTP, SSE or Elsewhere

	Command string
	Args    []string
	Env     map[string]redact.Secret // the variables that are texts
	Cwd     string                   // "" is the project's root, or the home directory for ScopeShared
	URL     string
	Headers map[string]redact.Secret
	OAuth   OAuth

	EnvCommands map[string]Command // the variables that commands print
	Commands    map[string]Command // those that Env and Headers name as ${cmd:NAME}

	Hosting                   // with defaults
	MaxRestarts int           // as in Hosting
	TaskAfter   time.Duration // the same
	KeepAlive   time.Duration // the same

	wrong string // what is wrong with the entry, of which the rest cannot be relied on then
}

// Unusable returns, by name, why servers are left out; see [Settings.Unusable].
func (c Config) Unusable() map[string]error {
	all := map[string]error{}
	for name := range c.Servers {
		s, _ := c.Server(name)
		if err := s.Unusable(); err != nil {
			all[name] = err
		}
	}
	return all
}

// Server returns what the configuration says of a server; false if it names none.
func (c Config) Server(name string) (Settings, bool) {
	s, ok := c.Servers[name]
	h, transport := s.Holdline.effective(s), s.transport()
	if h.Host != "" {
		transport = Elsewhere
	}
	out := Settings{
		Name: name, Transport: transport,
		Enabled: !s.Disabled && !h.Disabled && (s.Enabled == nil || *s.Enabled),
		Command: s.Command, Args: s.Args, Cwd: s.Cwd, URL: s.URL, Headers: s.Headers,
		OAuth:   s.OAuth.effective(),
		Hosting: h, MaxRestarts: *h.MaxRestarts, TaskAfter: *h.TaskAfter, KeepAlive: *h.KeepAlive,
		wrong: s.wrong,
	}
	if out.Transport == Stdio {
		out.Bounds = h.Bounds.or(c.Bounds)
	}
	useCommands(&out, s.Env, c.Commands)
	return out, ok
}

// transport follows from the type, or else from what else there is.
func (s Server) transport() string {
	switch s.Type {
	case "http", "streamable-http", "streamableHttp", "streamable_http", "remote":
		return HTTP
	case "local":
		return Stdio
	case "":
		if s.URL != "" && s.Command == "" {
			return HTTP
		}
		return Stdio
	}
	return s.Type
}

// HasCommand reports whether the server is a process, here or on another machine.
func (s Settings) HasCommand() bool { return s.Transport == Stdio || s.Transport == Elsewhere }

// Equal reports whether two settings say the same.
func (s Settings) Equal(other Settings) bool { return reflect.DeepEqual(s, other) }

// Contract returns the replay contract that the configuration gives a tool, and false
// if it gives none. Of the globs that match the tool, the one with the most characters
// that are no wildcard counts, and of equal ones the first in the alphabet.
func (s Settings) Contract(tool string) (contract string, ok bool) {
	best := -1
	for _, pattern := range sorted(s.Contracts) {
		n := len(pattern) - strings.Count(pattern, "*") - strings.Count(pattern, "?")
		if n > best && glob.Match(pattern, tool) {
			best, contract = n, s.Contracts[pattern]
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
