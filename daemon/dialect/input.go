package dialect

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"strings"

	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// StatePrefix begins the requestState with which a modern client continues a call
// of a legacy server that the daemon has suspended.
const StatePrefix = "holdline:1:"

// RetryOf returns the call that a request continues, as worker and write id; ok is
// false if it begins one. A write of 0 says that the state is not as it was given.
func RetryOf(rc *tool.RemoteCall) (worker string, write int64, ok bool) {
	if !rc.Modern {
		return "", 0, false
	}
	state, _ := mcp.String(jsonrpc.Field(rc.Params, "requestState"))
	rest, ok := strings.CutPrefix(state, StatePrefix)
	if !ok {
		return "", 0, false
	}
	worker, n, _ := strings.Cut(rest, ":")
	return worker, Number([]byte(n)), true
}

// IsRetry reports whether a request brings answers to what a server has asked for.
func IsRetry(params json.RawMessage) bool {
	return jsonrpc.Field(params, "requestState") != nil || jsonrpc.Field(params, "inputResponses") != nil
}

// AsksForInput reports whether the result of a modern server asks the client for
// something first.
func AsksForInput(result json.RawMessage) bool {
	return string(jsonrpc.Field(result, "resultType")) == `"input_required"`
}

// CapabilityFor returns the capability that a client needs to be asked by that
// method; "" if a modern client cannot be asked so.
func CapabilityFor(method string) string {
	switch method {
	case mcp.RootsList:
		return "roots"
	case "sampling/createMessage":
		return "sampling"
	case "elicitation/create":
		return "elicitation"
	}
	return ""
}

// Roots returns the result of roots/list for a client with one root.
func Roots(root string) json.RawMessage {
	type entry struct {
		URI  string `json:"uri"`
		Name string `json:"name"`
	}
	uri := url.URL{Scheme: "file", Path: root}
	b, err := json.Marshal(struct {
		Roots []entry `json:"roots"`
	}{[]entry{{uri.String(), filepath.Base(root)}}})
	if err != nil { // strings encode
		return json.RawMessage(`{"roots":[]}`)
	}
	return b
}
