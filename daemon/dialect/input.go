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

// RetryOf returns the call that a request continues, by its worker and its write id. ok is
// false if the request begins a call. A write of 0 says that the request's state is not one
// that a daemon has made.
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

// IsRetry reports whether a request has answers to what a server has asked for.
func IsRetry(params json.RawMessage) bool {
	return jsonrpc.Field(params, "requestState") != nil || jsonrpc.Field(params, "inputResponses") != nil
}

// AsksForInput reports whether the result of a modern server asks the client for
// something first.
func AsksForInput(result json.RawMessage) bool {
	return string(jsonrpc.Field(result, "resultType")) == inputRequired
}

// inputRequired is the resultType of such a result.
const inputRequired = `"input_required"`

// CapabilityFor returns the capability that a client must have for requests of that method,
// or "" if a modern client takes no such requests.
func CapabilityFor(method string) string {
	switch method {
	case mcp.RootsList:
		return "roots"
	case "sampling/createMessage":
		return "sampling"
	case elicitation:
		return "elicitation"
	}
	return ""
}

// Knows reports whether clients of a legacy revision of MCP can be sent requests of that method. A
// method that is none of MCP is for client and server to agree on.
func Knows(revision, method string) bool {
	return method != elicitation || revision == "" || revision >= "2025-06-18"
}

// elicitation is the method by which a server asks the client's user.
const elicitation = "elicitation/create"

// OwnAnswer returns the daemon's answer to a request of a server, whose process serves one
// session or the project with that root. It returns nil if the session's client is to
// answer. overreaches says that the request is refused, since no client can answer it.
func OwnAnswer(method string, id jsonrpc.ID, session, root string) (line []byte, overreaches bool) {
	switch {
	case method == mcp.Ping:
		return jsonrpc.AppendResult(nil, id, json.RawMessage(`{}`)), false
	case method == mcp.RootsList && session == "" && root != "":
		return jsonrpc.AppendResult(nil, id, Roots(root)), false
	case session == "":
		return jsonrpc.AppendError(nil, id, jsonrpc.CodeUnknownMethod,
			method+" is for servers of scope \"session\", each of which has one client", nil), true
	}
	return nil, false
}

// OwnCapabilities returns what the daemon declares for itself to a server, where no client's
// capabilities count: that it answers roots/list, if the process serves one project.
func OwnCapabilities(ofProject bool) json.RawMessage {
	if ofProject {
		return json.RawMessage(`{"roots":{"listChanged":false}}`)
	}
	return json.RawMessage(`{}`)
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
