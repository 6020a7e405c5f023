package consult

import (
	"context"

	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/request"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// Tools returns the tools of this package: consult, consult_result, consult_control and
// consult_say.
func (m *Manager) Tools() []tool.Tool {
	result, control := request.ResultTool(), request.ControlTool()
	result.Handle = request.Named(result.Name, m.consultResult)
	control.Handle = request.Named(control.Name, m.consultControl)
	return []tool.Tool{m.consultTool(), result, control, m.sayTool()}
}

// sayTool returns the tool consult_say. A repeated call finds the message by the line's number,
// or the consult that it has begun.
func (m *Manager) sayTool() tool.Tool {
	t := request.SayTool()
	t.Handle = request.Named(t.Name, m.consultSay)
	t.Resume = func(_ context.Context, c tool.Call) (tool.Result, error) {
		id := jobdir.ID(c.Caller.Session, c.N)
		if m.job(id) == nil {
			return tool.Result{}, fault.New(fault.ResourceExhausted, fault.Host, operation,
				"the daemon ended, and the request was too large to be kept for the next one: "+
					"consult_result shows whether the consult has got the message")
		}
		r := control.Receipt{Receipt: control.MessageQueued, MessageID: id, ConsultID: id}
		return tool.Result{Text: r.Words(), Value: r}, nil
	}
	return t
}

// consultTool returns the tool consult. It is never replayed, since a second run would
// cost again: a repeated call finds its job by the line's number.
func (m *Manager) consultTool() tool.Tool {
	t := request.Tool()
	t.Handle, t.Resume = m.consult, m.again
	return t
}
