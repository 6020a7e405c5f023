package claude_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude"
	"holdline/protocol/fault"
)

// replay feeds the lines of a file to a run, and returns its events.
func replay(t *testing.T, run engine.Run, name string) []engine.Event {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var events []engine.Event
	for line := range bytes.Lines(data) {
		events = append(events, run.Line(bytes.TrimSuffix(line, []byte("\n")))...)
	}
	return events
}

func newRun(req engine.Request) engine.Run {
	return claude.New(claude.Options{}).NewRun(req, engine.Info{})
}

// TestOutcomeHoldsNoRun checks that an outcome, which is kept for long, does not keep its
// run alive, whose prompt may have megabytes.
func TestOutcomeHoldsNoRun(t *testing.T) {
	run := newRun(engine.Request{Prompt: "x"})
	replay(t, run, "success.jsonl")
	out := run.Outcome(engine.Exit{Known: true}, engine.Itself)
	alive := weak.Make(run.(*claude.Run))

	for range 10 {
		if runtime.GC(); alive.Value() == nil {
			break
		}
	}
	if alive.Value() != nil {
		t.Error("the outcome holds its run")
	}
	if out.CostUSD == nil {
		t.Error("the outcome has no cost")
	}
	runtime.KeepAlive(out.CostUSD)
}

// TestOutcomes checks the outcome of streams recorded from the real program.
func TestOutcomes(t *testing.T) {
	exited := func(code int) engine.Exit { return engine.Exit{Known: true, Code: code} }
	for _, tt := range []struct {
		file    string
		req     engine.Request
		exit    engine.Exit
		why     engine.Why
		code    fault.Code
		reason  fault.Reason
		answer  string
		partial bool
		cost    float64 // dollars; -1: unknown
	}{
		{file: "success.jsonl", answer: "FAKE-OK model=claude-opus-5-5 n=2 last=hi", cost: 0.0006},
		{file: "partial.jsonl", answer: "FAKE-OK model=claude-opus-5-5 n=2 last=hi", cost: 0.0006},
		{file: "recovered.jsonl", answer: "recovered", cost: 0.0006},
		{file: "fallback.jsonl", answer: "after fallback", cost: 0.0003},
		{file: "denied.jsonl", answer: "done", cost: 0.0012},
		{file: "rejected.jsonl", exit: exited(1), code: fault.Unauthenticated, reason: fault.Rejected},
		{file: "old-401.jsonl", exit: exited(1), code: fault.Unauthenticated, reason: fault.Rejected},
		{file: "logged-out.jsonl", exit: exited(1), code: fault.Unauthenticated, reason: fault.NotLoggedIn},
		{file: "old-logged-out.jsonl", exit: exited(1), code: fault.Unauthenticated, reason: fault.NotLoggedIn},
		{file: "error500.jsonl", exit: exited(1), code: fault.DownstreamFailure, reason: fault.Overloaded},
		{file: "overloaded.jsonl", exit: exited(1), code: fault.DownstreamFailure, reason: fault.Overloaded},
		{file: "rate-limited.jsonl", exit: exited(1), code: fault.DownstreamFailure, reason: fault.RateLimited},
		{file: "unreachable.jsonl", exit: exited(1), code: fault.DownstreamFailure, reason: fault.Unreachable},
		{file: "old-unreachable.jsonl", exit: exited(1), code: fault.DownstreamFailure, reason: fault.Unreachable},
		{file: "billing.jsonl", exit: exited(1), code: fault.DownstreamFailure, reason: fault.Rejected},
		{file: "prompt-too-long.jsonl", exit: exited(1), code: fault.DownstreamFailure, reason: fault.PromptTooLong},
		{file: "too-large.jsonl", exit: exited(1), code: fault.DownstreamFailure, reason: fault.PromptTooLong},
		{
			file: "old-refusal.jsonl", exit: exited(1), code: fault.DownstreamFailure, reason: fault.Refused,
			answer: "no", partial: true, cost: 0.00075,
		},
		{
			file: "max-turns.jsonl", exit: exited(1), code: fault.DownstreamFailure, reason: fault.MaxTurns,
			answer: "looking", partial: true, cost: 0.0006,
		},
		{file: "budget.jsonl", exit: exited(1), code: fault.BudgetExceeded, reason: fault.Budget, cost: 0.84},
		{file: "empty.jsonl", code: fault.DownstreamFailure, reason: fault.EmptyAnswer, cost: 0.0012},
		{file: "stream-error.jsonl", exit: exited(1), code: fault.DownstreamFailure, cost: 0.0012},
		{
			file: "no-session.jsonl", req: engine.Request{Session: "3d81f0a0-3c5f-4c12-93ea-17cf026df78c"},
			exit: exited(1),
			code: fault.InvalidInput,
		},
		// The run was interrupted and then gave its best answer.
		{
			file: "interrupted.jsonl", why: engine.Deadline, partial: true, cost: 0.0011,
			answer: "FAKE-OK model=claude-opus-5-5 n=4 last=Time is up. Without any tool call, give your best answer.",
		},
	} {
		t.Run(tt.file, func(t *testing.T) {
			run := newRun(tt.req)
			replay(t, run, tt.file)
			exit := tt.exit
			exit.Known = true
			out := run.Outcome(exit, tt.why)
			if tt.code == "" && out.Fault != nil {
				t.Fatalf("fault %v, want an answer", out.Fault)
			}
			if tt.code != "" &&
				(out.Fault == nil || out.Fault.Fault.Code != tt.code || out.Fault.Reason() != tt.reason) {
				t.Fatalf("fault %s, want code %s, reason %q", dump(out.Fault), tt.code, tt.reason)
			}
			if out.Answer != tt.answer || out.Partial != tt.partial {
				t.Errorf("answer %q (partial %t), want %q (partial %t)", out.Answer, out.Partial, tt.answer, tt.partial)
			}
			if out.CostUSD == nil || *out.CostUSD-tt.cost > 1e-9 || tt.cost-*out.CostUSD > 1e-9 {
				t.Errorf("cost %v, want %v", dump(out.CostUSD), tt.cost)
			}
			if (out.Session == "") != (tt.code == fault.InvalidInput) {
				t.Errorf("session %q", out.Session)
			}
			if out.Fault != nil && out.Fault.Fault.Detail == "" {
				t.Error("no detail")
			}
		})
	}
}

