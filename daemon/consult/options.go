package consult

import (
	"context"
	"log/slog"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/hosted/private"
)

// A Host makes the calls of engine processes: [private.Processes], or a stand-in.
type Host interface {
	// Call makes the call of an engine process, blocks until nothing is left of the
	// process, and passes what became of it to settle.
	Call(ctx context.Context, c *private.Call, settle func(private.End))
	// Clear ends the worker of a job's directory, if it lives, and removes its output and
	// its socket.
	Clear(ctx context.Context, dir string) error
}

// Engines finds the engines. Which there are may change with the configuration.
type Engines interface {
	// Find returns the engine with that name, or nil.
	Find(name string) engine.Engine
}

// Fixed are engines that stay the same, by name.
type Fixed map[string]engine.Engine

// Find returns the engine with that name, or nil.
func (f Fixed) Find(name string) engine.Engine { return f[name] }

// Options are what [New] needs to make a [Manager].
type Options struct {
	Log       *slog.Logger
	Dir       string // of the jobs' directories, 0700
	Ledger    string // file of what consults have cost whose answers are not kept any more
	Exe       string // of this program, for engine processes
	SocketDir string // each worker's socket is <SocketDir>/<id>/sock
	Home      string // of the user; "" if unknown
	Engines   Engines
	Variable  func(name string) string // returns a variable of the user's environment, for git
	Host      Host
	Config    *config.Config // in force until [Manager.Configure]; it must not change
	Ladder    engine.Ladder  // zero takes the defaults
	// Audit receives a line for each consult that has ended; nil for none. After a
	// crash the next daemon may pass the same line again. It is called without a lock.
	Audit func(answer.Audit)
	// Return is how long a client may take to come back for a job that an earlier
	// daemon began for it; 0 is [protocol.StartWindow].
	Return time.Duration
}

// operation is the operation that faults of this package name.
const operation = engine.Operation
