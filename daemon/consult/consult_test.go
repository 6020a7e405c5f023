package consult

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/hosted/private"
	"holdline/daemon/program"
	"holdline/daemon/tool"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// TestAnswer checks one consult from its call to the result: text, value, progress, record
// and spec. The same line asked again gets the same job.
func TestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(20*time.Second))
		var progress []float64
		var notes []string
		res, err := w.call(t.Context(), "consult", tool.Call{
			Caller: w.caller("a"), N: 7,
			Progress: func(p, _ float64, note string) { progress, notes = append(progress, p), append(notes, note) },
		}, map[string]any{"prompt": "forty-two"})
		if err != nil || res.Fault != nil {
			t.Fatalf("%v %v", err, res.Fault)
		}
		id := jobdir.ID("hash-a", 7)
		for _, want := range []string{
			"forty-two\n\n[consult " + id, "session S", "$0.5000", "level read enforced by tools",
		} {
			if !strings.Contains(res.Text, want) {
				t.Errorf("no %q in %q", want, res.Text)
			}
		}
		if v, ok := res.Value.(answer.View); !ok || v.Answer != "forty-two" || v.ID != id || v.State != answer.Done ||
			v.Partial || *v.CostUSD != 0.5 {
			t.Errorf("value %+v", res.Value)
		}
		if !slices.IsSorted(progress) || len(progress) < 2 ||
			len(slices.Compact(slices.Clone(progress))) != len(progress) || len(progress) > 4 {
			t.Errorf("progress %v %q", progress, notes)
		}
		p := w.starter.last()
		if p.Record.N != 7 || p.Record.Session != "hash-a" || p.Record.Contract != "never_replay" {
			t.Errorf("record %+v", p.Record)
		}
		if p.Limit < w.config.Load().Consult.Timeout {
			t.Errorf("it is ended after %s", p.Limit)
		}
		// The same line again means the same job, even if its arguments differ now.
		again, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 7},
			map[string]any{"prompt": "forty-two"})
		if err != nil || again.Text != res.Text || len(w.starter.procs) != 1 {
			t.Errorf("again: %v %q, %d started", err, again.Text, len(w.starter.procs))
		}
		for name, mode := range map[string]os.FileMode{"": 0o700, "job.json": 0o600, "answer.json": 0o600} {
			if info, err := os.Stat(filepath.Join(w.dir, id, name)); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v %v", name, info, err)
			}
		}
		w.finish()
	})
}

// TestHeartbeat checks that progress arrives also for a program that writes nothing.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(95*time.Second))
		var at []time.Duration
		begin := time.Now()
		_, err := w.call(t.Context(), "consult",
			tool.Call{Caller: w.caller("a"), N: 1, Progress: func(p, _ float64, _ string) {
				at = append(at, time.Since(begin))
			}}, map[string]any{"prompt": "x"})
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(at); i++ {
			if d := at[i] - at[i-1]; d > 16*time.Second || d < time.Second {
				t.Errorf("%s between two notices", d)
			}
		}
		if len(at) < 6 {
			t.Errorf("told %d times", len(at))
		}
		w.finish()
	})
}