func dump(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestCutOff cuts the stream of a run at every line, as if the program had died there. The
// fault must fit how the process ended, and what was read before the cut must be kept.
func TestCutOff(t *testing.T) {
	data, err := os.ReadFile("testdata/max-turns.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	for n := range lines {
		run := newRun(engine.Request{})
		for _, l := range lines[:n] {
			run.Line(l)
		}
		engine.EndOutput(run, lines[n][:len(lines[n])/2])
		killed := run.Outcome(engine.Exit{Known: true, Signal: "SIGKILL"}, engine.Itself)
		if killed.Fault == nil || killed.Fault.Fault.Code != fault.ProcessFailure ||
			killed.Fault.Reason() != fault.Killed {
			t.Errorf("after %d lines: %s", n, dump(killed.Fault))
		}
		exited := run.Outcome(engine.Exit{Known: true, Code: 1}, engine.Itself)
		if exited.Fault == nil || exited.Fault.Reason() != fault.BadOutput {
			t.Errorf("after %d lines: %s", n, dump(exited.Fault))
		}
		if lost := run.Outcome(engine.Exit{}, engine.Itself); lost.Fault == nil ||
			lost.Fault.Fault.Code != fault.OutcomeUnknown {
			t.Errorf("after %d lines: %s", n, dump(lost.Fault))
		}
	}
	// Now the last line is complete and lacks only its newline.
	run := newRun(engine.Request{MaxTurns: 1})
	for _, l := range lines[:len(lines)-1] {
		run.Line(l)
	}
	engine.EndOutput(run, lines[len(lines)-1])
	if out := run.Outcome(engine.Exit{Known: true, Code: 1}, engine.Itself); out.Fault.Reason() != fault.MaxTurns ||
		out.Answer != "looking" {
		t.Errorf("whole last line: %s, %q", dump(out.Fault), out.Answer)
	}
}

// TestEndings checks the fault code and reason for each way in which a run can end without
// an answer.
func TestEndings(t *testing.T) {
	said := `{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"so far"}]}}`
	for _, tt := range []struct {
		name   string
		lines  []string
		exit   engine.Exit
		why    engine.Why
		code   fault.Code
		reason fault.Reason
	}{
		{
			"deadline",
			[]string{said},
			engine.Exit{Known: true, Signal: "SIGTERM"},
			engine.Deadline,
			fault.Timeout,
			fault.Deadline,
		},
		{
			"stalled",
			[]string{said},
			engine.Exit{Known: true, Signal: "SIGTERM"},
			engine.Stalled,
			fault.Timeout,
			fault.Deadline,
		},
		{
			"structure",
			[]string{
				said,
				`{"type":"result","subtype":"error_max_structured_output_retries","is_error":true,"terminal_reason":"structured_output_retry_exhausted"}`,
			},
			engine.Exit{Known: true, Code: 1},
			engine.Itself, fault.DownstreamFailure, fault.BadOutput,
		},
		{"cancelled", []string{said}, engine.Exit{Known: true, Code: 143}, engine.Cancelled, fault.Cancelled, ""},
		{
			"overflow",
			[]string{said},
			engine.Exit{Known: true, Signal: "SIGTERM"},
			engine.Overflow,
			fault.DownstreamFailure,
			fault.BadOutput,
		},
		{
			"own exit on SIGTERM",
			[]string{said},
			engine.Exit{Known: true, Code: 143},
			engine.Itself,
			fault.ProcessFailure,
			fault.Killed,
		},
		{
			"garbage",
			[]string{said, "what?"},
			engine.Exit{Known: true},
			engine.Itself,
			fault.DownstreamFailure,
			fault.BadOutput,
		},
		{"nothing", []string{said}, engine.Exit{Known: true}, engine.Itself, fault.DownstreamFailure, fault.BadOutput},
		{
			"no program",
			[]string{said},
			engine.Exit{Known: true, SpawnErrno: "ENOENT"},
			engine.Itself,
			fault.SpawnFailure,
			fault.NotInstalled,
		},
		{
			"bad format",
			[]string{said},
			engine.Exit{Known: true, SpawnErrno: "ENOEXEC"},
			engine.Itself,
			fault.SpawnFailure,
			"",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run := newRun(engine.Request{})
			for _, l := range tt.lines {
				run.Line([]byte(l))
			}
			out := run.Outcome(tt.exit, tt.why)
			if out.Fault == nil || out.Fault.Fault.Code != tt.code || out.Fault.Reason() != tt.reason {
				t.Errorf("fault %s, want %s, %q", dump(out.Fault), tt.code, tt.reason)
			}
			if out.Answer != "so far" || !out.Partial {
				t.Errorf("answer %q, partial %t", out.Answer, out.Partial)
			}
		})
	}
}

