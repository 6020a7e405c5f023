package consult

import (
	"holdline/daemon/consult/request"
	"holdline/daemon/tool"
)

// Tools returns the tools of this package: consult, consult_result, consult_control and
// consult_say.
func (m *Manager) Tools() []tool.Tool {
	result, control, say := request.ResultTool(), request.ControlTool(), request.SayTool()
	result.Handle = request.Named(result.Name, m.consultResult)
	control.Handle = request.Named(control.Name, m.consultControl)
	say.Handle = request.Named(say.Name, m.consultSay)
	return []tool.Tool{m.consultTool(), result, control, say}
}

// consultTool returns the tool consult. It is never replayed, since a second run would
// cost again: a repeated call finds its job by the line's number.
func (m *Manager) consultTool() tool.Tool {
	t := request.Tool()
	t.Handle, t.Resume = m.consult, m.again
	return t
}
