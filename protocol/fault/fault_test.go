package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTable checks that the table of codes has all the promised values.
func TestTable(t *testing.T) {
	type row struct {
		class     Class
		directive string
		code      int
	}
	want := map[Code]row{
		ParseError: {"protocol", "abort_request", -32700}, InvalidRequest: {"protocol", "abort_request", -32600},
		UnknownMethod: {"protocol", "abort_request", -32601}, InvalidInput: {"protocol", "abort_request", -32602},
		UnknownTool: {"protocol", "abort_request", -32602}, NotInitialized: {"protocol", "abort_request", -32002},
		TransportFailure: {"transport", "restart_and_replay", -32603},
		ProcessFailure:   {"process", "restart_and_replay", -32603}, SpawnFailure: {"process", "abort_request", -32603},
		DownstreamFailure: {"downstream", "abort_request", -32603},
		Unauthenticated:   {"downstream", "abort_request", -32603}, Timeout: {"timeout", "abort_request", -32603},
		ResourceExhausted: {"resource", "retry_in_place", -32603}, OutcomeUnknown: {"replay", "abort_request", -32603},
		RolloutFailure: {"rollout", "retry_in_place", -32603}, Denied: {"policy", "abort_request", -32603},
		BudgetExceeded: {"policy", "abort_request", -32603}, Ejected: {"policy", "abort_request", -32603},
		IdentityRefused: {"policy", "abort_request", -32603}, CircuitOpen: {"policy", "retry_in_place", -32603},
		Cancelled: {"protocol", "abort_request", -32603}, InternalFailure: {"invariant", "abort_request", -32603},
	}
	if len(Codes()) != len(want) {
		t.Errorf("%d codes, want %d", len(Codes()), len(want))
	}
	for _, c := range Codes() {
		r := New(c, Host, "op", "why %d", 7)
		got := row{r.Fault.Class, r.Fault.Directive, r.JSONRPCCode}
		if got != want[c] {
			t.Errorf("%s: %+v, want %+v", c, got, want[c])
		}
		if r.Retryable != (r.Fault.Directive != "abort_request") {
			t.Errorf("%s: retryable %t with %s", c, r.Retryable, r.Fault.Directive)
		}
	}
}

// TestRecord checks the JSON of a fault, and that it is read as it was written.
func TestRecord(t *testing.T) {
	code, sig := 7, "SIGKILL"
	r := New(ProcessFailure, Worker, "tools/call:consult",
		"gone").WithCause(Cause{ExitCode: &code, Signal: &sig, StderrTail: []string{"x"}}).WithReason(Killed)
	want :=
		`{"fault":{"generation":0,"class":"process","code":"process_failure","directive":"restart_and_replay","detail":"gone"},` +
			`"stage":"Worker","operation":"tools/call:consult","jsonrpc_code":-32603,"retryable":true,"retried":false,` +
			`"cause":{"reason":"killed","exit_code":7,"signal":"SIGKILL","errno":null,"stderr_tail":["x"]}}`
	if got := string(r.JSON()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back Record
	if err := json.Unmarshal(r.JSON(), &back); err != nil || back.Reason() != Killed || !back.IsTransport() {
		t.Errorf("read again: %+v, %v", back, err)
	}
	if got := From(fmt.Errorf("wrapped: %w", r), Host, "other"); got != r {
		t.Errorf("From gives %+v, want the record in the chain", got)
	}
	if got := From(errors.New("x"), Host, "other"); got.Fault.Code != InternalFailure || got.Operation != "other" ||
		got.IsTransport() {
		t.Errorf("From of another error = %+v", got)
	}
}

// TestLongWords checks that foreign texts in a fault are cut.
func TestLongWords(t *testing.T) {
	word := strings.Repeat("é", 1<<20)
	f := New(UnknownMethod, Protocol, word, "unknown method %q", word)
	if n := len(f.Fault.Detail); n > maxDetail+4 || n < maxDetail/2 || !utf8.ValidString(f.Fault.Detail) {
		t.Errorf("the detail has %d bytes", n)
	}
	if n := len(f.Operation); n > maxOperation+4 || !utf8.ValidString(f.Operation) ||
		!strings.HasSuffix(f.Operation, "…") {
		t.Errorf("the operation has %d bytes", n)
	}
	if f := From(errors.New(word), Host, "x"); len(f.JSON()) > 2*maxDetail {
		t.Errorf("a record of %d bytes", len(f.JSON()))
	}
}

// TestLongRubbish checks that words are cut that have no beginning of a rune.
func TestLongRubbish(t *testing.T) {
	if r := New(InternalFailure, Host, "", "%s", strings.Repeat("\x80", maxDetail+1)); r.Fault.Detail != "…" {
		t.Errorf("the detail has %d bytes", len(r.Fault.Detail))
	}
}
