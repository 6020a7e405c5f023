package calls

import (
	"os"
	"testing"
)

// While no daemon runs, something may happen to a journal of the first model: its end is cut off,
// it is emptied, a line in it is damaged, its whole directory is removed, or it cannot be read for
// a while. [Evidence.Verdict] says whether the next daemon believes it.

// mHarm is the state of a journal, as it is on disk.
type mHarm struct {
	covers int8 // the last write that it knows
	hole   int8 // so many of its records stand before a damaged line
	cut    bool // it has lines that are damaged or missing
	empty  bool
	gone   bool // its directory was removed; the register has it
	fails  bool // it cannot be read for now
	bad    bool // a daemon has found it damaged
}

// mDamage is what is known of damage.
type mDamage struct {
	harms  int8
	store  int8           // id of the records, on disk
	knows  int8           // the id that the proxy has
	since  [mCalls]int8   // of a line that was sent again: 1 more than the id with which its client came back
	unread [mWorkers]bool // records that this daemon has not read yet
}

func (d *mDamage) isUnread() bool {
	for _, unread := range d.unread {
		if unread {
			return true
		}
	}
	return false
}

// harm adds the steps in which a journal is damaged.
func (r *mRules) harm(s world, add adder) {
	if s.alive || s.damage.harms >= r.harms {
		return
	}
	for k := range s.wk {
		w := &s.wk[k]
		if !w.dir {
			continue
		}
		t := s
		t.damage.harms++
		t.wk[k].harm.fails = true
		add(t, "journal %d cannot be read for now", k)
		if w.harm.cut || w.harm.empty {
			continue
		}
		n := 0
		for n < mQueue && w.recs[n].n != 0 {
			n++
		}
		t = s
		t.damage.harms++
		t.wk[k].recs, t.wk[k].harm.empty, t.wk[k].harm.covers = [mQueue]mRec{}, true, 0
		add(t, "journal %d is emptied", k)
		t.wk[k].dir, t.wk[k].alive, t.wk[k].harm.gone = false, false, true
		add(t, "directory %d is removed", k)
		if n == 0 {
			continue
		}
		t = s
		t.damage.harms++
		last := &t.wk[k].recs[n-1]
		t.wk[k].harm.covers = min(w.harm.covers, last.w-1)
		*last = mRec{}
		add(t, "the last line of journal %d is cut off", k)
		for i := range n {
			t = s
			t.damage.harms++
			copy(t.wk[k].recs[i:], w.recs[i+1:])
			t.wk[k].recs[mQueue-1] = mRec{}
			t.wk[k].harm.cut, t.wk[k].harm.hole = true, int8(i)
			add(t, "line %d of journal %d is damaged", i, k)
			t.wk[k].recs, t.wk[k].harm.hole = w.recs, int8(n)
			add(t, "a line of journal %d behind its records is damaged", k)
		}
	}
}

// evidence is what is known of journal k.
func (r *mRules) evidence(w *mWorker) Evidence {
	e := Evidence{
		Empty: w.harm.empty, Named: true, Intact: !w.harm.cut, Covers: int64(w.harm.covers), Taken: int64(w.last),
	}
	if r.broken["NoTaken"] {
		e.Taken = 0
	}
	return e
}

// load reads what journal k has for a daemon that starts.
func (r *mRules) load(t *world, k int) {
	w := &t.wk[k]
	e := r.evidence(w)
	switch {
	case w.harm.gone:
		w.harm.bad = !r.broken["Register"]
	case w.dir && r.judge(e) == Damaged:
		w.harm.bad = true
	case !w.dir:
		return
	}
	if w.harm.bad {
		r.renew(t)
	}
	for i, rec := range w.recs {
		if rec.n == 0 {
			continue
		}
		n := int(rec.n) - 1
		if old := t.c[n]; old.phase != New && int(old.k) > k {
			continue // it was made again
		}
		t.c[n] = mCall{phase: New.After(Sent), write: wSent, k: int8(k), w: rec.w}
		if i < int(w.harm.hole) || e.hidesAll() {
			r.doubt(t, n)
		}
	}
}

