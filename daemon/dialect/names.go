package dialect

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

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

// Names are the id and the progress token under which a server sees a call. They are made of
// the number of the call's write, since what its clients call theirs may be equal. Tests break
// that, to see that they would notice.
type Names [2]string

// Tokens makes the progress tokens that one process of a server sees, from its key. Who does not
// know the key cannot guess any: a client must not be able to have a server say something of the
// progress of another client's call.
type Tokens string

// Of returns the token of the call with that write number, a string of JSON.
func (t Tokens) Of(write int64) string {
	number := strconv.FormatInt(write, 10)
	mac := hmac.New(sha256.New, []byte(t))
	_, _ = mac.Write([]byte(number)) // a hash takes every write
	return `"` + number + "-" + hex.EncodeToString(mac.Sum(nil)[:16]) + `"`
}

// Write returns the write number of the call that has a token; 0 if none can have it.
func (t Tokens) Write(token []byte) int64 {
	text, _ := mcp.String(token)
	number, _, _ := strings.Cut(text, "-")
	write := Number([]byte(number))
	if own := t.Of(write); write <= 0 || !hmac.Equal([]byte(own), []byte(`"`+text+`"`)) {
		return 0
	}
	return write
}

// NewNames returns the names of a call with that write number, or what the wrong
// implementation that a test asks for would send: the client's own ones.
func NewNames(write int64, c *tool.RemoteCall, tokens Tokens) Names {
	number := string(jsonrpc.IntID(write))
	n := Names{ID: number}
	if c.Progress != nil {
		n[Token] = tokens.Of(write)
	}
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
