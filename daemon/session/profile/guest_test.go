package profile

import (
	"encoding/json"
	"reflect"
	"testing"

	"holdline/protocol"
	"holdline/protocol/mcp"
)

// TestForGuest checks that what a guest can do for servers, and what it answers to them, does not
// pass, in whichever way it is written, and that all else does.
func TestForGuest(t *testing.T) {
	const capabilities = "io.modelcontextprotocol/clientCapabilities"
	for in, want := range map[string]string{
		`{"name":"x","arguments":{"inputResponses":1,"n":1.50}}`:  `{"name":"x","arguments":{"inputResponses":1,"n":1.50}}`,
		`{"inputResponses":{"r":{"roots":[{"uri":"file:///"}]}}}`: `{}`,
		`{"input\u0052esponses":{},"a":1}`:                        `{"a":1}`,
		`{"inputResponses":1,"inputResponses":2}`:                 `{}`,
		`{"_meta":{"` + capabilities + `":{"roots":{}},"b":2}}`:   `{"_meta":{"` + capabilities + `":{},"b":2}}`,
		`{"_meta":{"progressToken":7}}`:                           `{"_meta":{"progressToken":7}}`,
		`{"_meta": {"` + capabilities + `":{}}}`:                  `{"_meta":{"` + capabilities + `":{}}}`,
		`{"_meta":5}`:                                             `{"_meta":5}`,
		`[1]`:                                                     `[1]`,
	} {
		var got, expected any
		if err := json.Unmarshal(ForGuest(json.RawMessage(in)), &got); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if err := json.Unmarshal([]byte(want), &expected); err != nil {
			t.Fatal(err)
		}
		kept := string(ForGuest(json.RawMessage(in)))
		var before any
		_ = json.Unmarshal([]byte(in), &before)
		if !reflect.DeepEqual(got, expected) || reflect.DeepEqual(before, expected) && kept != in {
			t.Errorf("ForGuest(%s) = %s, want %s", in, kept, want)
		}
	}
	for _, twice := range []string{
		`{"a":1,"a":2,"inputResponses":{}}`, `{"_meta":{},"_meta":{"` + capabilities + `":{"roots":{}}}}`,
		`{"_meta":{"a":1,"a":2,"` + capabilities + `":{"roots":{}}}}`,
	} {
		if p, err := mcp.ParseParams(ForGuest(json.RawMessage(twice))); err == nil {
			t.Errorf("the params %s are taken as %+v", twice, p)
		}
	}
	if got := ForGuest(nil); got != nil {
		t.Errorf("without params: %s", got)
	}
	p := New("h", &protocol.Greeting{Identity: "box", Cwd: "/src"}, false, "box")
	if p.Caller.Root != "/src" || p.Caller.Guest != "box" || p.Caller.Agent != "socket box" {
		t.Errorf("the caller of a guest: %+v", p.Caller)
	}
}
