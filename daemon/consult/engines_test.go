package consult

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// TestEngines: a call names its program, or the configuration does; one that is
// missing is the fault of that call alone, and found once it is there.
func TestEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(p *fakeProcess) {
			prompt := <-p.in
			<-p.closed // it answers to what it has read to the end
			p.say("start", "answer "+strings.TrimPrefix(prompt, "prompt "))
			p.exit(0)
		})
		n := int64(0)
		ask := func(args map[string]any) (value, fault.Code) {
			t.Helper()
			n++
			args["prompt"] = "read to the end"
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n}, args)
			v, _ := res.Value.(value)
			return v, code(res, err)
		}
		w.codex.check = fault.New(fault.SpawnFailure, fault.Engine, operation, "no codex").WithReason(fault.NotInstalled)
		if _, c := ask(map[string]any{"engine": "codex"}); c != fault.SpawnFailure {
			t.Errorf("missing: %s", c)
		}
		w.codex.check = nil
		if v, c := ask(map[string]any{"engine": "codex"}); c != "" || v.Engine != Codex || v.Answer != "read to the end" {
			t.Errorf("codex: %s %+v", c, v)
		}
		if _, c := ask(map[string]any{"engine": "gpt"}); c != fault.InvalidInput {
			t.Errorf("another: %s", c)
		}
		set := DefaultSettings()
		set.Engine, set.Model = Codex, "gpt-9"
		w.Configure(set)
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

// TestEngineKept: a job is gone on with by the program that it was asked of.
func TestEngineKept(t *testing.T) {
	w := newWorld(t, func(*fakeProcess) {}, func(o *Options) { o.Settings.Engine = Claude })
	j := &job{dir: t.TempDir(), rec: record{ID: "0123456789ab", Engine: Codex, Request: engine.Request{Prompt: "x"}}, timeout: time.Minute}
	d := &driver{m: w.Manager, j: j}
	if err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if run, ok := d.run.(*fakeRun); !ok || !run.once {
		t.Errorf("driven as another program: %+v", d.run)
	}
	j.rec.Engine = "gpt"
	if err := d.start(t.Context()); err == nil {
		t.Error("a program of tomorrow was started")
	}
	w.starter.wg.Wait()
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStall: a program that retries for ever, and says nothing else, is asked
// for its best answer as at its deadline; one that goes on is left alone.
func TestStall(t *testing.T) {
	for name, tt := range map[string]struct {
		every string // line
		took  time.Duration
		text  string
	}{
		"quiet":    {"", 10 * time.Minute, "what I have"},
		"retrying": {"retry", 10 * time.Minute, "what I have"},
		"working":  {"tool Read", 20 * time.Minute, "what I have"}, // its deadline
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(p *fakeProcess) {
					<-p.in
					p.say("start")
					for {
						select {
						case <-time.After(7 * time.Minute):
							if tt.every != "" {
								p.say(tt.every)
							}
							continue
						case line := <-p.in:
							p.say(map[string]string{"interrupt": "aborted", "best": "answer what I have"}[line])
							continue
						case <-p.closed:
							p.exit(0)
						case <-p.term:
							p.killed()
						}
						return
					}
				})
				begin := time.Now()
				res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{"prompt": "x", "wait_s": 7200})
				if err != nil || res.Fault != nil || !strings.Contains(res.Text, tt.text) || !strings.Contains(res.Text, "best answer so far") {
					t.Errorf("%v %v %q", err, res.Fault, res.Text)
				}
				if took := time.Since(begin); took < tt.took || took > tt.took+time.Minute {
					t.Errorf("took %s", took)
				}
				w.finish()
			})
		})
	}
}

// TestStuck: a program that would ask its API for ever is ended at once.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(p *fakeProcess) {
			<-p.in
			p.say("start", "stuck")
			<-p.term
			p.killed()
		})
		begin := time.Now()
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{"prompt": "x"})
		if got := code(res, err); got != fault.ProcessFailure || time.Since(begin) > time.Second {
			t.Errorf("%s %v after %s", got, err, time.Since(begin))
		}
		w.finish()
	})
}