// TestBackground checks that when the wait of a call ends the job continues, and that its
// answer can be fetched.
func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(p *fakeProcess) {
			<-p.in
			p.say("start", "text first thoughts")
			p.in <- "prompt late"
			answers(3 * time.Minute)(p)
		})
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		res, err := w.call(ctx, "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{"prompt": "x"})
		if err != nil || res.Fault != nil || time.Since(begin) != 100*time.Second {
			t.Fatalf("%v %v after %s", err, res.Fault, time.Since(begin))
		}
		id := jobdir.ID("hash-a", 1)
		if !strings.Contains(res.Text, "first thoughts") || !strings.Contains(res.Text, id) {
			t.Errorf("text %q", res.Text)
		}
		if v, ok := res.Value.(answer.View); !ok || v.State != answer.Running || v.Answer != "first thoughts" {
			t.Errorf("value %+v", res.Value)
		}
		cancel() // the session ends; a background job does not
		res, err = w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("a")},
			map[string]any{"consult_id": id, "wait_s": 0, "detail": "full"})
		if v, ok := res.Value.(answer.View); err != nil || !ok || v.Details == nil || len(v.Steps) != 2 ||
			!strings.Contains(res.Text, "What it did last:\n"+strings.Join(v.Steps, "\n")) ||
			!strings.HasSuffix(v.Steps[1], " M is thinking") {
			t.Errorf("in full: %v, %q", err, res.Text)
		}

		if res, err := w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("b")},
			map[string]any{"consult_id": id}); code(res, err) != fault.InvalidInput {
			t.Errorf("another identity's: %v %q", err, res.Text)
		}
		// The end of a wait does not end the job.
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		if _, err := w.call(ctx, "consult_result", tool.Call{Caller: w.caller("a")},
			map[string]any{"consult_id": id}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cancelled wait: %v", err)
		}
		cancel()
		res, err = w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("a")}, map[string]any{})
		if err != nil || !strings.HasPrefix(res.Text, id+" running") {
			t.Errorf("list: %v %q", err, res.Text)
		}
		res, err = w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("a")},
			map[string]any{"consult_id": id, "wait_s": 200})
		if err != nil || !strings.HasPrefix(res.Text, "late\n") {
			t.Errorf("result: %v %q", err, res.Text)
		}
		if r, q, k := w.Counts(); r != 0 || q != 0 || k != 1 {
			t.Errorf("counts %d %d %d", r, q, k)
		}
		w.finish()
	})
}

// TestHandOutUnwritten checks that a caller gets the id of its background consult even if
// that fact cannot be written to disk, is told so, and that the write is repeated later.
func TestHandOutUnwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(p *fakeProcess) {
			<-p.in
			p.say("start")
			<-p.term
			p.killed()
		})
		id := jobdir.ID("hash-a", 1)
		file := filepath.Join(w.opt.Dir, id, jobdir.FileJob)
		attended := func() bool {
			t.Helper()
			rec, err := jobdir.ReadRecord(filepath.Dir(file))
			if err != nil {
				t.Fatal(err)
			}
			return rec.Attended
		}
		was := make(chan []byte, 1)
		// A rename cannot replace a directory that is not empty.
		time.AfterFunc(50*time.Second, func() {
			b, err := os.ReadFile(file)
			if was <- b; err == nil {
				err = errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "full"), 0o700))
			}
			if err != nil {
				t.Error(err)
			}
		})
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x"})
		if err != nil || !strings.Contains(res.Text, `consult_result {"consult_id":"`+id+`"}`) ||
			!strings.Contains(res.Text, "cannot be written down") {
			t.Errorf("%v, %q", err, res.Text)
		}
		if r, _, _ := w.Counts(); r != 1 {
			t.Errorf("%d run", r)
		}
		if err := errors.Join(os.RemoveAll(file), os.WriteFile(file, <-was, 0o600)); err != nil || !attended() {
			t.Fatalf("%v, attended %t", err, attended())
		}
		res, err = w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("a")},
			map[string]any{"consult_id": id, "wait_s": 1})
		if err != nil || strings.Contains(res.Text, "cannot be written down") || attended() {
			t.Errorf("%v, %q, attended %t", err, res.Text, attended())
		}
		if _, err := w.Cancel(t.Context(), id); err != nil {
			t.Error(err)
		}
		w.finish()
	})
}

// TestCancelledAtStart checks that a consult that is cancelled while its program starts
// never sends the prompt.
func TestCancelledAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		var told []string
		w = newWorld(t, func(p *fakeProcess) {
			for {
				select {
				case line := <-p.in:
					told = append(told, line)
				case <-p.term:
					p.killed()
					return
				}
			}
		}, func(o *Options) {
			o.Host = late{o.Host, func(id string) {
				if j, _, err := w.find(t.Context(), nil, id); err == nil {
					j.end("enough")
				}
			}}
		})
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x"})
		if err != nil || !strings.Contains(res.Text, "was cancelled (enough)") {
			t.Errorf("%v, %s, %q", err, dump(res.Fault), res.Text)
		}
		w.finish()
		if len(told) != 0 {
			t.Errorf("it was told %q", told)
		}
	})
}

