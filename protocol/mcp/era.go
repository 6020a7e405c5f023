package mcp

import (
	"encoding/json"

	"holdline/protocol/jsonrpc"
)

// ModernResult returns a server's result of a request with the members that the
// modern era requires and a legacy server does not know. What was read from a legacy
// server must not be kept.
func ModernResult(method string, result json.RawMessage) json.RawMessage {
	if len(result) == 0 || result[0] != '{' {
		return result
	}
	kind := jsonrpc.Field(result, "resultType")
	if method == ResourcesRead && IsComplete(result) {
		if jsonrpc.Field(result, "cacheScope") == nil {
			result = jsonrpc.Prepend(result, `"cacheScope":"private"`)
		}
		if jsonrpc.Field(result, "ttlMs") == nil {
			result = jsonrpc.Prepend(result, `"ttlMs":0`)
		}
	}
	if kind == nil {
		result = jsonrpc.Prepend(result, `"resultType":"complete"`)
	}
	return result
}

// IsComplete reports whether a result, an object, is what was asked for: it does not ask the client
// for something first, and is no task.
func IsComplete(result json.RawMessage) bool {
	kind := jsonrpc.Field(result, "resultType")
	return kind == nil || string(kind) == `"complete"`
}

// ModernError returns a server's error with a code that the modern era has: it has
// none for a resource that does not exist, and none that sends the user to a page
// before the request is made again.
func ModernError(failure json.RawMessage) json.RawMessage {
	instead := map[string]string{"-32002": "-32602", "-32042": "-32603"}[string(jsonrpc.Field(failure, "code"))]
	if instead == "" {
		return failure
	}
	rewritten, err := jsonrpc.Replace(failure, "code", []byte(instead))
	if err != nil {
		return failure
	}
	return rewritten
}
