package consult

import (
	"context"
	"encoding/json"
	"errors"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/request"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// handler handles the calls of a tool.
type handler func(context.Context, tool.Call) (tool.Result, error)

// named returns handle with faults that name the tool name. Jobs file their faults
// under the tool consult, whichever tool has asked.
func named(name string, handle handler) handler {
	return func(ctx context.Context, c tool.Call) (tool.Result, error) {
		result, err := handle(ctx, c)
		if f, ok := errors.AsType[*fault.Record](err); ok && f.Operation == operation {
			its := *f
			its.Operation = "tools/call:" + name
			err = &its
		}
		return result, err
	}
}

// Tools returns the tools of this package: consult, consult_result and consult_control.
func (m *Manager) Tools() []tool.Tool {
	result, control := request.ResultTool(), request.ControlTool()
	result.Handle = named(result.Name, m.consultResult)
	control.Handle = named(control.Name, m.consultControl)
	return []tool.Tool{m.consultTool(), result, control}
}

// consultTool returns the tool consult. It is never replayed, since a second run would
// cost again: a repeated call finds its job by the line's number.
func (m *Manager) consultTool() tool.Tool {
	t := request.Tool()
	t.Handle, t.Resume = m.consult, m.again
	return t
}

// decode reads arguments into v. The tool's schema has accepted them already.
func decode(raw json.RawMessage, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return engine.Invalid("arguments: %v", err)
	}
	return nil
}
