package session

import (
	"testing"

	"holdline/protocol/mcp"
)

// TestModernised: a legacy server's result gets what a modern client must find
// in it, and nothing that the server says itself is changed.
func TestModernised(t *testing.T) {
	for _, test := range []struct{ method, result, want string }{
		{mcp.ToolsCall, `{"content":[]}`, `{"resultType":"complete","content":[]}`},
		{mcp.ToolsCall, `{}`, `{"resultType":"complete"}`},
		{mcp.ToolsCall, `{"resultType":"task","x":1.0}`, `{"resultType":"task","x":1.0}`},
		{mcp.ToolsCall, `"odd"`, `"odd"`},
		{mcp.PromptsGet, `{"messages":[]}`, `{"resultType":"complete","messages":[]}`},
		{mcp.ResourcesRead, `{"contents":[]}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[]}`},
		{mcp.ResourcesRead, `{"ttlMs":5,"cacheScope":"public"}`, `{"resultType":"complete","ttlMs":5,"cacheScope":"public"}`},
		{mcp.ResourcesRead, `{"ttlMs":5}`, `{"resultType":"complete","cacheScope":"private","ttlMs":5}`},
		{mcp.ResourcesRead, `{"resultType":"input_required"}`, `{"resultType":"input_required"}`}, // is not kept
	} {
		if got := modernised(test.method, []byte(test.result)); string(got) != test.want {
			t.Errorf("%s %s: %s, want %s", test.method, test.result, got, test.want)
		}
	}
}

// TestModernError: codes that the modern era has not are replaced, and nothing
// else.
func TestModernError(t *testing.T) {
	for failure, want := range map[string]string{
		`{"code":-32002,"message":"none","data":{"uri":"x:y"}}`: `{"code":-32602,"message":"none","data":{"uri":"x:y"}}`,
		`{"message":"go there","code":-32042,"data":{"n":1.0}}`: `{"message":"go there","code":-32603,"data":{"n":1.0}}`,
		`{"code":-32601,"message":"-32002"}`:                    `{"code":-32601,"message":"-32002"}`,
		`{"code":7,"message":"own"}`:                            `{"code":7,"message":"own"}`,
	} {
		if got := modernError([]byte(failure)); string(got) != want {
			t.Errorf("%s: %s, want %s", failure, got, want)
		}
	}
}
