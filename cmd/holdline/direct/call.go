package direct

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"holdline/daemon/dialect"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Called is what came of the call of a tool.
type Called struct {
	Tool    string `json:"tool"`
	Outcome string `json:"outcome"` // in words, to follow the name
	Failed  bool   `json:"failed,omitempty"`
}

// CallTime is the time that several calls may take together, however many are made at the same time. The
// zero value has none. It is safe for concurrent use.
type CallTime struct {
	all time.Duration

	mu     sync.Mutex
	used   time.Duration // in which calls were made; guarded by mu
	active int           // calls that are being made; guarded by mu
	since  time.Time     // when the first of these began; guarded by mu
}

// NewCallTime returns a time that is as long as all.
func NewCallTime(all time.Duration) *CallTime { return &CallTime{all: all} }

// most returns the whole time; none without a CallTime.
func (t *CallTime) most() time.Duration {
	if t == nil {
		return 0
	}
	return t.all
}

// begin returns how long a call may take that begins now. The caller calls end after it.
func (t *CallTime) begin() (left time.Duration, end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active++; t.active == 1 {
		t.since = time.Now()
	}
	return t.all - t.used - time.Since(t.since), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.active--; t.active == 0 {
			t.used += time.Since(t.since)
		}
	}
}

// isHarmless reports whether a tool says that it only reads, and takes a call without arguments.
func isHarmless(listed json.RawMessage) bool {
	var t struct {
		Annotations struct {
			ReadOnly    bool `json:"readOnlyHint"`
			Destructive bool `json:"destructiveHint"`
		} `json:"annotations"`
		Input     map[string]json.RawMessage `json:"inputSchema"`
		Execution struct {
			Task string `json:"taskSupport"`
		} `json:"execution"`
	}
	if json.Unmarshal(listed, &t) != nil || !t.Annotations.ReadOnly || t.Annotations.Destructive ||
		t.Execution.Task == "required" {
		return false
	}
	var required []string
	if all := t.Input["required"]; all != nil && json.Unmarshal(all, &required) != nil {
		return false
	}
	for _, key := range []string{"$ref", "allOf", "anyOf", "oneOf", "not", "if", "minProperties"} { // may require more
		if t.Input[key] != nil {
			return false
		}
	}
	return len(required) == 0
}

// call calls a tool without arguments, in the time that is left for calls.
func (c *conversation) call(ctx context.Context, name string, of *CallTime) Called {
	left, end := of.begin()
	defer end()
	if left <= 0 {
		return Called{Tool: name, Outcome: fmt.Sprintf("is not called: others took the %v for calls", of.all)}
	}
	bounded, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	e := c.Envelope()
	params := jsonrpc.Prepend(e.OwnParams(), `"name":`+string(jsonrpc.AppendString(nil, name))+`,"arguments":{}`)
	result, err := c.Request(bounded, "", mcp.ToolsCall, params)
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return Called{Tool: name, Outcome: fmt.Sprintf("has not answered within %v", left.Round(time.Second))}
	}
	outcome, failed := outcomeOf(result, err)
	return Called{Tool: name, Outcome: tool.Cut(outcome, maxLastLine), Failed: failed}
}

// othersDoing are faults of calls that say nothing of the entry: a rule or a login is in the way, or the
// tool takes long.
var othersDoing = []fault.Code{
	fault.Denied, fault.BudgetExceeded, fault.IdentityRefused, fault.Unauthenticated, fault.Timeout,
}

// outcomeOf says what came of a call, and whether that is the fault of the entry: what the tool itself says
// is none, nor what somebody else has to do first.
func outcomeOf(result json.RawMessage, err error) (outcome string, failed bool) {
	record := jsonrpc.Field(result, "structuredContent")
	refusal, refused := errors.AsType[*dialect.RefusalError](err)
	if refused {
		record = jsonrpc.Field(refusal.Raw, "data")
	}
	isError := string(jsonrpc.Field(result, "isError")) == "true"
	var f fault.Record
	if (refused || isError) && json.Unmarshal(record, &f) == nil && slices.Contains(fault.Codes(), f.Fault.Code) {
		if slices.Contains(othersDoing, f.Fault.Code) {
			return "does not run: " + f.Fault.Detail, false
		}
		return "fails: " + f.Fault.Detail, true
	}
	switch {
	case refused:
		message, _ := mcp.String(jsonrpc.Field(refusal.Raw, "message"))
		var code int
		_ = json.Unmarshal(jsonrpc.Field(refusal.Raw, "code"), &code)
		// Servers give the last two for what a tool has met, or does not like.
		if code < -32768 || code > -32000 || code == jsonrpc.CodeInvalidParams || code == jsonrpc.CodeInternal {
			return "answers with an error: " + message, false
		}
		return "fails: " + message, true
	case err != nil:
		return "fails: " + err.Error(), true
	case dialect.AsksForInput(result):
		return "asks for something first", false
	case isError:
		return "answers that it failed", false
	}
	return "answers", false
}
