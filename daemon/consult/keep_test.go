package consult

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
)

// TestKeep checks that answers outlive the manager, within the limits of the
// configuration.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Second), func(o *Options) { o.Config.Consult.Keep.Count = 3 })
		for n := range int64(5) {
			if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n + 1},
				map[string]any{"prompt": fmt.Sprint(n + 1)}); err != nil {
				t.Fatal(err)
			}
			w.Confirmed("hash-a", n+1)
		}
		w.finish()
		next, err := New(w.opt)
		if err != nil {
			t.Fatal(err)
		}
		w.Manager = next
		list := w.List(w.who("a"))
		if len(list) != 3 || list[0].ID != jobdir.ID("hash-a", 5) {
			t.Errorf("list %+v", list)
		}
		// A repeated request gets its kept answer, and starts nothing.
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 4},
			map[string]any{"prompt": "4"})
		if err != nil || !strings.HasPrefix(res.Text, "4\n") || len(w.starter.procs) != 5 {
			t.Errorf("%v %q", err, res.Text)
		}
		time.Sleep(31 * 24 * time.Hour)
		w.prune()
		if entries, err := os.ReadDir(w.dir); err != nil || len(entries) != 0 {
			t.Errorf("%v %v", entries, err)
		}
		w.finish()
	})
}

// TestFailuresKept checks that the next manager still counts the consults that have failed lately,
// by their kept answers, and that the last of them is the latest.
func TestFailuresKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(p *fakeProcess) { p.exit(3) })
		for n := range int64(4) {
			if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n + 1},
				map[string]any{"prompt": fmt.Sprint(n + 1)}); err != nil {
				t.Error(err)
			}
			w.Confirmed("hash-a", n+1)
			time.Sleep(time.Minute)
		}
		n, last := w.Failures(150 * time.Second)
		w.finish()
		next, err := New(w.opt)
		if err != nil {
			t.Fatal(err)
		}
		w.Manager = next
		if again, same := w.Failures(150 * time.Second); n != 2 || again != n || same != last {
			t.Errorf("%d failures, %q, and in the next daemon %d, %q; want 2 in both", n, last, again, same)
		}
		w.finish()
	})
}

// TestKeepAge checks that old answers are removed by time. With an age of 0 no answer is
// kept once its client has it or will not come back.
func TestKeepAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Second), func(o *Options) { o.Config.Consult.Keep.Age = 24 * time.Hour })
		ask := func(n int64) {
			t.Helper()
			if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n},
				map[string]any{"prompt": "x"}); err != nil {
				t.Fatal(err)
			}
		}
		kept := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if _, _, k := w.Counts(); k != want {
				t.Errorf("%s: %d are kept, want %d", when, k, want)
			}
		}
		ask(1)
		w.Confirmed("hash-a", 1)
		time.Sleep(23 * time.Hour)
		kept("in time", 1)
		time.Sleep(2*time.Hour + time.Second)
		kept("too old", 0)
		cfg := *w.config.Load()
		cfg.Consult.Keep.Age, cfg.Consult.Wait = 0, 0
		w.Configure(&cfg)
		if res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 2},
			map[string]any{"prompt": "x"}); err != nil || !strings.Contains(res.Text, "No answer yet") {
			t.Errorf("with a wait of 0: %v, %q", err, res.Text)
		}
		time.Sleep(2 * time.Second)
		kept("its client may still come", 1)
		w.Confirmed("hash-a", 2)
		kept("its client has it", 0)
		w.finish()
	})
}

