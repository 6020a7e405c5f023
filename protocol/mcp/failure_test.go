package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// TestFaultTextOfEveryCode checks that every code has advice, so that no model is left with
// a bare error.
func TestFaultTextOfEveryCode(t *testing.T) {
	for _, code := range fault.Codes() {
		got := mcp.FaultText(fault.New(code, fault.Host, "x", "d"), "")
		if !strings.HasPrefix(got, "d\n["+string(code)+"] ") || !strings.HasSuffix(got, ".") {
			t.Errorf("FaultText(%s) = %q", code, got)
		}
	}
	retry := fault.New(fault.ResourceExhausted, fault.Host, "x", "full")
	ms := int64(2400)
	retry.RetryAfterMS = &ms
	if got := mcp.FaultText(retry, ""); got != "full\n[resource_exhausted] Call again in 2s." {
		t.Errorf("FaultText = %q", got)
	}
}

// TestServerAnswersNothing_NoMoreTimeIsAdvised checks that the fault of a call that a server leaves
// without an answer, as a ping, does not advise more time.
func TestServerAnswersNothing_NoMoreTimeIsAdvised(t *testing.T) {
	f := fault.New(fault.Timeout, fault.Server, "x", "no answer").WithReason(fault.NotAnswering)
	if got := mcp.FaultText(f, ""); strings.Contains(got, "more time") || !strings.Contains(got, "servers restart") {
		t.Errorf("FaultText = %q", got)
	}
}

// TestOneShapeOfFaults checks that a failed tool call is a result with isError in both
// eras, whatever the fault, and that protocol errors, and faults of other requests, are
// JSON-RPC errors.
func TestOneShapeOfFaults(t *testing.T) {
	for _, code := range fault.Codes() {
		f := fault.New(code, fault.Server, "x",
			"it failed").WithCause(fault.Cause{StderrTail: []string{"Traceback", "", "KeyError: 'token'"}})
		for _, method := range []string{mcp.ToolsCall, mcp.ResourcesRead, mcp.ToolsList} {
			for _, modern := range []string{"", `"resultType":"complete"`} {
				line := mcp.AppendFault(nil, jsonrpc.IntID(7), method, modern, f)
				var x struct {
					ID     int
					Result *struct {
						ResultType        string
						Content           []struct{ Type, Text string }
						StructuredContent *fault.Record
						IsError           bool
					}
					Error *struct {
						Code    int
						Message string
						Data    *fault.Record
					}
				}
				if err := json.Unmarshal(line, &x); err != nil || x.ID != 7 {
					t.Fatalf("%s: %v", line, err)
				}
				call := method == mcp.ToolsCall && f.Fault.Class != fault.ClassProtocol
				switch {
				case call != (x.Result != nil), call == (x.Error != nil):
					t.Errorf("%s of %s: %s", code, method, line)
				case call &&
					(!x.Result.IsError || x.Result.StructuredContent.Fault.Code != code ||
						(x.Result.ResultType == "") != (modern == "") ||
						!strings.Contains(x.Result.Content[0].Text, "Traceback\nKeyError: 'token'")):
					t.Errorf("%s of %s: %s", code, method, line)
				case !call &&
					(x.Error.Code != f.JSONRPCCode || x.Error.Data.Fault.Code != code ||
						!strings.Contains(x.Error.Message, "KeyError: 'token'")):
					t.Errorf("%s of %s: %s", code, method, line)
				}
			}
		}
	}
}