// TestRateLimit checks that a rejected request reports the subscription's window and when
// it resets.
func TestRateLimit(t *testing.T) {
	run := newRun(engine.Request{})
	reset := time.Now().Add(time.Hour).Unix()
	events := run.Line([]byte(`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","rateLimitType":"five_hour","resetsAt":` +
		dump(reset) + `,"utilization":1}}`))
	if len(events) != 1 || events[0].Kind != engine.Limit || !strings.Contains(events[0].Text, "five_hour") {
		t.Errorf("events %+v", events)
	}
	run.Line([]byte(`{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"no"}`))
	out := run.Outcome(engine.Exit{Known: true, Code: 1}, engine.Itself)
	if out.Fault.Reason() != fault.RateLimited || out.Fault.RetryAfterMS == nil ||
		*out.Fault.RetryAfterMS < (59*time.Minute).Milliseconds() {
		t.Errorf("fault %s", dump(out.Fault))
	}
	if !strings.Contains(string(out.RateLimit), "five_hour") {
		t.Errorf("rate limit %s", out.RateLimit)
	}
	want := engine.Window{Kind: "five_hour", Status: "rejected", Used: 1, ResetUnixMS: reset * 1000}
	if out.Window == nil || *out.Window != want || *events[0].Window != want {
		t.Errorf("window %+v", out.Window)
	}
}

// TestStructured checks that a structured answer is kept as written beside the text, and
// that an answer given after a deadline or a stall is marked as partial.
func TestStructured(t *testing.T) {
	run := newRun(engine.Request{Schema: json.RawMessage(`{}`)})
	run.Line([]byte(`{"type":"result","subtype":"success","result":"{}","structured_output":{"big":9007199254740993},"total_cost_usd":0.5}`))
	out := run.Outcome(engine.Exit{Known: true}, engine.Stalled)
	if out.Fault != nil || string(out.Structured) != `{"big":9007199254740993}` || !out.Partial {
		t.Errorf("%+v", out)
	}
}

