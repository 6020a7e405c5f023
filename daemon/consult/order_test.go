package consult

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/request"
	"holdline/daemon/tool"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
)

// TestEndedWhenHandedOut checks a call whose job ends just when its wait is over: it gets the
// answer or the fault, and not that there is none yet.
func TestEndedWhenHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ofEngines(map[string]func(*fakeProcess){
			Claude: answers(time.Second), Codex: func(p *fakeProcess) {
				time.Sleep(time.Second)
				fails(p)
			},
		}))
		for n, name := range []string{Claude, Codex} {
			if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: int64(n) + 1},
				map[string]any{"prompt": "why", "engine": name, "wait_s": 0}); err != nil {
				t.Fatal(err)
			}
			w.mu.Lock()
			j := w.jobs[jobdir.ID("hash-a", int64(n)+1)]
			w.mu.Unlock()
			<-j.done
			res := w.pending(j, tool.Concise)
			if (res.Fault != nil) != (name == Codex) || strings.Contains(res.Text, "No answer yet") {
				t.Errorf("%s: %+v", name, res)
			}
		}
		w.finish()
	})
}

// TestWaitShortened checks a repeated call of an attended job that waits no more, since the
// configuration has changed: its client has the id, so the job must not end for want of a client.
func TestWaitShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Hour), func(o *Options) { o.Config.Consult.Wait = 0 })
		rec := jobdir.Record{
			Version: jobdir.Version, ID: jobdir.ID("hash-a", 1), Session: "hash-a", N: 1, Identity: "a", Attended: true,
			Engine: Claude, CreatedUnixMS: time.Now().UnixMilli(), TimeoutMS: 7_200_000, WaitMS: 100_000,
			Request: engine.Request{Prompt: "x"},
		}
		j := w.newJob(rec)
		if err := w.enqueue(w.config.Load(), j, w.engine); err != nil {
			t.Fatal(err)
		}
		go j.awaitClient(time.Minute)
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x"})
		if err != nil || !strings.Contains(res.Text, rec.ID) {
			t.Fatalf("%v, %q", err, res.Text)
		}
		if on, err := jobdir.ReadRecord(j.Dir); err != nil || on.Attended {
			t.Errorf("on the disk: attended %v, %v", on.Attended, err)
		}
		time.Sleep(2 * time.Minute)
		if why := w.whyOf(j); why != "" {
			t.Errorf("it was ended: %s", why)
		}
		w.finish()
	})
}

// TestContinuedTwice checks a message that is said again when the consult which it has begun has
// ended meanwhile: the caller gets the id of that.
func TestContinuedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(0))
		call := tool.Call{Caller: w.caller("a"), N: 1}
		if _, err := w.call(t.Context(), "consult", call, map[string]any{"prompt": "x"}); err != nil {
			t.Fatal(err)
		}
		old, err := w.Show(jobdir.ID("hash-a", 1))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			id, err := w.goOn(t.Context(), call.Caller, asking{n: 2, confirms: true}, old, "more")
			if err != nil || id != jobdir.ID("hash-a", 2) {
				t.Errorf("%q, %v", id, err)
			}
			synctest.Wait()
		}
		w.finish()
	})
}

// TestPanel_Unwritten checks that nobody waits for the judge of a panel that cannot be written
// down.
func TestPanel_Unwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(0))
		rec := jobdir.Record{ID: jobdir.ID("hash-a", 1), Session: "hash-a", N: 1, Identity: "a"}
		judge := rec
		judge.ID, judge.Label, judge.Panel = jobdir.MemberID("hash-a", 1, 2), request.JudgeLabel, rec.ID
		rec.SetMembers([]jobdir.Record{judge}, true)
		p, j := w.makeJob(rec, asking{}, time.Now()), w.makeJob(judge, asking{}, time.Now())
		w.mu.Lock()
		w.jobs[rec.ID], w.jobs[judge.ID] = p, j
		w.mu.Unlock()
		waited := make(chan *answer.Answer, 1)
		go func() {
			a, _ := w.Wait(t.Context(), judge.ID, nil)
			waited <- a
		}()
		synctest.Wait()
		for _, one := range []*Job{j, p} {
			w.withdraw(one, fault.New(fault.ResourceExhausted, fault.Host, operation, "the disk is full"))
		}
		synctest.Wait()
		select {
		case a := <-waited:
			if a == nil || a.State != answer.Failed {
				t.Errorf("the judge: %+v", a)
			}
		default:
			t.Error("the judge is waited for")
		}
		w.finish()
	})
}

// TestWaitedForByID checks that a job whose client's process is gone goes on for as long as another
// caller waits for it by its id, and ends then.
func TestWaitedForByID(t *testing.T) {
	gone := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exit")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"the command line", "consult_result"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, answers(time.Hour))
			rec := jobdir.Record{
				Version: jobdir.Version, ID: jobdir.ID("hash-a", 1), Session: "hash-a", N: 1, Identity: "a",
				Attended: true, Engine: Claude, CreatedUnixMS: time.Now().UnixMilli(), TimeoutMS: 7_200_000,
				Request: engine.Request{Prompt: "x"},
				BootID:  bootclock.ID(), ClientPID: gone.Process.Pid, ClientStart: 1,
			}
			j := w.newJob(rec)
			if err := w.enqueue(w.config.Load(), j, w.engine); err != nil {
				t.Fatal(err)
			}
			go func() {
				if how == "consult_result" {
					_, _ = w.call(t.Context(), how, tool.Call{Caller: w.caller("a"), N: 2},
						map[string]any{"consult_id": rec.ID, "wait_s": 60})
					return
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				_, _ = w.Wait(ctx, rec.ID, nil)
			}()
			synctest.Wait()
			go j.awaitClient(time.Hour)
			time.Sleep(30 * time.Second)
			if why := w.whyOf(j); why != "" {
				t.Errorf("%s: it was ended: %s", how, why)
			}
			time.Sleep(time.Minute)
			if why := w.whyOf(j); why != "its client is gone" {
				t.Errorf("%s: then it was ended: %q", how, why)
			}
			w.finish()
		})
	}
}
