package acp

import (
	"fmt"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// deny notes that the agent was refused something.
func (r *Run) deny(what string) {
	if len(r.denials) < maxDenials {
		r.denials = append(r.denials, engine.Denial{Tool: fault.Short(what, 80)})
	}
}

// maxDenials bounds the denials of a run that are kept.
const maxDenials = 1000

// answerAgent answers a request of the agent. Nothing is ever allowed.
func (r *Run) answerAgent(m *message) []engine.Event {
	id := jsonrpc.ID(m.ID)
	events := append(r.heard(), r.endTool()...)
	answer := func(b []byte) []engine.Event {
		return append(events, engine.Event{Kind: engine.Write, Line: append(b, '\n')})
	}
	switch {
	case m.Method == methodPermission:
		var p permission
		decode(m.Params, &p)
		r.deny(p.Tool.Title)
		return answer(jsonrpc.AppendResult(nil, id, jsonrpc.Encode(map[string]any{"outcome": r.refusal(&p)})))
	case m.Method == methodRead && r.agent.FS:
		text, err := r.readFile(m.Params)
		if err == nil {
			return answer(jsonrpc.AppendResult(nil, id, jsonrpc.Encode(map[string]any{"content": text})))
		}
		r.deny(m.Method)
		return answer(jsonrpc.AppendError(nil, id, jsonrpc.CodeInvalidParams, err.Error(), nil))
	}
	r.deny(m.Method)
	return answer(jsonrpc.AppendError(nil, id, jsonrpc.CodeUnknownMethod, fmt.Sprintf("%q is not offered", m.Method),
		nil))
}

// refusal returns the outcome by which a tool use is refused: an option that rejects it, once if
// there is one, else a cancellation.
func (r *Run) refusal(p *permission) map[string]any {
	for _, kind := range []string{"reject_once", "reject_always"} {
		for _, o := range p.Options {
			if o.Kind == kind && !r.interrupted {
				return map[string]any{"outcome": "selected", "optionId": o.ID}
			}
		}
	}
	return map[string]any{"outcome": "cancelled"}
}