// TestModels checks that models are ordered by how much they wrote, and that the cost is
// that of this run, not of the whole session.
func TestModels(t *testing.T) {
	run := newRun(engine.Request{})
	run.Line([]byte(`{"type":"result","subtype":"success","result":"x","total_cost_usd":7.5,"fast_mode_state":"off","uuid":"u-1",
		"modelUsage":{"a":{"outputTokens":1000,"costUSD":7},"b":{"outputTokens":9}},
		"model_usage_since_last_result":{"b":{"outputTokens":9,"inputTokens":3,"costUSD":0.5},"c":{"outputTokens":20,"costUSD":0.25}}}`))
	out := run.Outcome(engine.Exit{Known: true}, engine.Itself)
	if !slices.Equal(out.Models, []string{"c", "b"}) || *out.CostUSD != 0.75 || out.Usage.Output != 29 {
		t.Errorf("models %v, cost %v, usage %+v", out.Models, *out.CostUSD, out.Usage)
	}
	if got := string(out.ModelUsage); strings.Contains(got, `"a"`) || out.FastMode != "off" || out.UUID != "u-1" ||
		!strings.Contains(got, `"b":{"inputTokens":3,"outputTokens":9,`) || !strings.Contains(got, `"costUSD":0.25`) {
		t.Errorf("usage by model %s, fast mode %q, uuid %q", got, out.FastMode, out.UUID)
	}
	run.Line([]byte(`{"type":"result","subtype":"success","result":"x","model_usage_since_last_result":{"n":{"costBasis":"unknown"}}}`))
	if out := run.Outcome(engine.Exit{Known: true}, engine.Itself); out.CostUSD != nil {
		t.Errorf("cost %v of a model without a price", *out.CostUSD)
	}
}

