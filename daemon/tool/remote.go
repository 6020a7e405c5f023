package tool

import (
	"context"
	"encoding/json"
	"time"

	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Remote answers calls. It is a tool, prompt or resource of a hosted server, or one of
// holdline's own tools. Parameters and answers are passed on as raw bytes.
type Remote struct {
	Name     string   // as sessions see it
	Server   string   // "" for holdline's own tools
	Names    []string // by which [Rules] know it
	Contract Contract
	Unlisted bool // a resource that its server has not listed: whoever asks for it has spelled its URI
	// Handle runs a call. Its context ends when the client cancels or is gone,
	// or with [ErrStopping]. An error is a [*fault.Record] or ErrStopping.
	Handle func(ctx context.Context, c RemoteCall) (RemoteResult, error)
}

// RemoteCall is one call of a [Remote].
type RemoteCall struct {
	Caller Caller
	N      int64           // number of the client's line
	ID     string          // the request's id as JSON
	Params json.RawMessage // of the request, as they came: an object; nil if they are lost
	// Arguments is where the arguments in Params lie in a file of the client; nil if they lie in none.
	Arguments *bulk.File
	Modern    bool      // the request is of the modern era
	Replay    bool      // it was sent to an earlier daemon, too
	Sent      time.Time // when the client sent it, whichever daemon read it first; zero is now
	Level     string    // of the log messages that it asks for; "" is none
	// Progress passes on the params of a progress notification, as they came
	// but for the token; nil if the client did not ask. It never blocks, and
	// after the call has returned it does nothing.
	Progress func(params json.RawMessage)
	// TakesTask says that the client takes a task in place of the answer.
	TakesTask bool
	// Refuse returns why a call that the server has not got yet must not be
	// made any more; nil lets every call through. An earlier daemon may have
	// accepted the call under another configuration.
	Refuse func(ctx context.Context) error
	// Doubt returns the fault of a call that an earlier daemon may have made although no record of it
	// is left, or nil. It is asked when the process is known to which the call is to go: only then
	// all that is damaged is known. nil doubts no call.
	Doubt func() *fault.Record
}

// RemoteResult is the answer to a call: one of Result, Error and Load.
type RemoteResult struct {
	Result json.RawMessage
	Error  json.RawMessage // a JSON-RPC error object
	// Load returns a large answer, which lies in a file or soon will. It may be called
	// until the call is confirmed. An error is a fault.
	Load func() (result, failure json.RawMessage, err error)
	Size int64 // of such an answer, in bytes
	// File is where the result of such an answer lies; nil if that is not known.
	File    *bulk.File
	Replays int    // how often the call was made again after a loss
	Cache   string // "hit" or "miss" if a cache was asked
	Task    string // id of the task that Result tells of; "" if it is the answer
	// Fault is why a call failed, for telemetry, if holdline answers it: Result or Error
	// says it already.
	Fault *fault.Record
}

// EncodeFault returns the result object of a tools/call that failed.
func EncodeFault(f *fault.Record) json.RawMessage {
	return mcp.ToolFailure(f, Cut(mcp.FaultText(f, ""), MaxText))
}

// About describes a hosted server in its own words.
type About struct {
	Capabilities json.RawMessage // an object
	Info         json.RawMessage // an object
	Instructions string
}

// Has is what hosted servers offer a session besides tools.
type Has struct {
	Prompts, Resources bool
	Updates            bool // notifications of changed resources
	Logging            bool // log messages, if they are asked for
}

// List is what a session sees of a list.
type List struct {
	Member  string    // of the result that holds it
	Entries []Listing // sorted by name
	Digest  string    // short; another one if the session sees anything else; never ""
}

// Listing is one entry of a list.
type Listing struct {
	Name string // by which the list is sorted; no two have the same
	Raw  json.RawMessage
}

// Client is a session, as servers reach it. Its methods do not block.
type Client interface {
	Caller() Caller
	// Ask sends a request of a server to the client: a whole line without its
	// newline. It reports whether the client has a connection.
	Ask(line []byte) bool
	// ListChanged notifies that a list has changed; method is that of the
	// notification. The session may look at its lists meanwhile, so the caller must
	// not hold a mutex that this takes.
	ListChanged(method string)
	// Level is the most verbose level of log messages that the client has ever
	// asked for in a request, or that it has set; "" if it wants none.
	Level() string
	// Log passes on a log message of a server: the params of the notification.
	// asked says that a request under way wants it; else it is passed on if
	// the client has set a level that covers it.
	Log(level string, params json.RawMessage, asked bool)
	// Updated passes on the notification that a resource has changed, with these
	// params, to the holder of a subscription. It returns false if it is dropped.
	Updated(holder string, params json.RawMessage) bool
	// Told returns what the client's proxy keeps of the changes of a server's resources
	// that it was notified of; "" if nothing. Tell has it keep something else.
	Told(server string) string
	Tell(server, what string)
	// Full ends the session, since more answers wait for its client than are
	// kept. The answers are dropped. It does not block.
	Full()
	// Seen confirms to the client that a server has got its line n, a response.
	Seen(n int64)
	// Era is "legacy" or "modern"; "" before the client's first request. The session is
	// opened again when its era has become known.
	Era() string
	// Revision is the revision of MCP that a legacy client speaks here; "" before its handshake.
	Revision() string
	// Capabilities are those that the client has declared, an object; nil if
	// it has not.
	Capabilities() json.RawMessage
}
