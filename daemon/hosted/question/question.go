package question

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"holdline/daemon/calls"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A State says where a request of a server stands. Methods of [Set] change it:
//
//	          Answer    Close
//	Open      Answered  Closed
//	Answered  –         Closed
//
// No method changes Closed, and "–" leaves the state as it is.
type State int8

// The states.
const (
	Open     State = iota // the client of a call may have been told of it: see [Set.Show]
	Answered              // an answer is on its way
	Closed                // the server has its answer, or will never read one
)

// A Question is a request of a server to its session's client.
type Question struct {
	ID     string          // under which the client sees it
	Raw    jsonrpc.ID      // the server's own
	Line   []byte          // for the client; nil if the daemon answers itself
	Method string          //
	Params json.RawMessage // as the server spelled them
	Token  json.RawMessage // for progress, the server's own; nil if it wants none

	nth    int // requests before it were opened earlier
	state  State
	with   *calls.Call // whose client was told of it, perhaps by an earlier daemon; nil for none
	answer int64       // the client's line with the answer that is on its way; 0 for none
	inFile bool
}

// IsAnswered reports whether an answer is on its way, or not needed any more.
func (q *Question) IsAnswered() bool { return q.state >= Answered }

// IsAnsweredBy reports whether the answer in line n of the client is on its way.
func (q *Question) IsAnsweredBy(n int64) bool { return q.IsAnswered() && q.answer == n }

// NeedsLine reports whether the worker must keep the line of the request: it needs an
// answer, and is in no file.
func (q *Question) NeedsLine() bool { return q.state != Closed && !q.inFile }

// BeginWriting returns true: as long as the line is needed, the request is to be written to
// a file. [Set.Written] records that it was.
func (q *Question) BeginWriting() bool { return true }

// AsksPerson reports whether the client shows the request to a person, who may take long
// to answer.
func (q *Question) AsksPerson() bool { return AsksPerson(q.Method) }

// AsksPerson reports whether a client shows a request with that method to a person.
func AsksPerson(method string) bool {
	return method == "elicitation/create" || method == "sampling/createMessage"
}

// waits reports whether the request waits for a client.
func (q *Question) waits() bool { return q.Line != nil && q.state < Answered }

// With returns the call whose client was told of the request, and which can still bring the
// answer; nil if there is none. The request belongs to that call alone: no other one's client is
// asked.
func (q *Question) With() *calls.Call {
	if q.with == nil || q.with.Phase() != calls.Open || !q.with.Claim().Wanted() {
		return nil
	}
	return q.with
}

// isShown reports whether a client has the request, and is to answer it by another message.
func (q *Question) isShown() bool {
	c := q.With()
	return c != nil && (c.Claim().IsSuspended() || c.Claim().IsDetached())
}

// Answer returns the line that gives a client's answer to the server: an error for one that is not as
// MCP has it. The server could wait for another one for ever.
func (q *Question) Answer(msg jsonrpc.Message) []byte {
	var why string
	switch {
	case msg.Error != nil:
		code, err := strconv.ParseFloat(string(jsonrpc.Field(msg.Error, "code")), 64)
		_, words := mcp.String(jsonrpc.Field(msg.Error, "message"))
		if err == nil && code == math.Trunc(code) && words {
			return jsonrpc.AppendFailure(nil, q.Raw, msg.Error)
		}
		why = "its error has no code that is a whole number, or no message"
	case len(msg.Result) > 0 && msg.Result[0] == '{':
		return jsonrpc.AppendResult(nil, q.Raw, msg.Result)
	default:
		why = "its result is not an object"
	}
	return jsonrpc.AppendError(nil, q.Raw, jsonrpc.CodeInternal, "the client's answer makes no sense: "+why, nil)
}

// Progress returns the params of a client's notification of its progress with the request,
// as the server has to see them. It returns nil if the server wants none.
func (q *Question) Progress(params json.RawMessage) json.RawMessage {
	if q.Token == nil || q.IsAnswered() {
		return nil
	}
	params, err := jsonrpc.Replace(params, mcp.MetaProgress, q.Token)
	if err != nil {
		return nil
	}
	return params
}

// Withdrawal returns the notification that cancels the request at the client. It has the
// server's params, with the id that the client knows.
func (q *Question) Withdrawal(params json.RawMessage) []byte {
	quoted := fmt.Appendf(nil, "%q", q.ID)
	told, err := jsonrpc.Replace(params, "requestId", quoted)
	if err != nil { // a key stands twice
		told = fmt.Appendf(nil, `{"requestId":%s}`, quoted)
	}
	return jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote, told)
}

// Required returns the result that shows requests to the client of a call, which repeats
// its call with the answers and with state.
func Required(all []*Question, state string) (json.RawMessage, error) {
	requests := make(map[string]json.RawMessage, len(all))
	for _, q := range all {
		requests[q.ID] = q.Request()
	}
	return jsonrpc.Marshal(struct {
		Type     string                     `json:"resultType"`
		Requests map[string]json.RawMessage `json:"inputRequests"`
		State    string                     `json:"requestState"`
	}{"input_required", requests, state})
}

// Request returns the request as a modern client is asked it, an object.
func (q *Question) Request() json.RawMessage {
	b, _ := jsonrpc.Marshal(struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params,omitempty"`
	}{q.Method, q.Params}) // it is JSON
	return b
}