// TestEvents checks which events the recorded streams yield.
func TestEvents(t *testing.T) {
	kinds := func(events []engine.Event) string {
		var b strings.Builder
		for _, e := range events {
			switch e.Kind {
			case engine.Started:
				b.WriteString("S")
			case engine.Text:
				b.WriteString("T")
			case engine.ToolUse:
				b.WriteString("U")
			case engine.Retry:
				b.WriteString("R")
			case engine.Fallback:
				b.WriteString("F")
			case engine.TurnDone:
				b.WriteString("D")
			case engine.Limit, engine.Waiting, engine.Noise, engine.Stuck, engine.Piece, engine.Heard,
				engine.Write:
			}
		}
		return b.String()
	}
	for file, want := range map[string]string{
		"success.jsonl": "STD", "fallback.jsonl": "SRRFRRTD", "denied.jsonl": "STUUTD",
		"rejected.jsonl": "SRRRRRRRRRRD", "interrupted.jsonl": "STDTD", "no-session.jsonl": "D",
	} {
		if got := kinds(replay(t, newRun(engine.Request{}), file)); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
	events := replay(t, newRun(engine.Request{}), "denied.jsonl")
	i := slices.IndexFunc(events,
		func(e engine.Event) bool { return e.Kind == engine.ToolUse && strings.HasPrefix(e.Text, "Read") })
	if i < 0 || events[i].Text != "Read /etc/passwd" {
		t.Errorf("no use of Read in %+v", events)
	}
}

// TestToolUse checks that a tool's event names the file relative to the run's directory,
// and that it counts messages of the model as turns, not lines.
func TestToolUse(t *testing.T) {
	run := newRun(engine.Request{Cwd: "/p"})
	use := func(id, path string) engine.Event {
		t.Helper()
		events := run.Line([]byte(`{"type":"assistant","message":{"id":"` + id +
			`","model":"m","content":[{"type":"tool_use","name":"Read","input":{"file_path":"` + path + `"}}]}}`))
		if len(events) != 1 || events[0].Kind != engine.ToolUse {
			t.Fatalf("events %+v", events)
		}
		return events[0]
	}
	for _, tt := range []struct {
		id, path, text string
		turn           int
	}{
		{"a", "/p/sub/main.go", "Read sub/main.go", 1}, {"a", "/p2/x", "Read /p2/x", 1}, {"b", "x", "Read x", 2},
	} {
		if e := use(tt.id, tt.path); e.Text != tt.text || e.Turn != tt.turn {
			t.Errorf("%+v, want %q in turn %d", e, tt.text, tt.turn)
		}
	}
}

// TestLive checks that Text includes text that is still being written.
func TestLive(t *testing.T) {
	run := newRun(engine.Request{})
	delta := func(s string) {
		run.Line([]byte(`{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":` + dump(s) + `}}}`))
	}
	run.Line([]byte(`{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"first"}]}}`))
	delta("sec")
	delta("ond")
	if got := run.Text(); got != "first\n\nsecond" {
		t.Errorf("text %q", got)
	}
	// A subagent's text does not belong to the answer.
	run.Line([]byte(`{"type":"assistant","parent_tool_use_id":"x","message":{"model":"m","content":[{"type":"text","text":"inner"}]}}`))
	run.Line([]byte(`{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"second!"}]}}`))
	if got := run.Text(); got != "first\n\nsecond!" {
		t.Errorf("text %q", got)
	}
}

// TestPrompt checks that a prompt is sent as one line of JSON, and that nothing in it works
// as a command or reads a file outside the directory.
func TestPrompt(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "hello", "hello"},
		{"slash", "/help", " /help"},
		{"dash", "-v --help", "-v --help"},
		{"bytes", "a\x00b\xffc", "a\uFFFDb\uFFFDc"},
		{"code", "if a < b && c > d {\n}", "if a < b && c > d {\n}"},
		{"separators", "a\u2028b", "a\u2028b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			line := newRun(engine.Request{Prompt: tt.in}).Begin()
			if bytes.Count(line, []byte("\n")) != 1 || !bytes.HasSuffix(line, []byte("\n")) {
				t.Fatalf("not one line: %q", line)
			}
			var m struct {
				Type    string `json:"type"`
				Message struct {
					Role    string `json:"role"`
					Content []struct {
						Text string `json:"text"`
					} `json:"content"`
				} `json:"message"`
			}
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatal(err)
			}
			if m.Type != "user" || m.Message.Role != "user" || m.Message.Content[0].Text != tt.want {
				t.Errorf("got %+v, want text %q", m, tt.want)
			}
		})
	}
	empty, strange := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(strange, "@notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := newRun(engine.Request{Prompt: "@@notes @@ x", Cwd: strange}).Begin(); !bytes.Contains(got,
		[]byte("@ @ notes @ @ x")) {
		t.Errorf("a mention of a name with an @ is sent: %s", got)
	}
	// A mention of any form is disarmed: the program would attach the file, and it may be a link.
	for in, want := range map[string]string{
		"@/etc/passwd": "@ /etc/passwd", "see @~/.ssh/id": "see @ ~/.ssh/id", "(@../x)": "(@ ../x)",
		"@a/../../x": "@ a/../../x", "@\"/a b\"": "@ \"/a b\"", "@/a@/b @/c": "@ /a@/b @ /c", "x@/y": "x@/y",
		"@notes": "@ notes", "see @notes#L1-3": "see @ notes#L1-3", "+@notes": "+@ notes", "@@ -1 +1 @@": "@@ -1 +1 @@",
		"`@x` @y @z": "`@ x` @ y @ z", "@@FAKE": "@@FAKE", "a@b.c/d": "a@b.c/d", "@@/x": "@@ /x", "@ /x": "@ /x", "é@/x": "é@/x",
		"\"@/x": "\"@ /x",
	} {
		var m struct {
			Message struct {
				Content []struct {
					Text string `json:"text"`
				} `json:"content"`
			} `json:"message"`
		}
		if err := json.Unmarshal(newRun(engine.Request{Prompt: in, Cwd: empty}).Begin(), &m); err != nil ||
			m.Message.Content[0].Text != want {
			t.Errorf("%s: %v %+v, want %s", in, err, m, want)
		}
	}
	run := newRun(engine.Request{})
	for _, line := range [][]byte{run.Interrupt(), run.BestAnswer()} {
		if !json.Valid(line) || !bytes.HasSuffix(line, []byte("\n")) {
			t.Errorf("line %q", line)
		}
	}
	// A structured answer is given by a tool call, so the request for the best answer must
	// not forbid that tool.
	for schema, want := range map[string]bool{"": false, `{"type":"object"}`: true} {
		line := newRun(engine.Request{Schema: json.RawMessage(schema)}).BestAnswer()
		if got := bytes.Contains(line, []byte("no tool but StructuredOutput")); got != want ||
			bytes.Contains(line, []byte("any tool")) == want {
			t.Errorf("schema %q: %s", schema, line)
		}
	}
}

// TestBounds checks that the text kept of a run is bounded, however much the model writes.
func TestBounds(t *testing.T) {
	run := newRun(engine.Request{})
	text := dump(strings.Repeat("y", 1<<20))
	for range 8 {
		run.Line([]byte(`{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":` + text + `}]}}`))
	}
	if n := len(run.Text()); n > 3<<20 {
		t.Errorf("%d bytes kept", n)
	}
}

func FuzzLine(f *testing.F) {
	for _, name := range []string{"success.jsonl", "denied.jsonl", "interrupted.jsonl", "fallback.jsonl"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		run := newRun(engine.Request{})
		run.Line(line)
		run.Line(line)
		engine.EndOutput(run, line)
		for _, why := range []engine.Why{engine.Itself, engine.Cancelled, engine.Deadline, engine.Overflow} {
			out := run.Outcome(engine.Exit{Known: true}, why)
			if out.Fault == nil && strings.TrimSpace(out.Answer) == "" {
				t.Error("neither an answer nor a fault")
			}
			if out.Fault != nil && !json.Valid(out.Fault.JSON()) {
				t.Error("fault does not encode")
			}
		}
	})
}
