// Package process tells processes apart and describes the directory of a worker.
//
// A process is a [Proc]: a pid means nothing without its start time and the boot it
// belongs to. Daemon and worker both have to kill what a child left behind.
//
// A worker owns one child process. The files of its directory ([Spec], [State],
// [Server], and the call records of package daemon/calls) are all that the next
// daemon has if this one dies, and all that is left if the worker dies. What daemon
// and worker say to each other is in package protocol/workerwire.
//
// The package starts no goroutine and does not log.
package process

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// EnvWorker is a variable of every child. Its value is the directory of the child's
// worker. A daemon finds the processes that a dead worker left by it, and leaves
// those of workers in another daemon's directories alone.
const EnvWorker = "HOLDLINE_WORKER"

// Streams of a child.
const (
	Stdin  = "stdin"
	Stdout = "stdout"
	Stderr = "stderr"
)

// Exit says how the child ended. Exactly one of the first three fields is set.
type Exit struct {
	Code       *int   `json:"exitCode,omitempty"`
	Signal     string `json:"signal,omitempty"`     // "SIGKILL"
	SpawnErrno string `json:"spawnErrno,omitempty"` // it never ran: "ENOENT"
	SpawnOp    string `json:"spawnOp,omitempty"`    // with SpawnErrno: "chdir", "exec", "fork", [OpConfine]
	// Closed is Stdin or Stdout if the child had closed that while it lived: then its
	// worker has ended it.
	Closed string `json:"closed,omitempty"`
	UnixMS int64  `json:"unixMs,omitempty"` // when the child ended; 0 from older workers
	// Limit is the limit of [Bounds] that was reached before, in words, or "". The daemon sets it.
	Limit string `json:"limit,omitempty"`
}

// String returns the exit in words: "exit code 3", "signal SIGKILL", "exec: ENOENT".
func (e Exit) String() string {
	if limit := e.Limit; limit != "" {
		e.Limit = ""
		return e.String() + ", after its " + limit + " was reached"
	}
	switch {
	case e.SpawnErrno != "":
		return e.SpawnOp + ": " + e.SpawnErrno
	case e.Signal != "":
		return "signal " + e.Signal
	case e.Code != nil:
		return fmt.Sprintf("exit code %d", *e.Code)
	}
	return "unknown"
}

// Failed reports whether the child ran and ended in another way than with exit code 0.
func (e Exit) Failed() bool { return e.SpawnErrno == "" && (e.Code == nil || *e.Code != 0) }

// ErrnoName returns the symbol of an error of the system, as [Exit] has it: "ENOENT".
func ErrnoName(errno syscall.Errno) string {
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return errno.Error()
}

// KilledByOthers reports whether the child was ended by a signal that other processes
// send, and not by one that a fault of its own raises.
func (e Exit) KilledByOthers() bool {
	if e.Closed != "" || e.Limit != "" {
		return false
	}
	switch e.Signal {
	case "SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT":
		return true
	}
	return false
}

// ExecRequest is what the exec step reads before it becomes the child. An end
// of file in its place means that the worker is gone.
type ExecRequest struct {
	Argv              []string `json:"argv"`
	Cwd               string   `json:"cwd,omitempty"`
	ParentDeathSignal int      `json:"parent_death_signal"` // number of the signal; 0 for none
	Parent            int      `json:"parent"`              // pid of the worker
	Confine           *Confine `json:"confine,omitempty"`
	Data              int64    `json:"data,omitempty"` // RLIMIT_DATA in bytes; 0 leaves it as it is
}

// OpConfine is the step of a child's start that takes away its rights: see [Confine].
const OpConfine = "confine"

// ExecFailure is what the exec step reports if it could not become the child. If it did, it
// reports nothing: its pipe is closed.
type ExecFailure struct {
	Op    string `json:"op"`
	Errno int    `json:"errno"`
}
