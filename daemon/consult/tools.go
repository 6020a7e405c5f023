package consult

import (
	"holdline/daemon/consult/request"
	"holdline/daemon/tool"
)

// Tools returns the tools of this package: consult, consult_result and consult_control.
func (m *Manager) Tools() []tool.Tool {
	result, control := request.ResultTool(), request.ControlTool()
	result.Handle = request.Named(result.Name, m.consultResult)
	control.Handle = request.Named(control.Name, m.consultControl)
	return []tool.Tool{m.consultTool(), result, control}
}

// consultTool returns the tool consult. It is never replayed, since a second run would
// cost again: a repeated call finds its job by the line's number.
func (m *Manager) consultTool() tool.Tool {
	t := request.Tool()
	t.Handle, t.Resume = m.consult, m.again
	return t
}
