package daemon

import (
	"context"
	"time"

	"holdline/daemon/session"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// discover returns what hosted servers offer that a caller may use, and what is
// wrong with them.
func (l *life) discover(ctx context.Context, c tool.Caller, start bool) tool.Discovery {
	var d tool.Discovery
	for _, one := range l.servers.Discover(ctx, c, start) {
		d.Servers++
		if one.Fault != nil {
			d.Troubles = append(d.Troubles, tool.Trouble{Server: one.Server, Error: one.Fault.Fault.Detail})
		}
		for _, t := range one.Tools {
			d.Tools = append(d.Tools, tool.Candidate{Server: one.Server, Tool: t.Name, Exposed: t.Exposed, Listing: t.Listing})
		}
	}
	return d
}

// recorder lets sessions tell telemetry what happened.
type recorder struct{ r *telemetry.Recorder }

// Request counts a request.
func (t recorder) Request(method, server, toolName string, took time.Duration, replays int, f *fault.Record) {
	t.r.Request(telemetry.Operation{Method: method, Server: server, Tool: toolName}, took, replays, f)
}

// ToolCall logs a call of a tool.
func (t recorder) ToolCall(c session.ToolCall) {
	t.r.ToolCall(telemetry.Call{
		Session: c.Caller.Session, Number: c.Caller.Number, Identity: c.Caller.Identity, Client: c.Caller.Client,
		Project: c.Caller.Project, Root: c.Caller.Root, RequestID: c.RequestID, Tool: c.Tool, Server: c.Server,
		Cache:     c.Cache,
		Arguments: c.Arguments, Took: c.Took, Replays: c.Replays, Fault: c.Fault,
	})
}

// SessionEnded drops the counts of a session.
func (t recorder) SessionEnded(hash string) { t.r.SessionEnded(hash) }
