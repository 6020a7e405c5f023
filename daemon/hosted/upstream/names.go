package upstream

import (
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

// spelled has a client's own id and token of a call, where a test makes the daemon
// use them.
type spelled struct{ id, token string }

// naively returns what the wrong implementation that a test asks for would send: the
// client's own id and token. It is empty outside of such tests.
func naively(c *tool.RemoteCall) (s spelled) {
	if faultpoint.Broken("hosted.ids") {
		s.id = c.ID
	}
	if faultpoint.Broken("hosted.tokens") {
		s.token = string(jsonrpc.Field(jsonrpc.Field(c.Params, "_meta"), mcp.MetaProgress))
	}
	return s
}

// wireID returns the JSON-RPC id that the server sees for a call: the number of its
// write.
func wireID(write int64, c *tool.RemoteCall) jsonrpc.ID {
	if own := naively(c).id; own != "" {
		return jsonrpc.ID(own)
	}
	return jsonrpc.IntID(write)
}

// token returns the progress token that the server sees for a call.
func token(write int64, c *tool.RemoteCall) json.RawMessage {
	if own := naively(c).token; own != "" {
		return json.RawMessage(own)
	}
	return json.RawMessage(jsonrpc.IntID(write))
}

// answeredLocked returns the call that an answer with that id is for, or nil.
func (u *Process) answeredLocked(id jsonrpc.ID) *Call {
	if faultpoint.Broken("hosted.ids") {
		return u.anyLocked(func(c *Call) bool { return c.naive.id == string(id) })
	}
	return u.Calls[dialect.Number(id)]
}

// progressedLocked returns the call that has that progress token, or nil.
func (u *Process) progressedLocked(token json.RawMessage) *Call {
	if faultpoint.Broken("hosted.tokens") {
		return u.anyLocked(func(c *Call) bool { return c.naive.token == string(token) })
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