// TestOwed checks that an answer that its client may still fetch is kept over all limits,
// and only as long as that.
func TestOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Second), func(o *Options) { o.Config.Consult.Keep.Count = 1 })
		ask := func(identity string, n int64) string {
			t.Helper()
			time.Sleep(time.Millisecond) // so that each ends later than the one before
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller(identity), N: n},
				map[string]any{"prompt": identity})
			if err != nil || res.Fault != nil {
				t.Fatalf("%s %d: %v %v", identity, n, err, res.Fault)
			}
			return res.Text
		}
		others := func(from int64) {
			t.Helper()
			for n := range int64(2) {
				ask("b", from+n)
				w.Confirmed("hash-b", from+n)
			}
		}
		restart := func() {
			t.Helper()
			w.finish()
			next, err := New(w.opt)
			if err != nil {
				t.Fatal(err)
			}
			w.Manager = next
		}
		first := ask("a", 1)
		others(1)
		if again := ask("a", 1); again != first {
			t.Errorf("asked again: %q, first %q", again, first)
		}
		restart()
		others(3)
		if !w.Recorded("hash-a", 1) {
			t.Fatal("it is gone before its client could come back")
		}
		w.Resumed("hash-a", map[int64]struct{}{1: {}})
		time.Sleep(2 * protocol.StartWindow)
		others(5)
		if again := ask("a", 1); again != first {
			t.Errorf("asked again by a client that is back: %q, first %q", again, first)
		}
		if n := len(w.starter.procs); n != 7 {
			t.Errorf("%d programs ran for 7 consults", n)
		}
		w.Confirmed("hash-a", 1)
		others(7)
		if w.Recorded("hash-a", 1) {
			t.Error("it is kept though its client holds it")
		}
		for i, let := range []func(){
			func() { w.Closed("hash-a", "") },
			func() { w.Resumed("hash-a", map[int64]struct{}{99: {}}) },
		} {
			n := int64(10 + i)
			ask("a", n)
			let()
			others(9 + 2*n)
			if w.Recorded("hash-a", n) {
				t.Errorf("%d is kept though nobody comes for it", n)
			}
		}
		// The answers for clients of an earlier daemon that do not come back are removed.
		ask("a", 20)
		others(100)
		restart()
		time.Sleep(protocol.StartWindow - time.Second)
		if !w.Recorded("hash-a", 20) {
			t.Error("it is gone before its client could come back")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if w.Recorded("hash-a", 20) {
			t.Error("it is kept though its client did not come back")
		}
		w.finish()
	})
}

// TestAnswerUnwritten checks that an answer that cannot be written to disk is returned all
// the same, and is written as soon as possible: otherwise the next daemon would not have
// it.
func TestAnswerUnwritten(t *testing.T) {
	w := newWorld(t, func(p *fakeProcess) {
		<-p.in
		if strings.HasSuffix(p.dir, jobdir.ID("hash-a", 1)) {
			if err := os.Rename(p.dir, p.dir+".away"); err != nil {
				t.Error(err)
			}
		}
		p.say("answer well")
		<-p.closed
		p.exit(0)
	})
	ask := func(n int64) {
		t.Helper()
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n},
			map[string]any{"prompt": "x"})
		if err != nil || !strings.HasPrefix(res.Text, "well\n") {
			t.Errorf("%v, %q", err, res.Text)
		}
	}
	ask(1)
	id := jobdir.ID("hash-a", 1)
	dir := filepath.Join(w.dir, id)
	if a, err := w.Show(id); err != nil || a.Text != "well" {
		t.Errorf("in memory: %v, %+v", err, a)
	}
	temp := filepath.Join(dir+".away", jobdir.DirTemp)
	if err := errors.Join(os.RemoveAll(temp), os.Rename(dir+".away", dir)); err != nil {
		t.Fatal(err)
	}
	ask(2)
	w.finish()
	if a, err := answer.Read(dir); err != nil || a.Text != "well" {
		t.Errorf("on disk: %v, %+v", err, a)
	}
}

// TestResultLineAlone checks that the result line is the answer if it is the only copy, since
// the engine process could not write outcome.json. Which file that was is known for a while.
func TestResultLineAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(p *fakeProcess) {
			<-p.in
			p.out.Unwritten = []string{engine.FileOutcome}
			p.say("answer well")
			<-p.closed
			p.exit(0)
		})
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{"prompt": "x"})
		if err != nil || !strings.HasPrefix(res.Text, "well\n") {
			t.Errorf("%v, %q", err, res.Text)
		}
		file := filepath.Join(w.dir, jobdir.ID("hash-a", 1), engine.FileOutcome)
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("there is an outcome: %v", err)
		}
		bad, unread := w.BadFiles(time.Minute)
		if len(bad) != 1 || bad[0].Path != file || bad[0].InMemory || len(unread) > 0 {
			t.Errorf("unwritten %+v, unread %q, want %s", bad, unread, file)
		}
		time.Sleep(time.Minute)
		if bad, _ := w.BadFiles(time.Minute); len(bad) > 0 {
			t.Errorf("a minute later: %+v", bad)
		}
		w.finish()
	})
}

