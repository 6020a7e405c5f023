package calls

import (
	"fmt"
	"os"
	"testing"
)

// A call of the first model may be detached, as calls of hosted servers are. The store has a
// file for its task, which says whether it has ended. The daemon first writes the file, then
// records that the call is detached, and then sends the client the id. At the end it first
// writes the file, and then drops the record, once the client has the id. A call is detached
// no sooner than the worker has said that it took the write: else its record could be void, and
// then nothing but the file would tell of it.

// mTask is the task of a call, as it is on disk.
type mTask struct {
	file     int8 // 0 there is none, 1 it works, 2 it has ended
	val      int8 // as in [mMsg]
	recorded bool // behind the call's record stands that it is detached
}

// loadTask is what a daemon that starts does about the file of a call, once it has the
// records.
func (r *mRules) loadTask(t *world, n int) {
	task, found := &t.tasks[n], t.c[n].phase != New
	if found && task.recorded {
		t.c[n].claim = r.claim(Unclaimed, Detach)
	}
	switch {
	case found && task.recorded && task.file == 2:
		t.c[n].claim = r.claim(t.c[n].claim, Store)
	case found && !task.recorded && task.file == 1:
		task.file = 0 // its client waits for the answer itself
	case !found && task.file == 1: // its record is gone, and with it all that could tell
		f := Facts{Pending: true, Recorded: true}
		if r.decide(f) == Unknown {
			task.file, task.val = 2, 3
		}
	}
}

// confirm notes that the client has the answer to line n, or the id of its task.
func (r *mRules) confirm(t *world, n int) {
	if c := &t.c[n]; c.claim.IsDetached() {
		if c.claim = r.claim(c.claim, Confirm); c.claim.Wanted() {
			return
		}
	}
	r.settle(t, n)
}

// task adds what the daemon does about a call that is, or may be, detached. It returns false
// if the call goes on as an attended one.
func (r *mRules) task(s world, n int, add adder) bool {
	c, task := s.c[n], s.tasks[n]
	t := s
	switch {
	case r.broken["StoreFirst"] && task.file == 1 && task.val != 0:
		t.tasks[n].file = 2
		add(t, "the file of task %d says how it ended", n)
		return true
	case !r.detach || n != 0 || c.phase == Over:
		return false
	case r.broken["TaskFirst"] && c.claim.IsDetached() && task.file == 0 && c.routed:
		t.tasks[n].file = 1
		add(t, "the file of task %d is written", n)
		return true
	case c.claim.IsDetached():
		r.detached(s, n, add)
		return true
	case s.pend[n] && !c.routed && task.file == 1:
		t.tasks[n].recorded, t.c[n].claim = !r.broken["DetachFirst"], r.claim(c.claim, Detach)
		add(t, "call %d is recorded as detached", n)
		return true
	case s.pend[n] && !c.routed && c.phase == Open && c.claim == Awaited && s.att[c.k] == 1 &&
		(c.w <= s.wk[c.k].last || r.broken["TakenFirst"]):
		if r.broken["TaskFirst"] {
			t.tasks[n].recorded, t.c[n].claim = true, r.claim(c.claim, Detach)
		} else {
			t.tasks[n].file = 1
		}
		add(t, "the file of task %d is written", n)
	}
	return false
}

// detached adds what the daemon does about a detached call: it sends the id, and carries the
// call to its end.
func (r *mRules) detached(s world, n int, add adder) {
	c, t := s.c[n], s
	if s.pend[n] && !c.routed {
		t.c[n].routed = true
		if s.up() && push(t.d2p[:], mMsg{mAnswer, int8(n), 4}) {
			add(t, "the daemon answers %d with the id of its task", n)
		}
	}
	if s.tasks[n].file == 2 || c.claim == Stored || c.phase != New && s.att[c.k] == 0 {
		return // it has ended, or waits for its worker
	}
	f := c.phase.Facts()
	f.Pending, f.Alive = c.claim.Wanted(), c.phase != New && s.att[c.k] == 1
	end := func(val int8) {
		t := s
		t.tasks[n].val = val
		if !r.broken["StoreFirst"] {
			t.tasks[n].file = 2
		}
		if t.c[n].claim = r.claim(c.claim, Store); !t.c[n].claim.Wanted() {
			r.settle(&t, n)
		}
		add(t, "task %d ends with %d", n, val)
	}
	switch r.decide(f) {
	case Deliver:
		end(c.val)
	case Unknown:
		end(3)
	case Dispatch:
		r.dispatch(s, n, add)
	case Wait, Forget, Cancel, Fail:
	}
}

// wrong returns what is wrong with the task of call n, or "".
func (task mTask) wrong(s *world, n int) string {
	switch {
	case task.file == 2 && task.val == 2:
		return fmt.Sprintf("task %d got another's answer", n)
	case task.file == 2 && task.val == 1 && s.eff[n] != 1:
		return fmt.Sprintf("task %d was answered and has had its effect %d times", n, s.eff[n])
	case task.file == 2 && task.val == 3 && s.wkills == 0:
		return fmt.Sprintf("task %d is said to be unknown, and no worker was killed", n)
	case s.val[n] == 4 && task.file == 0:
		return fmt.Sprintf("the client has the id of task %d, which is not known", n)
	}
	return ""
}

// TestTaskModel checks that a call that may be detached is made once all the same, that its
// client has the answer or an id that is known, and that each task ends and leaves no record.
func TestTaskModel(t *testing.T) {
	r := sound()
	r.detach = true
	kills := int8(2)
	if os.Getenv("HOLDLINE_LONG") != "" {
		kills = 3
	}
	states, trace := r.explore(kills, 1)
	for _, step := range trace {
		t.Error(step)
	}
	t.Logf("%d states", states)
	if states < 10_000 {
		t.Errorf("%d states: the model does not get far", states)
	}
}

// TestTaskModelBroken breaks each rule of detached calls in turn. The model must notice each
// time.
func TestTaskModelBroken(t *testing.T) {
	spoil := map[string]func(*mRules){
		"the client's confirmation ends the call": func(r *mRules) { r.claim = claimBut(Confirm, Promised, Unwanted) },
		"the record goes before the client has the id": func(r *mRules) {
			r.claim = claimBut(Store, Promised, Unwanted)
		},
		"the record stays when all have what they want": func(r *mRules) {
			r.claim = claimBut(Store, Detached, Detached)
		},
		"the record stays when the client has the id": func(r *mRules) {
			r.claim = claimBut(Confirm, Stored, Stored)
		},
		"the dead one's call is made again": func(r *mRules) {
			r.decide = func(f Facts) Action {
				if a := Decide(f); a != Unknown {
					return a
				}
				return Dispatch
			}
		},
	}
	for _, name := range []string{"TakenFirst", "TaskFirst", "DetachFirst", "StoreFirst"} {
		spoil[name] = func(r *mRules) { r.broken[name] = true }
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			r := sound()
			r.detach = true
			spoil(&r)
			states, trace := r.explore(2, 1)
			if trace == nil {
				t.Fatalf("nothing wrong in %d states", states)
			}
			t.Logf("%d states, %d steps: %s", states, len(trace), trace[len(trace)-1])
		})
	}
}
