package mcp

import "testing"

// TestModernResult checks that a legacy server's result gets the members that a modern
// client needs, and that the server's own members stay unchanged.
func TestModernResult(t *testing.T) {
	for _, test := range []struct{ method, result, want string }{
		{ToolsCall, `{"content":[]}`, `{"resultType":"complete","content":[]}`},
		{ToolsCall, `{}`, `{"resultType":"complete"}`},
		{ToolsCall, `{"resultType":"task","x":1.0}`, `{"resultType":"task","x":1.0}`},
		{ToolsCall, `"odd"`, `"odd"`},
		{PromptsGet, `{"messages":[]}`, `{"resultType":"complete","messages":[]}`},
		{ResourcesRead, `{"contents":[]}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[]}`},
		{
			ResourcesRead,
			`{"ttlMs":5,"cacheScope":"public"}`,
			`{"resultType":"complete","ttlMs":5,"cacheScope":"public"}`,
		},
		{ResourcesRead, `{"ttlMs":5}`, `{"resultType":"complete","cacheScope":"private","ttlMs":5}`},
		// It is not cached, so it gets no lifetime.
		{ResourcesRead, `{"resultType":"input_required"}`, `{"resultType":"input_required"}`},
	} {
		if got := ModernResult(test.method, []byte(test.result)); string(got) != test.want {
			t.Errorf("%s %s: %s, want %s", test.method, test.result, got, test.want)
		}
	}
}

// TestModernError checks that codes that the modern era does not have are replaced, and all
// others kept.
func TestModernError(t *testing.T) {
	for failure, want := range map[string]string{
		`{"code":-32002,"message":"none","data":{"uri":"x:y"}}`: `{"code":-32602,"message":"none","data":{"uri":"x:y"}}`,
		`{"message":"go there","code":-32042,"data":{"n":1.0}}`: `{"message":"go there","code":-32603,"data":{"n":1.0}}`,
		`{"code":-32601,"message":"-32002"}`:                    `{"code":-32601,"message":"-32002"}`,
		`{"code":7,"message":"own"}`:                            `{"code":7,"message":"own"}`,
	} {
		if got := ModernError([]byte(failure)); string(got) != want {
			t.Errorf("%s: %s, want %s", failure, got, want)
		}
	}
}
