package direct

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/config/resolve"
	"holdline/daemon/dialect"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// TestToolIsHarmless_OnlyIfItReadsAndNeedsNothing checks which tools may be called to check a server.
func TestToolIsHarmless_OnlyIfItReadsAndNeedsNothing(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string]bool{
		`{"name":"t","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"}}`:                                   true,
		`{"name":"t","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","required":[]}}`:                     true,
		`{"name":"t","annotations":{"readOnlyHint":true}}`:                                                                   true,
		`{"name":"t","inputSchema":{"type":"object"}}`:                                                                       false,
		`{"name":"t","annotations":{"readOnlyHint":false},"inputSchema":{"type":"object"}}`:                                  false,
		`{"name":"t","annotations":{"readOnlyHint":true,"destructiveHint":true},"inputSchema":{"type":"object"}}`:            false,
		`{"name":"t","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","required":["a"]}}`:                  false,
		`{"name":"t","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","anyOf":[{"required":["a"]}]}}`:      false,
		`{"name":"t","annotations":{"readOnlyHint":true},"execution":{"taskSupport":"required"}}`:                            false,
		`{"name":"t","annotations":{"readOnlyHint":"yes"},"inputSchema":{"type":"object"}}`:                                  false,
		`{"name":"t","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","required":"a","additional":false}}`: false,
	} {
		if got := isHarmless(json.RawMessage(tool)); got != want {
			t.Errorf("%s: %v", tool, got)
		}
	}
}

// TestOutcomeOfCall_WhatTheToolSaysIsNoFaultOfTheEntry checks which answers to a call are the fault of the
// entry by which it was made.
func TestOutcomeOfCall_WhatTheToolSaysIsNoFaultOfTheEntry(t *testing.T) {
	t.Parallel()
	result := func(code fault.Code) json.RawMessage {
		return mcp.ToolFailure(fault.New(code, fault.Host, "x", "why"), "why")
	}
	refusal := func(text string) error {
		return &dialect.RefusalError{Method: mcp.ToolsCall, Raw: json.RawMessage(text)}
	}
	for name, x := range map[string]struct {
		result  json.RawMessage
		err     error
		outcome string
		failed  bool
	}{
		"an answer":            {json.RawMessage(`{"content":[]}`), nil, "answers", false},
		"isError":              {json.RawMessage(`{"content":[],"isError":true}`), nil, "answers that it failed", false},
		"isError with content": {json.RawMessage(`{"isError":true,"structuredContent":{"fault":"mine"}}`), nil, "answers that it failed", false},
		"a question":           {json.RawMessage(`{"resultType":"input_required"}`), nil, "asks for something first", false},
		"bad arguments":        {nil, refusal(`{"code":-32602,"message":"no a"}`), "answers with an error: no a", false},
		"an exception":         {nil, refusal(`{"code":-32603,"message":"boom"}`), "answers with an error: boom", false},
		"an error of its own":  {nil, refusal(`{"code":7,"message":"boom"}`), "answers with an error: boom", false},
		"no session":           {nil, refusal(`{"code":-32000,"message":"Server not initialized"}`), "fails: Server not initialized", true},
		"unknown method":       {nil, refusal(`{"code":-32601,"message":"what"}`), "fails: what", true},
		"a fault":              {result(fault.DownstreamFailure), nil, "fails: why", true},
		"unknown tool": {nil, refusal(`{"code":-32602,"message":"why","data":` +
			string(fault.New(fault.UnknownTool, fault.Host, "x", "why").JSON()) + `}`), "fails: why", true},
		"a login is needed": {result(fault.Unauthenticated), nil, "does not run: why", false},
		"a rule":            {result(fault.Denied), nil, "does not run: why", false},
	} {
		if outcome, failed := outcomeOf(x.result, x.err); outcome != x.outcome || failed != x.failed {
			t.Errorf("%s: %q, %v; want %q, %v", name, outcome, failed, x.outcome, x.failed)
		}
	}
}

// TestCallsTogether_TakeNoLongerThanTheirTime checks that calls which are made at the same time, or later,
// share their time, and that time without a call counts for nothing.
func TestCallsTogether_TakeNoLongerThanTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := NewCallTime(10 * time.Second)
		one, endOne := calls.begin()
		time.Sleep(4 * time.Second)
		two, endTwo := calls.begin()
		time.Sleep(time.Second)
		endOne()
		time.Sleep(time.Second)
		endTwo()
		time.Sleep(time.Hour)
		three, endThree := calls.begin()
		time.Sleep(three)
		endThree()
		four, endFour := calls.begin()
		endFour()
		if one != 10*time.Second || two != 6*time.Second || three != 4*time.Second || four != 0 {
			t.Errorf("the calls had %v, %v, %v and %v", one, two, three, four)
		}
	})
}

