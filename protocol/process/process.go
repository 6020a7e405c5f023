// Package process is what the daemon and a worker say to each other, and the
// files of a worker's directory.
//
// A worker owns one child process. Its socket carries frames (see [Frame])
// in both directions: requests from the daemon, answers, and events. Beside
// it lies the worker's directory, whose files ([Spec], [State],
// [Server], and the call records of package daemon/calls) are all that the next daemon has if this one dies, and all that
// anybody has if the worker does. The package also tells processes apart
// ([Proc]: a pid is nothing without its start time and the boot it belongs
// to), since both sides have to kill what a child left behind.
//
// It starts no goroutine and does not log.
package process

import (
	"encoding/json"
	"fmt"
)

// EnvWorker is the variable that every child carries, with its worker's id as
// the value, so that what is left of a dead worker can be found.
const EnvWorker = "HOLDLINE_WORKER"

// Methods. All but initialize, attach and read are refused from a connection
// that is not the attached one.
const (
	MethodInitialize = "initialize"
	MethodAttach     = "process/attach"
	MethodRead       = "process/read"
	MethodWrite      = "process/write"
	MethodCloseStdin = "process/closeStdin"
	MethodSignal     = "process/signal"
	MethodTerminate  = "process/terminate"
	MethodAck        = "process/ack"
)

// Events, pushed to the attached connection. They share one counter, from 1
// and without gaps.
const (
	EventOutput = "process/output"
	EventExited = "process/exited"
	EventClosed = "process/closed"
)

// Streams of a child.
const (
	Stdin  = "stdin"
	Stdout = "stdout"
	Stderr = "stderr"
)

// Statuses of a write that was taken.
const (
	WriteAccepted    = "accepted"    // written to the child's pipe
	WriteStdinClosed = "stdinClosed" // not: stdin is closed
	WriteTorn        = "torn"        // not wholly: stdin was closed meanwhile
)

// Codes of an [Error].
const (
	CodeInvalid       = "invalid"            // the request makes no sense
	CodeUnknownMethod = "unknown_method"     //
	CodeVersion       = "version"            // the peer speaks another version
	CodeNotAttached   = "not_attached"       // another connection is, or none
	CodeStaleEpoch    = "stale_epoch"        // a newer daemon has been here
	CodeWriteGap      = "write_gap"          // the write id is not the next one
	CodeExhausted     = "resource_exhausted" // not taken: too much is waiting already
	CodeBusy          = "busy"               // one read at a time on a connection
	CodeLocked        = "locked"             // in a [Report]: another worker has the directory
)

// Error is an error answer. It is an error.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an [Error].
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// InitializeParams begin a connection.
type InitializeParams struct {
	Version int    `json:"version"`           // that of the worker's spec
	Program string `json:"program,omitempty"` // the daemon's version, for people
}

// InitializeResult says what the worker is and where its output stands.
type InitializeResult struct {
	Version  int    `json:"version"`
	Program  string `json:"program,omitempty"`
	ID       string `json:"id"`
	PID      int    `json:"pid"`
	ChildPID int    `json:"childPid,omitempty"` // 0 before it was forked
	State    string `json:"state"`              // a phase of [State]
	FirstSeq int64  `json:"firstSeq"`           // of what is retained; nextSeq if nothing is
	NextSeq  int64  `json:"nextSeq"`
	Acked    int64  `json:"acked"`
}

// AttachParams ask for the one place that may write.
type AttachParams struct {
	Epoch    int64 `json:"epoch"`    // of the daemon's life; a lower one than before is refused
	AfterSeq int64 `json:"afterSeq"` // events after this one are pushed
}

// AttachResult answers [AttachParams].
type AttachResult struct {
	LastWrite   int64 `json:"lastWrite"` // last write id that was taken
	Queued      int64 `json:"queued"`    // bytes taken and not yet written
	Acked       int64 `json:"acked"`
	NextSeq     int64 `json:"nextSeq"` // events below it happened before the attach
	StdinClosed bool  `json:"stdinClosed,omitempty"`

	Secrets []string `json:"secrets,omitempty"` // of [Environment]
}

// ReadParams ask for retained output without attaching.
type ReadParams struct {
	AfterSeq int64 `json:"afterSeq"`
	MaxBytes int   `json:"maxBytes,omitempty"` // of payload; one chunk always comes; 0 for 1 MiB
	WaitMS   int64 `json:"waitMs,omitempty"`   // how long to wait for something new
}

