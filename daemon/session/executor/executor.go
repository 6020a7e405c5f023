// Package executor names what answers the calls of sessions and keeps records of them.
package executor

import (
	"context"

	"holdline/daemon/tool"
	"holdline/protocol/mcp"
)

// An Executor answers calls and keeps records of them: the hosted servers, and the
// consults. A session owns its calls: it alone knows which answers its client still
// waits for, and reports that to the executors. A session is named by its hash, a call by
// the number of the client's line. The methods must not block for long.
type Executor interface {
	// Recall returns the target that answers the call of line n, nil if it is not
	// known. method is that of the client's request. recorded reports whether the call
	// may have had an effect; it may be true although the target is not known.
	Recall(session string, n int64, method string) (t *tool.Remote, recorded bool)
	// Unread returns a channel that is closed once more is read of the records that may hold the
	// call of line n, of a server; nil if all of these are read. The server is "" for an own tool.
	Unread(server, project, session string, n int64) <-chan struct{}
	// Confirmed reports that the client holds the answer to line n, or has cancelled it.
	Confirmed(session string, n int64)
	// Resumed reports that the client is back, and which of its lines it waits for.
	// It waits for no other call that it made before.
	Resumed(session string, pending map[int64]struct{})
	// Closed reports that the session is over, and that its client waits for none of
	// its calls. agent is the client's key if this was its last session, else "".
	Closed(session, agent string)
}

// List has all executors.
type List []Executor

// Recall returns the target of the call that line n of a session began, a request of that method,
// from the first executor that has a record of the call and knows the target; nil if there is none.
func (l List) Recall(session string, n int64, method string) *tool.Remote {
	for _, e := range l {
		if t, _ := e.Recall(session, n, method); t != nil {
			return t
		}
	}
	return nil
}

// Unread returns a channel that is closed once more is read of the records that may hold the call of
// line n, of a server; nil if all of these are read.
func (l List) Unread(server, project, session string, n int64) <-chan struct{} {
	for _, e := range l {
		if unread := e.Unread(server, project, session, n); unread != nil {
			return unread
		}
	}
	return nil
}

// Await blocks until all is read that may hold a record of the call of line n, of a server, or until
// ctx is done. It reports whether it has waited.
func (l List) Await(ctx context.Context, server, project, session string, n int64) (waited bool) {
	for unread := l.Unread(server, project, session, n); unread != nil && ctx.Err() == nil; {
		waited = true
		select {
		case <-unread:
			unread = l.Unread(server, project, session, n)
		case <-ctx.Done():
		}
	}
	return waited
}

// Recorded reports whether an executor has a record that the call of line n may have had an
// effect.
func (l List) Recorded(session string, n int64) bool {
	for _, e := range l {
		if _, recorded := e.Recall(session, n, mcp.ToolsCall); recorded {
			return true
		}
	}
	return false
}

// Confirmed reports to all executors that the client holds the answer to line n, or has cancelled
// it: they may drop their records of the call.
func (l List) Confirmed(session string, n int64) {
	for _, e := range l {
		e.Confirmed(session, n)
	}
}

// Resumed reports to all executors that the client is back, and waits for the answers to the
// lines in pending, and to no other earlier ones.
func (l List) Resumed(session string, pending map[int64]struct{}) {
	for _, e := range l {
		e.Resumed(session, pending)
	}
}

// Closed reports to all executors that the session is over, and that its client waits for none of
// its calls. agent is the client's key if this was its last session, else "".
func (l List) Closed(session, agent string) {
	for _, e := range l {
		e.Closed(session, agent)
	}
}
