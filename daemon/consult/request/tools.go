package request

import (
	"context"
	"encoding/json"
	"errors"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// loaded asks clients to show a tool to the model from the start, even if they hide
// others behind a search, and not to cut its answers at their usual size.
const loaded = `{"anthropic/maxResultSizeChars":200000,"anthropic/alwaysLoad":true}`

// Tool returns the tool consult without its handlers.
func Tool() tool.Tool {
	return tool.Tool{
		Name: "consult",
		Description: "Asks another model, through the " + engines.Titles() + " installed on this machine, for a " +
			"second opinion: a review, a diagnosis, a plan, an answer about the code. It works on its own, " +
			"read-only, in the given directory: it can read and search files there (and the web, where that is " +
			"allowed), and cannot write anything, nor execute unless level is shell. It knows nothing of your " +
			"conversation: put the question, the context and what you have tried into the prompt, and name files " +
			"instead of pasting them.\n\nIt takes from seconds to minutes. The call waits up to wait_s and returns " +
			"the answer; if there is none yet, it returns a consult_id, and the work goes on: fetch the answer with " +
			"consult_result. wait_s 0 only starts it, so that you can go on working or start several at once. " +
			"Cancelling the call ends the consult. To ask a follow-up question, pass the session that the answer " +
			"names.",
		Annotations: tool.Annotations{Title: "Ask another model", ReadOnly: true, OpenWorld: true},
		Dispatch:    tool.OnWorker,
		Contract:    tool.NeverReplay,
		Required:    []string{"prompt"},
		Properties:  Properties(),
		Meta:        json.RawMessage(loaded),
	}
}

// ResultTool returns the tool consult_result, which only reads, without its handler.
func ResultTool() tool.Tool {
	return tool.Tool{
		Name: "consult_result",
		Description: "Fetches the answer of a consult that was started before: waits up to wait_s for it, then " +
			"returns it, or what was said so far. With offset it returns the next part of a long answer. Without " +
			"consult_id it lists your consults. It can be called as often as you like; ending the call never ends " +
			"the consult.",
		Annotations: tool.Annotations{Title: "Answer of a consult", ReadOnly: true, Idempotent: true},
		Dispatch:    tool.OnHost,
		Contract:    tool.Convergent,
		Properties: json.RawMessage(`{
"consult_id":{"type":"string","pattern":"^[0-9a-f]{12}$",
	"description":"From the answer of consult. Without it, your consults are listed."},
"wait_s":{"type":"number","minimum":0,"maximum":86400,
	"description":"How long to wait for the answer, in seconds. Default: 100."},
"offset":{"type":"integer","minimum":0,"description":"Character at which to begin, for the rest of a long answer."}}`),
		Meta: json.RawMessage(`{"anthropic/maxResultSizeChars":200000}`),
	}
}

// ControlTool returns the tool consult_control, which cancels a consult, without its handler.
func ControlTool() tool.Tool {
	return tool.Tool{
		Name: "consult_control",
		Description: "Ends a consult that is queued or running. What it has said and what it cost is kept, and " +
			"returned. One that has ended already is left as it is.",
		// It ends a process of ours and changes nothing that the user has.
		Annotations: tool.Annotations{Title: "End a consult", Idempotent: true},
		Dispatch:    tool.OnHost,
		Contract:    tool.Convergent,
		Required:    []string{"consult_id", "action"},
		Properties: json.RawMessage(`{
"consult_id":{"type":"string","pattern":"^[0-9a-f]{12}$","description":"From the answer of consult."},
"action":{"type":"string","enum":["cancel"],"description":"What to do: cancel ends it."}}`),
	}
}

// Handler handles the calls of a tool.
type Handler func(context.Context, tool.Call) (tool.Result, error)

// Named returns handle with faults that name the tool name. Jobs file their faults
// under the tool consult, whichever tool has asked.
func Named(name string, handle Handler) Handler {
	return func(ctx context.Context, c tool.Call) (tool.Result, error) {
		result, err := handle(ctx, c)
		if f, ok := errors.AsType[*fault.Record](err); ok && f.Operation == engine.Operation {
			its := *f
			its.Operation = "tools/call:" + name
			err = &its
		}
		return result, err
	}
}

// Decode reads arguments into v. The tool's schema has accepted them already.
func Decode(raw json.RawMessage, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return engine.Invalid("arguments: %v", err)
	}
	return nil
}

// SayTool returns the tool consult_say, without its handler. A repeated call has the id of the
// first: its message is said once. It is read-only, since what the message brings about is.
func SayTool() tool.Tool {
	return tool.Tool{
		Name: "consult_say",
		Description: "Says something to a consult that was started before: a correction, a further question, what " +
			"you have found out since. Where the program can take it, a consult that works gets it in the same " +
			"turn, else in its next one. A consult that has ended is continued, as a new consult with a " +
			"consult_id of its own. The receipt is delivered when the program has taken the message, and queued " +
			"until then. With wait_s the call waits for the answer.",
		Annotations: tool.Annotations{Title: "Say something to a consult", ReadOnly: true, OpenWorld: true},
		Dispatch:    tool.OnHost,
		Contract:    tool.Convergent,
		Required:    []string{"consult_id", "text"},
		Properties: json.RawMessage(`{
"consult_id":{"type":"string","pattern":"^[0-9a-f]{12}$","description":"From the answer of consult."},
"text":{"type":"string","minLength":1,"description":"What to say, at most 256 KiB."},
"wait_s":{"type":"number","minimum":0,"maximum":86400,
	"description":"How long to wait for the answer, in seconds. Default: 0."}}`),
		Meta: json.RawMessage(`{"anthropic/maxResultSizeChars":200000}`),
	}
}