// late calls after behind the composition of each call.
type late struct {
	Host
	after func(id string)
}

// Call makes a call: see [Host].
func (l late) Call(ctx context.Context, c *private.Call, settle func(private.End)) {
	compose := c.Compose
	c.Compose = func(ctx context.Context) (any, []string, error) {
		defer l.after(filepath.Base(c.Dir))
		return compose(ctx)
	}
	l.Host.Call(ctx, c, settle)
}

// hangs returns a program that says something and then nothing. If heeds is true, it ends
// when it is cancelled.
func hangs(heeds bool) func(*fakeProcess) {
	return func(p *fakeProcess) {
		<-p.in
		p.say("start", "text so far")
		for {
			select {
			case <-p.in:
				if heeds {
					p.cancelled()
					return
				}
			case <-p.term:
				p.killed()
				return
			}
		}
	}
}

// TestCancel checks that the end of an attended call ends its job, and that the text so far
// is kept.
func TestCancel(t *testing.T) {
	for name, heeds := range map[string]bool{"heeds": true, "deaf": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, hangs(heeds))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				begin := time.Now()
				_, err := w.call(ctx, "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{"prompt": "x"})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("err %v", err)
				}
				a, err := w.Wait(t.Context(), jobdir.ID("hash-a", 1), nil)
				if err != nil || a.State != answer.Cancelled || a.Text != "so far" || !a.Partial || a.SessionID != "S" {
					t.Fatalf("%v %+v", err, a)
				}
				if took := time.Since(begin) - 10*time.Second; took > 3*time.Second {
					t.Errorf("took %s", took)
				}
				if heeds && *a.CostUSD != 0.25 {
					t.Errorf("cost %v", *a.CostUSD)
				}
				res, err := w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("a")},
					map[string]any{"consult_id": a.ID})
				if err != nil || res.Fault != nil || !strings.Contains(res.Text, "cancelled") ||
					!strings.Contains(res.Text, "so far") {
					t.Errorf("%v %v %q", err, res.Fault, res.Text)
				}
				w.finish()
			})
		})
	}
}

// TestControl checks that a job is cancelled by its id by its own identity alone, and that
// a second cancellation is no error.
func TestControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, hangs(true))
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x", "wait_s": 0})
		if err != nil || !strings.Contains(res.Text, "consult_result") {
			t.Fatalf("%v %q", err, res.Text)
		}
		synctest.Wait()
		args := map[string]any{"consult_id": jobdir.ID("hash-a", 1), "action": "cancel"}
		if res, err := w.call(t.Context(), "consult_control", tool.Call{Caller: w.caller("b")}, args); code(res,
			err) != fault.InvalidInput {
			t.Errorf("by another identity: %v", err)
		}
		for range 2 {
			res, err = w.call(t.Context(), "consult_control", tool.Call{Caller: w.caller("a")}, args)
			if err != nil || res.Fault != nil || res.Value.(answer.View).State != answer.Cancelled {
				t.Errorf("%v %v %q", err, res.Fault, res.Text)
			}
		}
		w.finish()
	})
}

// TestQueue checks that no more jobs run at once than the limit allows, and that identities
// get slots in turn.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(10*time.Second), func(o *Options) { o.Config.Consult.MaxConcurrent = 2 })
		var wg sync.WaitGroup
		ask := func(identity string, n int64) {
			wg.Go(func() {
				res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller(identity), N: n},
					map[string]any{"prompt": "x"})
				if err != nil || res.Fault != nil {
					t.Errorf("%s %d: %v %v", identity, n, err, res.Fault)
				}
			})
			synctest.Wait()
		}
		for n := range int64(6) {
			ask("greedy", n+1)
		}
		if r, q, _ := w.Counts(); r != 2 || q != 4 {
			t.Errorf("running %d, queued %d", r, q)
		}
		ask("modest", 1)
		list := w.List(w.who("modest"))
		if len(list) != 1 || list[0].Note != "queued, position 1 of 5" {
			t.Errorf("list %+v", list)
		}
		if list := w.List(w.who("greedy")); list[0].State != answer.Queued && list[5].State != answer.Queued {
			t.Errorf("list %+v", list)
		}
		wg.Wait()
		// Two slots became free at once, and it got one of them.
		if i := slices.Index(w.starter.order, "modest"); i != 2 && i != 3 {
			t.Errorf("order %v", w.starter.order)
		}
		w.finish()
	})
}