// renew gives the records another id.
func (r *mRules) renew(t *world) {
	if !r.broken["NewStore"] {
		t.damage.store++
	}
}

// doubt decides about a call whose record stands before damaged lines.
func (r *mRules) doubt(t *world, n int) {
	f := t.c[n].phase.Facts()
	f.Pending, f.Damaged, f.Alive = true, true, t.wk[t.c[n].k].alive
	if r.decide(f) == Unknown {
		t.c[n].phase, t.c[n].val = Open.After(Reply), 3
	}
}

// compare compares journal k with what the worker has taken by now, at the attach.
func (r *mRules) compare(t *world, k int) {
	w := &t.wk[k]
	e := r.evidence(w)
	if w.harm.bad || r.judge(e) != Damaged || r.broken["Compare"] {
		return
	}
	w.harm.bad = true
	r.renew(t)
	for n := range t.c {
		if c := t.c[n]; c.phase == Open && int(c.k) == k && e.hidesAll() {
			r.doubt(t, n)
		}
	}
}

// readAgain adds the steps in which a journal can be read again, or that is given up.
func (r *mRules) readAgain(s world, add adder) {
	for k := range s.wk {
		if !s.damage.unread[k] {
			continue
		}
		t := s
		t.damage.unread[k], t.wk[k].harm.fails = false, false
		before := t.c
		r.load(&t, k)
		for n := range t.c { // what is known of its client stays
			t.c[n].claim = before[n].claim
		}
		add(t, "journal %d is read", k)
		t = s
		t.damage.unread[k], t.wk[k].harm.bad = false, true
		r.renew(&t)
		add(t, "journal %d is given up", k)
	}
}

// TestModelOfDamage checks that what happens to a journal while no daemon runs has no call made
// twice and none answered by another's answer.
func TestModelOfDamage(t *testing.T) {
	r := sound()
	r.harms = 1
	kills, workerKills := int8(2), int8(0)
	if testing.Short() {
		kills = 1
	}
	if os.Getenv("HOLDLINE_LONG") != "" {
		workerKills = 1
	}
	states, trace := r.explore(kills, workerKills)
	for _, step := range trace {
		t.Error(step)
	}
	t.Logf("%d states", states)
}

// TestModelOfDamageBroken breaks each rule about damaged journals in turn. The model must notice
// each time.
func TestModelOfDamageBroken(t *testing.T) {
	for name, spoil := range map[string]func(*mRules){
		"a journal is always believed": func(r *mRules) { r.judge = func(Evidence) Soundness { return Whole } },
		"damaged lines are left out": func(r *mRules) {
			r.judge = func(e Evidence) Soundness { e.Intact = true; return e.Verdict() }
		},
		"an empty journal is a new one": func(r *mRules) {
			r.judge = func(e Evidence) Soundness {
				if e.Empty {
					return Absent
				}
				return e.Verdict()
			}
		},
		"the worker's last write is not compared": func(r *mRules) { r.broken["NoTaken"] = true },
		"it is not compared again at the attach":  func(r *mRules) { r.broken["Compare"] = true },
		"the register is not kept":                func(r *mRules) { r.broken["Register"] = true },
		"the store keeps its id":                  func(r *mRules) { r.broken["NewStore"] = true },
		"a damaged directory is removed at once":  func(r *mRules) { r.broken["DamageStays"] = true },
		"an error that passes is no record":       func(r *mRules) { r.broken["Passing"] = true },
		"what may have been made is made": func(r *mRules) {
			r.decide = func(f Facts) Action {
				if f.Damaged && !f.Recorded {
					f.Damaged = false
				}
				return Decide(f)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := sound()
			r.harms = 1
			spoil(&r)
			workerKills := int8(0)
			if r.broken["DamageStays"] {
				workerKills = 1
			}
			states, trace := r.explore(2, workerKills)
			if trace == nil {
				t.Fatalf("nothing wrong in %d states", states)
			}
			t.Logf("%d states, %d steps: %s", states, len(trace), trace[len(trace)-1])
		})
	}
}