// TestSchema: an answer is of the form that was asked for, or a fault.
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
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{"prompt": "x", "schema": schema})
			if got := code(res, err); got != tt.code {
				t.Fatalf("%s %v %q", got, err, res.FaultText)
			}
			a, err := w.Show(ID("hash-a", 1))
			if err != nil || a.Text != "in words" || string(a.Structured) != map[bool]string{true: tt.structured}[tt.code == ""] {
				t.Errorf("kept %+v, %v", a, err)
			}
			if v, _ := res.Value.(value); tt.code == "" && string(v.Structured) != tt.structured {
				t.Errorf("value %+v", v)
			}
			if tt.code != "" && (res.Fault.Reason() != fault.BadOutput || !strings.Contains(res.FaultText, "in words")) {
				t.Errorf("%s %q", res.Fault.Reason(), res.FaultText)
			}
			req := w.engine.last()
			var sent map[string]any
			if err := json.Unmarshal(req.Schema, &sent); err != nil || sent["type"] != "object" {
				t.Errorf("sent %s: %v", req.Schema, err)
			}
			if filepath.Base(req.SchemaFile) != fileSchema || !strings.HasPrefix(req.SchemaFile, req.TempDir) {
				t.Errorf("file %s", req.SchemaFile)
			}
			if _, err := os.Stat(req.SchemaFile); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file is still there: %v", err)
			}
			w.finish()
		})
	}
	w := newWorld(t, answers(0))
	for name, schema := range map[string]any{
		"no schema": map[string]any{"type": "nothing", "properties": 7}, "too long": map[string]any{"description": strings.Repeat("x", maxSchema)},
	} {
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{"prompt": "x", "schema": schema})
		if got := code(res, err); got != fault.InvalidInput {
			t.Errorf("%s: %s %v", name, got, err)
		}
	}
	w.finish()
	late := engine.Outcome{Answer: "in words", Partial: true}
	if judge(&late, json.RawMessage(`{}`)); late.Fault == nil || late.Fault.Fault.Code != fault.Timeout || !late.Partial {
		t.Errorf("in time, without the form: %+v", late)
	}
}

// TestHeldNow: a consult whose program was replaced while it waited is held, and
// said to be held, by what there was when it began; also on disk, for a daemon
// that takes it up.
func TestHeldNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Minute), func(o *Options) { o.Settings.MaxConcurrent = 1 })
		for n := range int64(2) {
			if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n + 1}, map[string]any{"prompt": "x", "wait_s": 0}); err != nil {
				t.Fatal(err)
			}
		}
		w.engine.mu.Lock()
		w.engine.newer = true
		w.engine.mu.Unlock()
		time.Sleep(90 * time.Second) // the second one runs
		id := ID("hash-a", 2)
		if rec, err := readRecord(filepath.Join(w.dir, id)); err != nil || rec.EngineVersion != "1.2.4" || rec.EnforcedBy != engine.ByLandlock || rec.Attended {
			t.Errorf("%v, %+v", err, rec)
		}
		a, err := w.Wait(t.Context(), id, nil)
		if err != nil || a.EngineVersion != "1.2.4" || a.EnforcedBy != engine.ByLandlock {
			t.Errorf("%v, %+v", err, a)
		}
		w.finish()
	})
}

// TestWindow: how much of a subscription is used is in the answer, and known
// also to the next daemon, until it begins anew.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(p *fakeProcess) {
			<-p.in
			p.say("start", "window", "answer x")
			<-p.closed
			p.exit(0)
		})
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{"prompt": "x"})
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

// TestProgress: those who wait see the turn and what it has cost.
func TestProgress(t *testing.T) {
	j := &job{state: Running, note: "Read main.go", turn: 3}
	if note := j.look(); note != "Read main.go, turn 3" {
		t.Errorf("note %q", note)
	}
	j.cost = new(0.25)
	if note := j.look(); note != "Read main.go, turn 3, $0.2500 so far" {
		t.Errorf("note %q", note)
	}
}

// TestOnceAdopted: the daemon that told a program its prompt has died before it
// closed the program's input: the next one does, and tells it nothing.
func TestOnceAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(p *fakeProcess) {
			<-p.closed
			p.say("answer read to the end")
			p.exit(0)
		})
		dir := filepath.Join(w.dir, ID("s", 1))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		proc, err := w.starter.Start(t.Context(), dir, process.Spec{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		j := &job{
			dir: dir, adopted: true, created: time.Now(), timeout: time.Hour, deadline: time.Now().Add(time.Hour),
			stop: make(chan struct{}), done: make(chan struct{}),
		}
		d := &driver{m: w.Manager, j: j, run: &fakeRun{once: true, mute: true}, proc: proc}
		d.standing([]calls.Record{{Write: 1, Name: promptRecord}}, 1)
		begin := time.Now()
		d.follow(t.Context())
		d.release()
		out := d.outcome()
		if took := time.Since(begin); took > time.Second || out.Fault != nil || out.Answer != "read to the end" || len(w.starter.last().records) != 0 {
			t.Errorf("after %v: %+v, told %v", took, out, w.starter.last().records)
		}
		w.finish()
	})
}