// TestQueueLimit checks that a full queue refuses a call, and that a queued job can be
// cancelled before it has started.
func TestQueueLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Hour),
			func(o *Options) { o.Config.Consult.MaxConcurrent, o.Config.Consult.Timeout = 1, 2*time.Hour })
		start := func(n int64) (tool.Result, error) {
			return w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n},
				map[string]any{"prompt": "x", "wait_s": 0})
		}
		for n := range int64(maxWaitingEach + 1) {
			if res, err := start(n + 1); code(res, err) != "" {
				t.Fatal(err)
			}
		}
		if res, err := start(1000); code(res, err) != fault.ResourceExhausted {
			t.Errorf("one too many: %v", err)
		} else if f, _ := errors.AsType[*fault.Record](err); !f.IsOwn() {
			t.Errorf("the caller's own limit is %+v", f.Limit)
		}
		synctest.Wait()
		a, err := w.Cancel(t.Context(), jobdir.ID("hash-a", 5))
		if err != nil || a.State != answer.Cancelled || len(w.starter.procs) != 1 {
			t.Errorf("%v %+v", err, a)
		}
		if res, err := start(1001); code(res, err) != "" {
			t.Errorf("after one has gone: %v", err)
		}
		w.finish()
	})
}

// TestWorkerLostBeforeItWasTold_ConsultBeginsAgain has the workers of a consult lost before their processes are told
// anything. The consult begins again, and has its answer; one whose workers are always lost fails in the end.
func TestWorkerLostBeforeItWasTold_ConsultBeginsAgain(t *testing.T) {
	for lost := range maxBegins + 1 {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var begun atomic.Int64
				w := newWorld(t, func(p *fakeProcess) {
					if begun.Add(1) > int64(lost) {
						answers(0)(p)
						return
					}
					p.end.Lost = fault.New(fault.ProcessFailure, fault.Worker, "run:x", "its worker was killed")
				})
				res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{"prompt": "x"})
				want, times := fault.Code(""), lost+1
				if lost == maxBegins {
					want, times = fault.ProcessFailure, maxBegins
				}
				if code(res, err) != want || begun.Load() != int64(times) {
					t.Errorf("begun %d times: %v, %+v, want %d times and %q", begun.Load(), err, res, times, want)
				}
				w.finish()
			})
		})
	}
}

// TestProgramIsAskedOnABusyMachine_ConsultRuns has the program of a consult give no answer whether it can be used: it
// has too little time, is killed, or something holds its output open. It is asked again, and the consult runs. A
// program that says what is wrong is asked once.
func TestProgramIsAskedOnABusyMachine_ConsultRuns(t *testing.T) {
	const hangs = "sleep 600"
	for name, tt := range map[string]struct {
		trouble string // what the program does instead of an answer
		times   int    // so often; then it answers
		asked   int
		code    fault.Code
	}{
		"killed once":                 {"kill -9 $$", 1, 2, ""},
		"killed twice":                {"kill -9 $$", 2, 3, ""},
		"always killed":               {"kill -9 $$", 9, 3, fault.SpawnFailure},
		"its output is held open":     {"sleep 600 & exit 0", 1, 2, ""},
		"it says what is wrong":       {"echo broken; exit 3", 1, 1, fault.SpawnFailure},
		"it has too little time once": {hangs, 1, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			w := newWorld(t, answers(0))
			w.engine.trial = func() error { // the call's goroutine asks for the first look, the job's for the next
				w.engine.mu.Lock()
				defer w.engine.mu.Unlock()
				if asked++; asked > tt.times {
					return nil
				}
				p := program.Program{Name: "Tool", Bin: "/bin/sh", Env: []string{"PATH=" + os.Getenv("PATH")}, Timeout: time.Minute}
				if tt.trouble == hangs {
					p.Timeout = time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), p.Timeout)
				defer cancel()
				reply, err := p.Probe(ctx, p.Bin, "-c", tt.trouble)
				if err != nil {
					return err
				}
				return p.Unanswered(&reply, "--help")
			}
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{"prompt": "x"})
			if tt.code == "" {
				tt.asked++ // when the job begins
			}
			if code(res, err) != tt.code || asked != tt.asked {
				t.Errorf("asked %d times: %v, %+v, want %d times and %q", asked, err, res, tt.asked, tt.code)
			}
			w.finish()
		})
	}
}