// recorder plays a server that writes what it reads into the file $0. $1 is the revision that it speaks.
const recorder = `while read -r line; do
	echo "$line" >>"$0"; id=${line#*\"id\":}; id=${id%%,*}
	case $1$line in
	2026*server/discover*) result='"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"' ;;
	2026*initialize* | *server/discover*)
		echo '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32601,"message":"no"}}'; continue ;;
	*'"initialize"'*) result='"protocolVersion":"'"$1"'","capabilities":{"tools":{}}' ;;
	*tools/list*) result='"tools":[{"name":"a"},{"name":"b","annotations":{"readOnlyHint":true}}],"resultType":"complete"' ;;
	*'"name":"b"'*) result='"content":[],"isError":true,"resultType":"complete"' ;;
	*) continue ;;
	esac
	echo '[{"jsonrpc":"2.0","id":'"$id"',"result":{'"$result"'}}]'
done`

// TestEntryIsTried_AsItsClientSpeaks checks that an entry gets what its client sends: server/discover first
// and then the older version, or initialize with the client's version; and calls in the era of the program.
// What a tool says of itself is no failure, nor is one that does not answer.
func TestEntryIsTried_AsItsClientSpeaks(t *testing.T) {
	t.Parallel()
	modern := Client{Era: "2026-07-28", Older: "2025-11-25"}
	for name, x := range map[string]struct {
		as      Client
		speaks  string
		call    string
		outcome string
		want    []string // in this order
		not     string
	}{
		"a modern client, a modern program": {
			modern, "2026-07-28", "b", "answers that it failed",
			[]string{"server/discover", "tools/list", "io.modelcontextprotocol/protocolVersion", "tools/call", "clientCapabilities"},
			`"initialize"`,
		},
		"a modern client, an old program": {
			modern, "2025-11-25", "b", "answers that it failed",
			[]string{"server/discover", `"protocolVersion":"2025-11-25"`, "notifications/initialized", "tools/list", "tools/call"},
			`tools/call","params":{"_meta"`,
		},
		"an old client": {
			Client{Era: "2025-06-18"},
			"2025-06-18", "b", "answers that it failed",
			[]string{`"protocolVersion":"2025-06-18"`, "notifications/initialized", "tools/list", "tools/call"},
			"server/discover",
		},
		"an unknown client": {
			Client{},
			"2025-11-25", "b", "answers that it failed",
			[]string{`"protocolVersion":"2025-11-25"`, "notifications/initialized", "tools/list"},
			"server/discover",
		},
		"a tool that does not answer": {
			Client{},
			"2025-11-25", "a", "has not answered within 0s",
			[]string{"tools/call", "notifications/cancelled"},
			"server/discover",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "read")
			p := resolve.Process{Command: "/bin/sh", Args: []string{"-c", recorder, file, x.speaks}}
			limit := time.Minute
			if x.call == "a" {
				limit = 100 * time.Millisecond
			}
			check := Check{As: x.as, Tools: []string{"a", "b"}, Calls: []string{"gone", x.call}, Time: NewCallTime(limit), leave: time.Minute}
			_, called, err := TryEntry(t.Context(), p, check)
			if err != nil || len(called) != 1 || called[0] != (Called{Tool: x.call, Outcome: x.outcome}) {
				t.Errorf("%+v, %v; want %s %s", called, err, x.call, x.outcome)
			}
			b, _ := os.ReadFile(file)
			rest := string(b)
			for _, want := range x.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("no %s in its place in\n%s", want, b)
				}
				rest = after
			}
			if strings.Contains(string(b), x.not) {
				t.Errorf("%s in\n%s", x.not, b)
			}
		})
	}
}

// TestTrialOfServerOfEachEra_ListsItsTools checks that a server that is tried is spoken to in its own era, as
// below the daemon: also one that ends at the question for the other one, and then is started again.
func TestTrialOfServerOfEachEra_ListsItsTools(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"2026-07-28": recorder, "2025-11-25": recorder, "2024-11-05": recorder,
		"2025-06-18": strings.Replace(recorder, "\tcase", "\tcase $line in *server/discover*) exit 1 ;; esac\n\tcase", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "read")
			p := resolve.Process{Command: "/bin/sh", Args: []string{"-c", script, file, name}}
			out, err := tryProcess(t.Context(), p, "", wanted{}, nil)
			if got := strings.Join(out.names, " "); err != nil || got != "a b" || out.harmless != "b" {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
}
