package consult

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// TestEngines checks that a call or the configuration names the engine. A missing program
// fails only the calls that name it, and is found once it is installed.
func TestEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(p *fakeProcess) {
			prompt := <-p.in
			p.say("start", "answer "+strings.TrimPrefix(prompt, "prompt "))
			p.exit(0)
		})
		n := int64(0)
		ask := func(args map[string]any) (answer.View, fault.Code) {
			t.Helper()
			n++
			args["prompt"] = "read to the end"
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n}, args)
			v, _ := res.Value.(answer.View)
			return v, code(res, err)
		}
		w.codex.check = fault.New(fault.SpawnFailure, fault.Engine, operation,
			"no codex").WithReason(fault.NotInstalled)
		if _, c := ask(map[string]any{"engine": "codex"}); c != fault.SpawnFailure {
			t.Errorf("missing: %s", c)
		}
		w.codex.check = nil
		if v, c := ask(map[string]any{"engine": "codex"}); c != "" || v.Engine != Codex ||
			v.Answer != "read to the end" {
			t.Errorf("codex: %s %+v", c, v)
		}
		if _, c := ask(map[string]any{"engine": "gpt"}); c != fault.InvalidInput {
			t.Errorf("another: %s", c)
		}
		cfg := defaults()
		cfg.Consult.Engine, cfg.Consult.Model = Codex, "gpt-9"
		w.Configure(cfg)
		if v, c := ask(map[string]any{}); c != "" || v.Engine != Codex || w.codex.last().Model != "gpt-9" {
			t.Errorf("by the configuration: %s %+v", c, v)
		}
		if info, err := w.Check(t.Context(), "", nil); err != nil || info.Version == "" {
			t.Errorf("check: %+v %v", info, err)
		}
		if _, err := w.Check(t.Context(), "gpt", nil); err == nil {
			t.Error("a check of nothing")
		}
		w.finish()
	})
}

// TestEngineKept checks that a job is started with the engine in its record, whatever the
// configuration says now, and that an unknown engine is an error.
func TestEngineKept(t *testing.T) {
	w := newWorld(t, func(*fakeProcess) {}, func(o *Options) { o.Config.Consult.Engine = Claude })
	drive := func(name string) *Job {
		req := engine.Request{Prompt: "x"}
		j := w.newJob(jobdir.Record{ID: "0123456789ab", Engine: name, Request: req, TimeoutMS: 60_000})
		j.Dir = t.TempDir()
		w.queue.occupy(j)
		w.drive(j)
		return j
	}
	drive(Codex)
	if argv := w.starter.last().Argv; argv[len(argv)-1] != Codex {
		t.Errorf("started as another program: %q", argv)
	}
	if a := drive("gpt").answer; a.State != answer.Failed || len(w.starter.procs) != 1 {
		t.Errorf("a program of tomorrow was started: %+v", a)
	}
	w.starter.wg.Wait()
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSchema checks that an answer has the form that a schema asks for, or is a fault.
func TestSchema(t *testing.T) {
	schema := map[string]any{
		"type": "object", "required": []string{"verdict"},
		"properties": map[string]any{"verdict": map[string]any{"enum": []string{"good", "bad"}}},
	}
	for name, tt := range map[string]struct {
		structured string
		code       fault.Code
	}{
		"right":       {`{"verdict":"good"}`, ""},
		"wrong":       {`{"verdict":"so so"}`, fault.DownstreamFailure},
		"incomplete":  {`{}`, fault.DownstreamFailure},
		"without one": {"", fault.DownstreamFailure},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(p *fakeProcess) {
				<-p.in
				p.say("start", "structured "+tt.structured, "answer in words")
				<-p.closed
				p.exit(0)
			})
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
				map[string]any{"prompt": "x", "schema": schema})
			if got := code(res, err); got != tt.code {
				t.Fatalf("%s %v %q", got, err, res.FaultText)
			}
			a, err := w.Show(jobdir.ID("hash-a", 1))
			if err != nil || a.Text != "in words" ||
				string(a.Structured) != map[bool]string{true: tt.structured}[tt.code == ""] {
				t.Errorf("kept %+v, %v", a, err)
			}
			if v, _ := res.Value.(answer.View); tt.code == "" && string(v.Structured) != tt.structured {
				t.Errorf("value %+v", v)
			}
			if tt.code != "" &&
				(res.Fault.Reason() != fault.BadOutput || !strings.Contains(res.FaultText, "in words")) {
				t.Errorf("%s %q", res.Fault.Reason(), res.FaultText)
			}
			req := w.engine.last()
			var sent map[string]any
			if err := json.Unmarshal(req.Schema, &sent); err != nil || sent["type"] != "object" {
				t.Errorf("sent %s: %v", req.Schema, err)
			}
			w.finish()
		})
	}
	w := newWorld(t, answers(0))
	for name, schema := range map[string]any{
		"no schema": map[string]any{"type": "nothing", "properties": 7},
		"too long":  map[string]any{"description": strings.Repeat("x", 64<<10)},
	} {
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x", "schema": schema})
		if got := code(res, err); got != fault.InvalidInput {
			t.Errorf("%s: %s %v", name, got, err)
		}
	}
	w.finish()
}

// TestHeldNow replaces the program while a consult waits in the queue. The version and the
// enforcement that the consult reports are those of the new program; on disk, too, for a
// daemon that adopts it.
func TestHeldNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Minute), func(o *Options) { o.Config.Consult.MaxConcurrent = 1 })
		for n := range int64(2) {
			if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n + 1},
				map[string]any{"prompt": "x", "wait_s": 0}); err != nil {
				t.Fatal(err)
			}
		}
		w.engine.mu.Lock()
		w.engine.newer = true
		w.engine.mu.Unlock()
		time.Sleep(90 * time.Second) // the second one runs
		id := jobdir.ID("hash-a", 2)
		if rec, err := jobdir.ReadRecord(filepath.Join(w.dir, id)); err != nil || rec.EngineVersion != "1.2.4" ||
			rec.EnforcedBy != engine.ByLandlock || rec.Attended {
			t.Errorf("%v, %+v", err, rec)
		}
		a, err := w.Wait(t.Context(), id, nil)
		if err != nil || a.EngineVersion != "1.2.4" || a.EnforcedBy != engine.ByLandlock {
			t.Errorf("%v, %+v", err, a)
		}
		w.finish()
	})
}

// TestWindow checks that an answer says how much of the subscription's window is used, that
// the next daemon knows it, and that it is forgotten when the window resets.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(p *fakeProcess) {
			<-p.in
			p.say("start", "window", "answer x")
			<-p.closed
			p.exit(0)
		})
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x"})
		if err != nil || !strings.Contains(res.Text, "subscription window five_hour 80 % used, resets ") {
			t.Errorf("%v %q", err, res.Text)
		}
		w.finish()
		next, err := New(w.opt)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*Manager{w.Manager, next} {
			if got := m.Window(); got == nil || got.Used != 0.8 {
				t.Errorf("window %+v", got)
			}
		}
		time.Sleep(2 * time.Hour)
		if got := next.Window(); got != nil {
			t.Errorf("a window of before: %+v", got)
		}
		if err := next.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestProgress checks that waiting callers get the turn and the cost so far.
func TestProgress(t *testing.T) {
	j := &Job{m: &Manager{}, state: answer.Running, note: "Read main.go", turn: 3}
	if note := j.progressNote(); note != "Read main.go, turn 3" {
		t.Errorf("note %q", note)
	}
	j.cost = new(0.25)
	if note := j.progressNote(); note != "Read main.go, turn 3, $0.2500 so far" {
		t.Errorf("note %q", note)
	}
}