// TestFaults checks the fault and the text for each way in which a program can end.
func TestFaults(t *testing.T) {
	exits := func(n int, lines ...string) func(*fakeProcess) {
		return func(p *fakeProcess) {
			if len(lines) > 0 {
				p.say(lines...)
			}
			p.exit(n)
		}
	}
	for name, tt := range map[string]struct {
		program func(*fakeProcess)
		edit    func(*world)
		code    fault.Code
		text    string // part of the text for the model
	}{
		"exit": {
			program: exits(3, "start", "text half an answer"), code: fault.ProcessFailure, text: "half an answer",
		},
		"at once": {program: exits(0), code: fault.ProcessFailure},
		"lost": {program: func(p *fakeProcess) {
			p.say("start", "text x")
			p.end.Lost = fault.New(fault.ProcessFailure, fault.Worker, "run:x", "its worker was killed")
		}, code: fault.OutcomeUnknown},
		"vanished": {program: func(p *fakeProcess) { p.say("start") }, code: fault.OutcomeUnknown},
		"unasked":  {program: func(*fakeProcess) {}, code: fault.ProcessFailure},
		"not ready": {edit: func(w *world) {
			w.engine.check = fault.New(fault.Unauthenticated, fault.Engine, operation, "log in")
		}, code: fault.Unauthenticated},
		"no start": {edit: func(w *world) {
			w.starter.err = fault.New(fault.SpawnFailure, fault.Worker, operation, "no")
		}, code: fault.SpawnFailure},
		"odd start": {edit: func(w *world) { w.starter.err = errors.New("odd") }, code: fault.InternalFailure},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tt.program)
				if tt.edit != nil {
					tt.edit(w)
				}
				res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
					map[string]any{"prompt": "x"})
				if got := code(res, err); got != tt.code {
					t.Errorf("code %q (%v), want %q", got, err, tt.code)
				}
				if !strings.Contains(res.FaultText, tt.text) {
					t.Errorf("text %q", res.FaultText)
				}
				if r, q, _ := w.Counts(); r != 0 || q != 0 {
					t.Errorf("running %d, queued %d", r, q)
				}
				// Whoever asks how all is hears of it for a while.
				if n, last := w.Failures(time.Minute); n != 1 || last == "" {
					t.Errorf("%d failures, %q", n, last)
				}
				time.Sleep(time.Minute)
				if n, _ := w.Failures(time.Minute); n != 0 {
					t.Errorf("%d failures within a minute, after a minute", n)
				}
				w.finish()
			})
		})
	}
}

