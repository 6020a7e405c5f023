package profile

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// TestResultForGuest_OnlyWhatIsCompletePasses checks that no result reaches a guest that asks it for
// something or is a task, in whichever way it is kept, that what may have had its effect is said to be
// so, and that all else passes.
func TestResultForGuest_OnlyWhatIsCompletePasses(t *testing.T) {
	for result, passes := range map[string]bool{
		`{"content":[]}`: true, `{"resultType":"complete","a":1.0}`: true, ``: true,
		`{"resultType":"input_required","inputRequests":{"p":{"method":"elicitation/create"}}}`: false,
		`{"content":[],"resultType":"task","taskId":"made up"}`:                                 false,
		`{"resultType":"input\u005frequired"}`:                                                  false, `{"resultType":7}`: false,
	} {
		for _, contract := range []tool.Contract{tool.Convergent, tool.NeverReplay} {
			to := &tool.Remote{Server: "s", Contract: contract}
			acted := func(err error) bool {
				f, ok := errors.AsType[*fault.Record](err)
				return ok && f.MayHaveActed == (contract == tool.NeverReplay) && f.Fault.Code == fault.DownstreamFailure
			}
			res, err := ResultForGuest(to, "tools/call:t", tool.RemoteResult{Result: json.RawMessage(result)})
			if passes && (err != nil || string(res.Result) != result) || !passes && (!acted(err) || res.Result != nil) {
				t.Errorf("%s: %s, %v", result, res.Result, err)
			}
			res, err = ResultForGuest(to, "tools/call:t", tool.RemoteResult{
				File: &bulk.File{}, Load: func() (json.RawMessage, json.RawMessage, error) { return json.RawMessage(result), nil, nil },
			})
			if err != nil || res.File != nil {
				t.Fatalf("a result in a file: %+v, %v", res, err)
			}
			got, _, err := res.Load()
			if passes && (err != nil || string(got) != result) || !passes && (!acted(err) || got != nil) {
				t.Errorf("%s, from a file: %s, %v", result, got, err)
			}
		}
	}
}

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
