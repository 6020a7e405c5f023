package mcp

import "holdline/protocol/jsonrpc"

// Tasks names the extension with which a modern client takes a task in place of an answer: the
// call goes on, and the client asks for the task.
const Tasks = "io.modelcontextprotocol/tasks"

// Methods of the extension.
const (
	TasksGet    = "tasks/get"
	TasksUpdate = "tasks/update"
	TasksCancel = "tasks/cancel"
	TasksNote   = "notifications/tasks"
)

// TakesTasks reports whether a request with this _meta declares the extension. The request must
// be of the modern era.
func (m *Meta) TakesTasks() bool {
	declared := jsonrpc.Field(jsonrpc.Field(m.Capabilities, "extensions"), Tasks)
	return len(declared) > 0 && declared[0] == '{'
}