// TestBadInput checks that invalid arguments are refused, and that the fault names the tool
// that was called.
func TestBadInput(t *testing.T) {
	w := newWorld(t, answers(0))
	file := filepath.Join(w.project, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(w.project, "out")); err != nil {
		t.Fatal(err)
	}
	id := "3d81f0a0-3c5f-4c12-93ea-17cf026df78c"
	remember(w.Manager, w.who("a"), "a123456789ab", id)
	var n int64
	for name, tt := range map[string]struct {
		args map[string]any
		code fault.Code
		text string
	}{
		"no prompt":        {map[string]any{}, fault.InvalidInput, "prompt"},
		"empty prompt":     {map[string]any{"prompt": ""}, fault.InvalidInput, "prompt"},
		"blank prompt":     {map[string]any{"prompt": " \n\t"}, fault.InvalidInput, "prompt"},
		"NULs":             {map[string]any{"prompt": "\x00"}, fault.InvalidInput, "prompt"},
		"10 MiB":           {map[string]any{"prompt": strings.Repeat("x", 10<<20)}, fault.InvalidInput, "prompt"},
		"prompt is a list": {map[string]any{"prompt": []int{1}}, fault.InvalidInput, "prompt"},
		"cwd missing":      {map[string]any{"prompt": "x", "cwd": "absent"}, fault.InvalidInput, "cwd"},
		"cwd a file":       {map[string]any{"prompt": "x", "cwd": "file"}, fault.InvalidInput, "cwd"},
		"cwd outside":      {map[string]any{"prompt": "x", "cwd": "/usr"}, fault.Denied, "consult.roots"},
		"cwd above":        {map[string]any{"prompt": "x", "cwd": ".."}, fault.Denied, "consult.roots"},
		"cwd by a link":    {map[string]any{"prompt": "x", "cwd": "out/usr"}, fault.Denied, "consult.roots"},
		"cwd the root":     {map[string]any{"prompt": "x", "cwd": "/"}, fault.Denied, "consult.roots"},
		"cwd with NUL":     {map[string]any{"prompt": "x", "cwd": "a\x00b"}, fault.InvalidInput, "cwd"},
		"max_turns 0":      {map[string]any{"prompt": "x", "max_turns": 0}, fault.InvalidInput, "max_turns"},
		"max_turns 1.5":    {map[string]any{"prompt": "x", "max_turns": 1.5}, fault.InvalidInput, "max_turns"},
		"timeout_s 0":      {map[string]any{"prompt": "x", "timeout_s": 0}, fault.InvalidInput, "timeout_s"},
		"wait_s -1":        {map[string]any{"prompt": "x", "wait_s": -1}, fault.InvalidInput, "wait_s"},
		"unknown argument": {map[string]any{"prompt": "x", "promt": "y"}, fault.InvalidInput, "promt"},
		"unknown level":    {map[string]any{"prompt": "x", "level": "write"}, fault.InvalidInput, "level"},
		"unknown engine":   {map[string]any{"prompt": "x", "engine": "abacus"}, fault.InvalidInput, "engine"},
		"unknown effort":   {map[string]any{"prompt": "x", "effort": "huge"}, fault.InvalidInput, "effort"},
		"model an option":  {map[string]any{"prompt": "x", "model": "--add-dir"}, fault.InvalidInput, "model"},
		"session no id":    {map[string]any{"prompt": "x", "session": "--continue"}, fault.InvalidInput, "session"},
		"dash prompt":      {map[string]any{"prompt": "-v --help"}, "", ""},
		"slash prompt":     {map[string]any{"prompt": "/help"}, "", ""},
		"in a subdirectory": {map[string]any{
			"prompt": "x", "cwd": "sub", "session": id, "model": "opus[1m]", "effort": "low",
		}, "", ""},
	} {
		n++
		t.Run(name, func(t *testing.T) {
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n}, tt.args)
			if got := code(res, err); got != tt.code {
				t.Fatalf("code %q (%v), want %q", got, err, tt.code)
			}
			if err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%q does not name %s", err, tt.text)
			}
		})
	}
	for name, args := range map[string]map[string]any{
		"unknown id": {"consult_id": "0123456789ab"}, "no id": {"consult_id": "../../etc"},
		"bad offset": {"consult_id": "0123456789ab", "offset": -1},
	} {
		if res, err := w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("a")}, args); code(res,
			err) != fault.InvalidInput {
			t.Errorf("consult_result, %s: %v", name, err)
		}
	}
	if res, err := w.call(t.Context(), "consult_control", tool.Call{Caller: w.caller("a")},
		map[string]any{"consult_id": "0123456789ab", "action": "cancel"}); code(res, err) != fault.InvalidInput {
		t.Errorf("consult_control: %v", err)
	}
	// A fault names the tool that was called.
	for name, args := range map[string]map[string]any{
		"consult":         {"prompt": " "},
		"consult_result":  {"consult_id": "0123456789ab"},
		"consult_control": {"consult_id": "0123456789ab", "action": "cancel"},
	} {
		_, err := w.call(t.Context(), name, tool.Call{Caller: w.caller("a")}, args)
		if f, ok := errors.AsType[*fault.Record](err); !ok || f.Operation != "tools/call:"+name {
			t.Errorf("the fault of %s is %+v, %v", name, f, err)
		}
	}
	w.finish()
}

