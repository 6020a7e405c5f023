package workerwire

import (
	"encoding/json"
	"fmt"

	"holdline/protocol"
	"holdline/protocol/jsonrpc"
)

// Codes of an [Error].
const (
	CodeInvalid       = "invalid"            // the request makes no sense
	CodeUnknownMethod = "unknown_method"     // the kind of the frame is not known
	CodeVersion       = "version"            // the peer speaks another version
	CodeNotAttached   = "not_attached"       // another connection is attached, or none
	CodeStaleEpoch    = "stale_epoch"        // a daemon of a higher generation was attached before
	CodeWriteGap      = "write_gap"          // the write id is not the next one
	CodeExhausted     = "resource_exhausted" // refused: too much is waiting already
	CodeLocked        = "locked"             // in a [Report]: another worker has the directory
)

// Error is the body of a [Failure]. It is an error.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Epoch   int64  `json:"epoch,omitempty"` // of CodeStaleEpoch: generation of that daemon
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Errorf makes an [Error].
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Err returns the error of a [Failure], and nil of any other frame.
func (f *Frame) Err() error {
	if f.Kind != Failure {
		return nil
	}
	e := new(Error)
	if err := json.Unmarshal(f.Body, e); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return e
}

// Answer returns the answer to the request id. A result that is too long for a body, such as that
// of a worker with long secrets, is the payload.
func Answer(id int64, result any) Frame {
	f := Frame{Kind: Result, ID: id, Body: jsonrpc.Encode(result)}
	if len(f.Body) > MaxBody {
		f.Body, f.Payload = nil, f.Body
	}
	return f
}

// Decode reads the result of an answer into v, which may be nil. It returns the
// error of a [Failure].
func (f *Frame) Decode(v any) error {
	if err := f.Err(); err != nil || v == nil {
		return err
	}
	if len(f.Body) == 0 {
		return json.Unmarshal(f.Payload, v)
	}
	return json.Unmarshal(f.Body, v)
}

// InitializeParams begin a connection.
type InitializeParams struct {
	Version int `json:"version"` // that of the worker's spec
}

// InitializeResult says what the worker is and where its output stands.
type InitializeResult struct {
	Version  int    `json:"version"`
	ID       string `json:"id"`
	PID      int    `json:"pid"`
	ChildPID int    `json:"childPid,omitempty"` // 0 before the child was forked
	NextSeq  int64  `json:"nextSeq"`
	Acked    int64  `json:"acked"`
}

// AttachParams ask to be the one connection that may write.
type AttachParams struct {
	Epoch    int64 `json:"epoch"`    // generation of the daemon; a lower one than before is refused
	AfterSeq int64 `json:"afterSeq"` // events after this one are sent
}

// AttachResult answers [AttachParams].
type AttachResult struct {
	LastWrite int64 `json:"lastWrite"` // last write id that was taken
	Queued    int64 `json:"queued"`    // bytes taken and not yet written to the child
	Acked     int64 `json:"acked"`
	NextSeq   int64 `json:"nextSeq"` // events below it happened before the attach

	Secrets []string `json:"secrets,omitempty"` // of [Environment]
}

// TerminateParams end the child: stdin is closed, after GraceMS the group gets
// SIGTERM, after GraceMS more everything gets SIGKILL. A second request can only
// shorten that.
type TerminateParams struct {
	GraceMS int64 `json:"graceMs"`
}

// Dropped is the body of an output event that stands for bytes which the worker had
// to drop. The event then covers the numbers First to N.
//
// An output event whose bytes lie in a file, instead of in its payload, has a Span. Before
// the span the file has all that was written since the last newline.
type Dropped struct {
	First int64         `json:"first,omitempty"` // 0 if it is N
	Bytes int64         `json:"bytes,omitempty"`
	Span  protocol.Span `json:"span,omitzero"` // of a file in the worker's directory
	Sum   uint32        `json:"sum,omitempty"` // of the span's bytes: see package bulk
}

// Filed is the body of a Write some of whose bytes lie in a file. The worker removes the file's
// name. No two writes have the same name, so that a daemon that was fenced off cannot change the
// bytes of the next one's write.
type Filed struct {
	Before int           `json:"before"` // bytes of the payload that precede the span; the others follow it
	Span   protocol.Span `json:"span"`   // of a file in the worker's directory
}

// Environment is what a worker receives on an inherited pipe and writes to no file.
type Environment struct {
	Env []string `json:"env"`
	// Secrets must be hidden wherever the child prints them. The worker sends them to
	// each daemon that attaches.
	Secrets []string `json:"secrets,omitempty"`
	// Data is the RLIMIT_DATA of the child, in bytes; 0 leaves it as it is.
	Data int64 `json:"data,omitempty"`
}

// Report is the one line that a started worker sends to its daemon: that it listens,
// or why it does not.
type Report struct {
	Ready bool   `json:"ready,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Error *Error `json:"error,omitempty"`
}
