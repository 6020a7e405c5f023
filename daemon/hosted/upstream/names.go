package upstream

import (
	"cmp"
	"encoding/json"

	"holdline/daemon/dialect"
	"holdline/daemon/tool"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A server sees each call under the number of its write, as id and as progress
// token: what its clients call theirs may be equal. Tests break that, to see
// that they would notice.

// names are the id and the progress token of a call, as the server sees them.
type names struct{ id, token string }

// newNames returns the names of a call with that write number, or what the wrong
// implementation that a test asks for would send: the client's own ones.
func newNames(write int64, c *tool.RemoteCall) names {
	number := string(jsonrpc.IntID(write))
	n := names{number, number}
	if faultpoint.Broken("hosted.ids") {
		n.id = c.ID
	}
	if faultpoint.Broken("hosted.tokens") {
		n.token = cmp.Or(string(jsonrpc.Field(jsonrpc.Field(c.Params, "_meta"), mcp.MetaProgress)), number)
	}
	return n
}

// answeredLocked returns the call that an answer with that id is for, or nil.
func (u *Process) answeredLocked(id jsonrpc.ID) *Call {
	if faultpoint.Broken("hosted.ids") {
		return u.anyLocked(func(c *Call) bool { return c.names.id == string(id) })
	}
	return u.Calls[dialect.Number(id)]
}

// progressedLocked returns the call that has that progress token, or nil.
func (u *Process) progressedLocked(token json.RawMessage) *Call {
	if faultpoint.Broken("hosted.tokens") {
		return u.anyLocked(func(c *Call) bool { return c.names.token == string(token) })
	}
	return u.Calls[dialect.Number(token)]
}

// anyLocked returns a call for which so is true, or nil.
func (u *Process) anyLocked(so func(*Call) bool) *Call {
	for _, c := range u.Calls {
		if so(c) {
			return c
		}
	}
	return nil
}