// ReadResult answers [ReadParams]; the chunks' bytes follow each other in the
// payload.
type ReadResult struct {
	Chunks  []Chunk `json:"chunks"`
	NextSeq int64   `json:"nextSeq"` // what to ask for next is nextSeq-1
	Exited  bool    `json:"exited"`
	Exit
	Closed bool `json:"closed"`
}

// Chunk is a piece of output in a [ReadResult].
type Chunk struct {
	OutputParams
	Size int `json:"size"`
}

// WriteParams come with the bytes as payload.
type WriteParams struct {
	WriteID int64 `json:"writeId"` // last taken id + 1
}

// WriteResult says what became of a write, once that is known.
type WriteResult struct {
	Status string `json:"status"`
}

// SignalParams name a signal for the child's process group.
type SignalParams struct {
	Signal string `json:"signal"` // "SIGINT"
}

// TerminateParams end the child: stdin is closed, after GraceMS the group gets
// SIGTERM, after GraceMS more everything gets SIGKILL. A second request can
// only make it faster.
type TerminateParams struct {
	GraceMS int64 `json:"graceMs"`
}

// AckParams free retained output.
type AckParams struct {
	Seq int64 `json:"seq"`
}

// OutputParams describe an output event or a chunk. A piece of stderr that the
// worker had to drop is told as one without bytes that covers First to Seq.
type OutputParams struct {
	First   int64  `json:"first,omitempty"` // where it differs from Seq
	Seq     int64  `json:"seq"`
	Stream  string `json:"stream"`
	Dropped int64  `json:"dropped,omitempty"` // bytes
}

// ExitedParams describe the end of the child; output may still follow.
type ExitedParams struct {
	Seq int64 `json:"seq"`
	Exit
}

// ClosedParams describe the very end: the child and all it left are gone and
// everything it wrote was told.
type ClosedParams struct {
	Seq int64 `json:"seq"`
}

// Exit is how the child ended. Exactly one of the first three is set.
type Exit struct {
	Code       *int   `json:"exitCode,omitempty"`
	Signal     string `json:"signal,omitempty"`     // "SIGKILL"
	SpawnErrno string `json:"spawnErrno,omitempty"` // it never ran: "ENOENT"
	SpawnOp    string `json:"spawnOp,omitempty"`    // with SpawnErrno: "chdir", "exec", "fork", [OpConfine]
	Closed     string `json:"closed,omitempty"`     // Stdin or Stdout, which the child had closed, for which its worker ended it
	UnixMS     int64  `json:"unixMs,omitempty"`     // when; older workers do not say
}

// String is for people: "exit code 3", "signal SIGKILL", "exec: ENOENT".
func (e Exit) String() string {
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

// Felled tells whether the child was ended by a signal that others send, and
// not by one that comes of its own fault.
func (e Exit) Felled() bool {
	if e.Closed != "" {
		return false
	}
	switch e.Signal {
	case "SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT":
		return true
	}
	return false
}

// Environment is what travels to a worker on the inherited pipe and is written
// to no file.
type Environment struct {
	Env []string `json:"env"`
	// Secrets must not be shown of what the child says. The worker tells them to
	// each daemon that attaches.
	Secrets []string `json:"secrets,omitempty"`
}

// Report is the one line that a started worker sends to its daemon: it
// listens, or why it does not.
type Report struct {
	Ready bool   `json:"ready,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// ExecRequest is what the exec step reads before it becomes the child. An end
// of file in its place means that the worker is gone.
type ExecRequest struct {
	Argv              []string `json:"argv"`
	Cwd               string   `json:"cwd,omitempty"`
	ParentDeathSignal int      `json:"parent_death_signal"`
	Parent            int      `json:"parent"` // pid of the worker
	Confine           *Confine `json:"confine,omitempty"`
}

// OpConfine is the step of a child's start that takes its rights away.
const OpConfine = "landlock"

// ExecFailure is what the exec step says if it could not become the child; it
// says nothing if it did.
type ExecFailure struct {
	Op    string `json:"op"`
	Errno int    `json:"errno"`
}

// Encode is v as JSON. It is for the types of this package, which always
// encode.
func Encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}
