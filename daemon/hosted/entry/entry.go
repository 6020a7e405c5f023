// Package entry has the configured servers, as the parts that host them need them.
package entry

import (
	"context"
	"fmt"
	"time"

	"holdline/daemon/config/resolve"
	"holdline/daemon/filewatch"
	"holdline/daemon/masked"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// A Scope says which sessions share a process of a server.
type Scope string

// The scopes.
const (
	Project Scope = "project" // all sessions of one project
	Shared  Scope = "shared"  // all sessions
	Session Scope = "session" // no other session
)

// Of names those that share a process with a session of a project: the key of the
// project, the hash of the session, or "" for all.
func (s Scope) Of(project, session string) string {
	switch s {
	case Project:
		return project
	case Session:
		return session
	case Shared:
	}
	return ""
}

// Owner returns for whom a process of the scope runs: for of, which is [Scope.Of], and for sessions
// of the project with that key, in root.
func (s Scope) Owner(of, project, root string) process.Owner {
	o := process.Owner{Scope: string(s)}
	switch s {
	case Project:
		o.Project, o.Root = of, root
	case Session:
		o.Session, o.Project, o.Root = of, project, root
	case Shared:
	}
	return o
}

// Overreach returns a note for the user about a server that has asked for what its scope
// does not offer; it names the scope that does. It returns nil if method is "".
func (s Scope) Overreach(method string) []string {
	if method == "" {
		return nil
	}
	other := Session
	if method == mcp.RootsList && s == Shared {
		other = Project
	}
	return []string{fmt.Sprintf("asks its client for %s, which scope %s does not offer: "+
		"\"scope\": %q in its holdline object would", method, s, other)}
}

// A Login is the login of a remote server, as its files have it. Its methods read files.
type Login interface {
	// Stamp returns what is another one whenever the files are: those of the server, and of the
	// login with that id. It reads none of them, so it is quick.
	Stamp(login string) LoginStamp
	// State reads the files. It may run the user's command for their key.
	State() LoginState
}

// LoginStamp identifies the files of a login.
type LoginStamp struct{ Server, Tokens filewatch.Stamp }

// LoginState is what the files of a login say.
type LoginState struct {
	Login   string        // id, "" if there is none
	Who     string        // which login, and as whom: "" if there is none
	Missing *fault.Record // why no call can be made; nil if calls can be tried
	Until   time.Time     // from when on Missing may be over although no file has changed; zero for never
}

// Server is a configured server. It is read-only, and has no defaults: every
// limit is set.
type Server struct {
	Name  string
	Scope Scope
	// Key is equal for entries whose processes can replace each other: it covers the
	// configured command, environment and directory.
	Key string
	// Process returns how to start a process for that owner. Its error names what is missing; it may be, or wrap, a fault. If ctx
	// ends, so do the commands that it runs.
	Process func(ctx context.Context, owner *process.Owner) (resolve.Process, error)
	// RunsCommands says that Process runs the user's commands, which print secrets.
	RunsCommands bool
	// Confine is the level of a confined server, and HeldBy says for people what holds it. Both
	// are "" for others.
	Confine, HeldBy string
	// Limits is what a process may use of the machine, in words; "" without limits.
	Limits string
	// Ready waits, within bounds, until what Process needs is known. The error
	// says why no process can be started. nil does not wait.
	Ready func(ctx context.Context, owner *process.Owner) error
	// Visible reports whether sessions of the project with that root see the server.
	// It may block on the file system. nil shows the server to all.
	Visible func(root string) bool
	// Contract returns the operator's setting for a tool, or "" to use the tool's
	// own annotations. nil has no settings.
	Contract func(tool string) tool.Contract
	// Offers reports whether at least one identity may use something of the server,
	// by its names for it. nil offers all. See [tool.Rules].
	Offers func(names ...string) bool
	// BlockChanged hides, and refuses calls of, a tool that differs from its pin,
	// until the user accepts it.
	BlockChanged bool
	// Remote says that a process of ours stands for a server elsewhere. If its error
	// contains a fault record, that process reports its own failure, not the
	// server's.
	Remote bool
	// Login is the login of the server; nil if it needs no login.
	Login      Login
	Timeout    time.Duration // of a call, anew at each progress
	MaxTimeout time.Duration // of a call, whatever its progress
	// TaskAfter is after how long without an answer a call becomes a task, if its client takes
	// tasks; 0 is never.
	TaskAfter time.Duration
	// StartTimeout is how long a process may take from its start to its lists. It
	// begins anew whenever the process writes to stderr: it may be downloading what
	// it runs.
	StartTimeout time.Duration

	Lazy             bool          // a process is started by the first call, not by the first session
	KeepAlive        time.Duration // of a process whose last session has left
	MaxConcurrent    int           // calls at once in one process
	MaxRestarts      int           // in RestartWindow; one more ejects the server
	RestartWindow    time.Duration
	CircuitThreshold int // consecutive failures that open the breaker
	CircuitReset     time.Duration
}

// Secrets returns the secrets of a process of the server for that owner. They
// are unknown if commands print them, which may print others by now, or if the entry cannot be
// expanded now, for example because a variable is not set.
func (s *Server) Secrets(ctx context.Context, owner *process.Owner) *masked.Secrets {
	if s.Process == nil || s.RunsCommands {
		return masked.Unknown()
	}
	p, err := s.Process(ctx, owner)
	if err != nil || p.Host != "" { // its host expands them
		return masked.Unknown()
	}
	return masked.New(p.Secrets)
}