// TestAnswerWrittenLater checks that an answer that could not be written is named as long as
// it is only in memory, and that it is written once that is possible, although nothing else
// happens. An answer that is still unwritten when the daemon stops is written then.
func TestAnswerWrittenLater(t *testing.T) {
	for _, stops := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(p *fakeProcess) {
				<-p.in
				if err := os.Rename(p.dir, p.dir+".away"); err != nil {
					t.Error(err)
				}
				p.say("answer well")
				<-p.closed
				p.exit(0)
			})
			if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
				map[string]any{"prompt": "x"}); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(w.dir, jobdir.ID("hash-a", 1))
			named := func() bool {
				bad, _ := w.BadFiles(0)
				return len(bad) == 1 && bad[0].Path == filepath.Join(dir, jobdir.FileAnswer) && bad[0].InMemory
			}
			time.Sleep(time.Hour)
			if !named() {
				t.Error("the file is not named as long as the answer is only in memory")
			}
			if err := errors.Join(os.RemoveAll(filepath.Join(dir+".away", jobdir.DirTemp)),
				os.Rename(dir+".away", dir)); err != nil {
				t.Fatal(err)
			}
			if stops {
				w.finish()
			} else {
				time.Sleep(2 * retryPause)
			}
			if a, err := answer.Read(dir); err != nil || a.Text != "well" {
				t.Errorf("on disk: %v, %+v", err, a)
			}
			if named() {
				t.Error("the file is still named once it is written")
			}
			if !stops {
				w.finish()
			}
		})
	}
}

// TestRecordUnwritten checks a consult whose record cannot be written. Its caller, and another
// one that found the job meanwhile, get the fault; it gives its slot back, and nothing writes
// a record of it later.
func TestRecordUnwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Second), func(o *Options) { o.Config.Consult.MaxConcurrent = 1 })
		ask := func(n int64) fault.Code {
			return code(w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n},
				map[string]any{"prompt": "x"}))
		}
		rec := jobdir.Record{
			ID: jobdir.ID("hash-a", 1), Session: "hash-a", N: 1, Identity: "a", Attended: true,
			CreatedUnixMS: time.Now().UnixMilli(),
		}
		j := w.newJob(rec)
		j.claimed = true
		if err := w.admit(w.config.Load(), nil, []*Job{j}, []engine.Engine{w.engine}, nil); err != nil {
			t.Fatal(err)
		}
		found := make(chan fault.Code, 1)
		go func() { found <- ask(1) }()
		synctest.Wait()
		if err := os.Remove(w.dir); err != nil { // its directory cannot be made there
			t.Fatal(err)
		}
		f := j.record()
		if f == nil || f.Fault.Code != fault.ResourceExhausted {
			t.Fatalf("got %v, want a fault", f)
		}
		w.withdraw(j, f)
		if got := <-found; got != fault.ResourceExhausted {
			t.Errorf("the caller that found the job got %q", got)
		}
		if got := ask(2); got != fault.ResourceExhausted {
			t.Errorf("without a directory: got %q", got)
		}
		if err := os.MkdirAll(j.Dir, 0o700); err != nil { // as if another daemon's
			t.Fatal(err)
		}
		j.detach()
		if err := j.saveDetached(); err == nil {
			t.Error("the record of a refused job was written")
		}
		if got := ask(1); got != fault.OutcomeUnknown {
			t.Errorf("with a directory of another daemon: got %q", got)
		}
		if r, q, _ := w.Counts(); r+q > 0 || ask(3) != "" {
			t.Errorf("%d consults run and %d wait, or the next one fails", r, q)
		}
		w.finish()
	})
}

// TestToldIsKept checks that an answer whose id a client has is kept until the client has fetched
// it, whatever the number of answers that are kept.
func TestToldIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.Consult.Keep.Count = 1
		w := newWorld(t, answers(time.Second), func(o *Options) { o.Config = cfg })
		for n := range int64(3) {
			if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n + 1},
				map[string]any{"prompt": "x", "wait_s": 0}); err != nil {
				t.Fatal(err)
			}
			w.Confirmed("hash-a", n+1)
		}
		time.Sleep(time.Minute)
		for n := range int64(3) {
			if _, err := w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("a"), N: n + 10},
				map[string]any{"consult_id": jobdir.ID("hash-a", n+1)}); err != nil {
				t.Errorf("answer %d: %v", n, err)
			}
		}
		if _, _, kept := w.Counts(); kept != 1 {
			t.Errorf("%d answers are kept when all were fetched, want 1", kept)
		}
		w.finish()
	})
}
