package answer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// record returns the record of a job.
func record() *jobdir.Record {
	return &jobdir.Record{
		ID: "0123456789ab", Session: "S", Identity: "a", Engine: "claude", EngineVersion: "1.2.3", Level: "shell",
		EnforcedBy: engine.BySandbox, CreatedUnixMS: 1000,
		Request: engine.Request{Prompt: "the prompt", Cwd: "/project", Model: "opus"},
	}
}

// TestFromOutcome checks that an answer says what the outcome says, and what the record
// says of the rest, and that it is the same when it is read from disk.
func TestFromOutcome(t *testing.T) {
	at := time.UnixMilli(5000)
	out := engine.Outcome{
		Answer: "text", Session: "its session", Models: []string{"opus-9"}, CostUSD: new(0.5), Turns: 3,
		DurationMS: 2000, Level: "read", EnforcedBy: engine.ByTools, Exit: "exit code 0", Structured: json.RawMessage(`{"a":1}`),
	}
	a := FromOutcome(record(), &out, at, "")
	if i := a.Info(); a.State != Done || a.Text != "text" || a.SessionID != "its session" || a.Level != "read" ||
		a.EnforcedBy != engine.ByTools || a.Cwd != "/project" || i.Model != "opus-9" || i.TookMS != 4000 ||
		i.Code != "" {
		t.Errorf("%+v", a)
	}
	dir := filepath.Join(t.TempDir(), a.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := a.Write(dir); err != nil {
		t.Fatal(err)
	}
	if read, err := Read(dir); err != nil || !reflect.DeepEqual(read, a) {
		t.Errorf("%v, read %+v, written %+v", err, read, a)
	}
	if _, err := Read(filepath.Join(dir, "none")); err == nil {
		t.Error("read an answer where there is none")
	}
	out = engine.Outcome{Fault: fault.New(fault.Cancelled, fault.Engine, engine.Operation, "cancelled")}
	if a := FromOutcome(record(), &out, at, "enough"); a.State != Cancelled || a.Why != "enough" ||
		a.Level != "shell" || a.Info().Model != "opus" {
		t.Errorf("cancelled: %+v", a)
	}
	out = engine.Outcome{Answer: strings.Repeat("ü", maxText)}
	if a := FromOutcome(record(), &out, at, ""); !a.Cut || len(a.Text) > maxText {
		t.Errorf("cut %t, %d bytes", a.Cut, len(a.Text))
	}
}

// TestResult checks what tools return of a consult in each state.
func TestResult(t *testing.T) {
	end := func(f *fault.Record) *Answer {
		return FromOutcome(record(), &engine.Outcome{Answer: "some text", Fault: f}, time.UnixMilli(5000), "enough")
	}
	failed := end(fault.New(fault.Timeout, fault.Engine, engine.Operation, "time was up"))
	cancelled := end(fault.New(fault.Cancelled, fault.Engine, engine.Operation, "cancelled"))
	running := New(record(), Running)
	running.Why, running.Text = "reading", "some text"
	for name, tt := range map[string]struct {
		res  tool.Result
		code fault.Code
		text string
	}{
		"done":            {end(nil).Result(0, tool.Concise), "", "some text\n\n[consult 0123456789ab"},
		"failed":          {failed.Result(0, tool.Concise), fault.Timeout, "some text"},
		"failed, page 2":  {failed.Result(5, tool.Concise), "", "text\n\n[consult"},
		"failed, ended":   {failed.Ending(0, tool.Concise), "", "had failed before: time was up"},
		"cancelled":       {cancelled.Result(0, tool.Concise), "", "was cancelled (enough). What there is"},
		"running":         {running.Pending(tool.Concise), "", "No answer yet: reading."},
		"beyond":          {end(nil).Result(100, tool.Concise), "", "offset 100 is beyond the end"},
		"list":            {List([]Info{failed.Info()}, tool.Full), "", "took 4.0 s, timeout, in /project"},
		"list of nothing": {List(nil, tool.Concise), "", "No consult is running or kept."},
	} {
		text, code := tt.res.Text, fault.Code("")
		if f := tt.res.Fault; f != nil {
			text, code = tt.res.FaultText, f.Fault.Code
		}
		if code != tt.code || !strings.Contains(text, tt.text) {
			t.Errorf("%s: %s, %q", name, code, text)
		}
	}
}

// TestView checks which fields render=json shows, with each detail.
func TestView(t *testing.T) {
	rec := record()
	rec.AskedBytes = len(rec.Request.Prompt)
	rec.Request.Prompt += "\n\n<diff>"
	rec.Request.MaxTurns = 7
	a := FromOutcome(rec, &engine.Outcome{
		Answer: "text", CostUSD: new(0.5), Models: []string{"opus-9", "haiku-9"}, Session: "s", Stop: "end_turn",
		Denials:    []engine.Denial{{Tool: "Write"}},
		ModelUsage: json.RawMessage(`{"opus-9":{}}`), FastMode: "off", UUID: "u",
	}, time.UnixMilli(5000), "")
	concise := []string{
		"answer", "answer_length", "consult_id", "cost_usd", "cwd", "duration_ms", "enforced_by", "engine", "level",
		"model", "models", "num_turns", "partial", "permission_denial_count", "response", "session_id", "state",
		"stop_reason", "total_cost_usd",
	}
	for d, want := range map[tool.Detail][]string{
		tool.Concise: concise,
		tool.Full: append([]string{
			"created_unix_ms", "duration_api_ms", "ended_unix_ms", "engine_version", "fast_mode_state", "max_turns",
			"model_usage", "permission_denials", "prompt", "queued_ms", "requested_model", "usage", "uuid",
		}, concise...),
	} {
		b, err := json.Marshal(a.View(d))
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(b, &got); err != nil || len(got) != len(want) {
			t.Errorf("%v: %v, %s", d, err, b)
		}
		for _, name := range want {
			if _, there := got[name]; !there {
				t.Errorf("%v: no %s in %s", d, name, b)
			}
		}
		is := map[string]any{
			"response": "text", "model": "opus-9", "total_cost_usd": 0.5, "cwd": "/project", "prompt": "the prompt",
			"max_turns": 7.0, "requested_model": "opus", "fast_mode_state": "off", "uuid": "u",
		}
		for name, value := range is {
			if got[name] != value && got[name] != nil { // the loop above misses those that are not there
				t.Errorf("%v: %s is %v, want %v", d, name, got[name], value)
			}
		}
	}
}

// TestAuditLine checks that an audit line names the command line in part, and holds
// neither prompt nor answer.
func TestAuditLine(t *testing.T) {
	a := FromOutcome(record(), &engine.Outcome{Answer: "secret text"}, time.UnixMilli(5000), "")
	line := a.Audit(record(), []string{"a", strings.Repeat("x", 1000)})
	if len(line.Argv) != 2 || len(line.Argv[1]) > 300 {
		t.Errorf("a long command line: %d", len(line.Argv[1]))
	}
	b, err := json.Marshal(line)
	if err != nil || strings.Contains(string(b), "secret") || strings.Contains(string(b), "the prompt") ||
		line.PromptBytes != len("the prompt") {
		t.Errorf("%v %s", err, b)
	}
}
