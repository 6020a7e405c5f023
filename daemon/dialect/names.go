package dialect

import (
	"cmp"

	"holdline/daemon/tool"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Name says which of the names of a call is meant, of those that its server sees.
type Name int8

// The names.
const (
	ID Name = iota
	Token
)

// Names are the id and the progress token under which a server sees a call. They are the
// number of the call's write, since what its clients call theirs may be equal. Tests break
// that, to see that they would notice.
type Names [2]string

// NewNames returns the names of a call with that write number, or what the wrong
// implementation that a test asks for would send: the client's own ones.
func NewNames(write int64, c *tool.RemoteCall) Names {
	number := string(jsonrpc.IntID(write))
	n := Names{number, number}
	if ID.IsBroken() {
		n[ID] = c.ID
	}
	if Token.IsBroken() {
		n[Token] = cmp.Or(string(jsonrpc.Field(jsonrpc.Field(c.Params, "_meta"), mcp.MetaProgress)), number)
	}
	return n
}

// IsBroken reports whether a test asks for the wrong implementation, in which servers see
// the client's own name of a call. A call cannot be found by its write number then.
func (n Name) IsBroken() bool {
	return faultpoint.Broken([...]string{ID: "hosted.ids", Token: "hosted.tokens"}[n])
}
