// Package tool holds the tools that a session can see and call.
//
// A [Tool] is one of holdline's own: its schema, its handler, and the two renderings
// of what it answers. Package consult makes some; those that run inside the daemon
// are here: the snapshots, which answer at once, [NewFindTools], which may wait a
// while for servers, and [NewCallTool]. A [Remote] is what answers a call, be it an
// own tool or one of a hosted server. A [Catalog] offers both to sessions.
//
// The package starts no goroutine and owns no file. A Catalog is safe for concurrent
// use.
package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Contract says whether a call may run again after a loss.
type Contract string

// The contracts.
const (
	Convergent  Contract = "convergent"
	NeverReplay Contract = "never_replay"
)

// Dispatch says where a tool runs.
type Dispatch string

// The places.
const (
	OnHost   Dispatch = "host"
	OnWorker Dispatch = "worker"
)

// LargeAnswer is a size in bytes. A stored answer that is at least as large is loaded only
// when it is about to be sent to its client; see [RemoteResult].
const LargeAnswer = 1 << 20

// LargeForGuest is LargeAnswer for guests: all others may wait in memory.
const LargeForGuest = 64 << 10

// ErrStopping is the cause of a call's end when the daemon stops. The client may then ask
// the next daemon for the answer.
var ErrStopping = errors.New("the daemon is stopping")

// Names of the own tools that the configuration offers or not, by identity.
const (
	FindTools = mcp.FindTools // finds tools of hosted servers by words
	CallTool  = mcp.CallTool  // calls one of them
)

// Caller is the session that asks.
type Caller struct {
	Session  string // hash of the session's uuid, 64 hex digits; the key in records
	Number   int64  // what people see
	Identity string
	View     string // that narrows what it sees; "" for none
	Guest    string // socket of the configuration by which it came; "" for the daemon's own
	Project  string // key
	Root     string // directory that the key stands for; "" if unknown
	Cwd      string // the client's working directory; "" if unknown
	Client   string // name and version of the client program; "" if unknown
	// The one hosted server that it is for, whose own names it uses; "" if it is for
	// all, Own if for none.
	Only  string
	PID   int    // of the process that the client talks through; 0 if unknown
	Start uint64 // start time of that process; 0 if unknown
	Agent string // equal for the sessions of one client process, whose budgets are one; "" is a session by itself

	Logins []string // names of variables by which a consult program logs in that its environment has, as far as it says
}

// Place returns the directory that the session works in: the project's root, or else
// the client's working directory; "" if neither is known.
func (c *Caller) Place() string { return cmp.Or(c.Root, c.Cwd) }

// Own stands in place of a server's name in a session that is for holdline's own tools
// alone. No server can have that name.
const Own = "holdline"

// SeesOwn reports whether the session sees holdline's own tools.
func (c *Caller) SeesOwn() bool { return c.Only == "" || c.Only == Own }

// Call is one call of a tool, its input checked against the schema.
type Call struct {
	Caller Caller
	N      int64           // number of the client's line
	ID     string          // the request's id as JSON
	Args   json.RawMessage // an object, never nil, without render and detail
	Detail Detail
	Render Render // for tools that answer later; the daemon does the rest
	Task   bool   // the client takes a task in place of the answer

	// Progress tells the client how far the call is; nil if it did not ask.
	// It never blocks, and after the call has returned it does nothing. Total
	// is 0 if unknown.
	Progress func(progress, total float64, message string)
}

// Result is what a tool answers. Either Fault is set, or Text and Value, or Task.
type Result struct {
	Text  string        // the answer with render=porcelain, for the asked detail
	Value any           // encodes as a JSON object, for the asked detail
	Fault *fault.Record // the call failed: isError
	// FaultText stands behind the fault's detail and code for the model to
	// read: what to do next, a partial answer.
	FaultText string
	// Replays counts how often the call was run again after a loss.
	Replays int
	// Task is the result object of a call for which a task was made, in place of all else.
	Task json.RawMessage
}

// Annotations are MCP's hints.
type Annotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    bool   `json:"readOnlyHint"`
	Destructive bool   `json:"destructiveHint"`
	Idempotent  bool   `json:"idempotentHint"`
	OpenWorld   bool   `json:"openWorldHint"`
}

// Tool is one of holdline's own tools.
type Tool struct {
	Name        string
	Description string // under 2,048 characters, else clients cut it
	Annotations Annotations
	Dispatch    Dispatch
	Contract    Contract
	// Properties and Required are the tool's own part of its input schema;
	// render and detail are added to it, and nothing else is allowed.
	Properties json.RawMessage
	Required   []string
	// Meta becomes _meta of the tool's listing; nil for none.
	Meta json.RawMessage
	// Handle runs a call. Its context ends when the client cancels or is gone.
	// An error that is no [*fault.Record] becomes an internal_failure.
	Handle func(ctx context.Context, c Call) (Result, error)
	// Resume answers a call that an earlier daemon had begun and whose arguments
	// are lost. Nil means that no such call can be answered.
	Resume func(ctx context.Context, c Call) (Result, error)
	// Inner is set instead of Handle if a call of the tool is a call of a hosted
	// server's tool. It returns that call, from the arguments as they came (nil if
	// there are none), or what is wrong with them. The server's answer is passed on
	// unchanged, so the tool has no arguments render and detail.
	Inner func(arguments json.RawMessage) (Inner, error)
}

// Inner is a call of a hosted server's tool that was made through an own tool.
type Inner struct {
	Server    string
	Tool      string          // the server's own name, or the one that sessions see
	Arguments json.RawMessage // as they were spelled; nil if there were none
}