// TestOrphans checks that a job that a dead daemon left without a worker gets an answer
// that says so, and that directories without a job are removed.
func TestOrphans(t *testing.T) {
	w := newWorld(t, answers(0))
	put := func(id, name, data string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(w.dir, id), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "" {
			return
		}
		sealed := data
		if name == jobdir.FileJob {
			sealed = string(bulk.Seal(engine.SealName(id, name), []byte(data)))
		}
		if err := os.WriteFile(filepath.Join(w.dir, id, name), []byte(sealed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("000000000001", "job.json", `{"version":1,"consult_id":"000000000001","identity":"a"}`)
	put("000000000001", "spec.json", fmt.Sprintf(`{"version":%d}`, process.Version))
	put("000000000002", "job.json", `{"version":1,"consult_id":"000000000002","identity":"a"}`)
	put("000000000002", "state.json", `{}`)
	put("000000000003", "", "")
	put("000000000004", "job.json", `garbage`)
	put("000000000005", "answer.json", `garbage`)
	put("000000000006", "job.json", `{"version":1,"consult_id":"000000000006","identity":"a"}`)
	put("not a job", "", "")
	w.finish()
	next, err := New(w.opt)
	if err != nil {
		t.Fatal(err)
	}
	w.Manager = next
	for id, want := range map[string]fault.Code{
		"000000000001": fault.ProcessFailure, "000000000002": fault.OutcomeUnknown,
		"000000000004": fault.OutcomeUnknown, "000000000005": fault.OutcomeUnknown,
		"000000000006": fault.ProcessFailure,
	} {
		a, err := w.Show(id)
		if err != nil || a.State != answer.Failed || a.Fault.Fault.Code != want {
			t.Errorf("%s: %v %+v", id, err, a)
		}
	}
	if n := len(w.List(nil)); n != 5 {
		t.Errorf("%d jobs", n)
	}
	for id, name := range map[string]string{"000000000004": "job.json", "000000000005": "answer.json"} {
		path := filepath.Join(w.dir, id, name)
		if a, err := w.Show(id); err != nil || !strings.Contains(a.Fault.Fault.Detail, path) {
			t.Errorf("%s: %v, %+v, want a fault that names %s", id, err, a, path)
		}
	}
	// A directory that was never filled is gone, so that the same line can be asked again.
	for _, id := range []string{"000000000003"} {
		if _, err := os.Stat(filepath.Join(w.dir, id)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", id, err)
		}
	}
	w.finish()
}

// TestClose checks that closing the manager keeps the text so far, and that Close returns
// when its context ends, even if a program does not end.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, hangs(true))
		if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x", "wait_s": 1}); err != nil {
			t.Fatal(err)
		}
		w.finish()
		a, err := answer.Read(filepath.Join(w.dir, jobdir.ID("hash-a", 1)))
		if err != nil || a.State != answer.Cancelled || a.Text != "so far" || a.Why != "the daemon stopped" {
			t.Errorf("%v %+v", err, a)
		}
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 2},
			map[string]any{"prompt": "x"})
		if code(res, err) != fault.TransportFailure {
			t.Errorf("after the end: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := newWorld(t, func(p *fakeProcess) { <-release })
		if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x", "wait_s": 0}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		close(release)
		w.starter.wg.Wait()
	})
}

// TestTools checks that descriptions and listings of the tools stay within the sizes that
// clients take.
func TestTools(t *testing.T) {
	w := newWorld(t, answers(0))
	for _, tl := range w.Tools() {
		p, err := tool.Prepare(&tl)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Error(err)
		}
		if n := len(tl.Description); n > 2000 {
			t.Errorf("%s: description of %d bytes", tl.Name, n)
		}
		if n := len(p.Listing()); n > 6000 {
			t.Errorf("%s: listing of %d bytes", tl.Name, n)
		}
	}
	w.finish()
}
