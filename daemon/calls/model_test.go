package calls

import (
	"fmt"
	"os"
	"testing"

	"holdline/protocol/faultpoint"
)

// The first model is the line reduced to what decides: one client and its proxy, daemons
// that die and follow each other, workers that die, and two calls that may not run twice.
// It walks every order of their steps. [Decide], [Phase], [Claim], [AckBefore] and
// [MayRemoveDir] decide what happens to a call, as in the daemon. A daemon may detach the
// first call to the store of tasks: see model_task_test.go.
//
// The rules that other packages keep are broken by the names that the chaos test uses to
// break them in the real program.

// mRules is the law that the model follows: Decide, or a replacement that a test gives.
type mRules struct {
	decide func(Facts) Action
	claim  func(Claim, Demand) Claim
	detach bool            // the first call may be detached
	broken map[string]bool // rules of the store that are not kept
	harms  int8            // how often a journal may be damaged, or cannot be read for a while
	judge  func(Evidence) Soundness
}

const (
	mCalls   = 2
	mWorkers = 3
	mQueue   = 4
)

// Messages between proxy and daemon.
const (
	mNone = iota
	mAsk  // the client's line n
	mGot
	mResume // n is the set of lines that are pending
	mAnswer // val is 1 for the right answer, 2 for another's, 3 for unknown, 4 for the id of a task
)

type mMsg struct{ kind, n, val int8 }

// mCall is a call as the living daemon has it.
type mCall struct {
	phase  Phase
	claim  Claim
	write  int8 // how far its write is: see below
	routed bool // its answer is queued for the proxy
	k, w   int8 // worker and write that have it
	val    int8
}

// Steps of a write in phase Open.
const (
	wRecorded   = iota // on record, not sent
	wUnrecorded        // sent without its record, if the order is broken
	wSent              // on record and sent
)

type (
	mFrame struct{ ep, w, n int8 }
	mRec   struct{ n, w int8 } // n+1; 0 is none
	mOut   struct{ w, n int8 }
)

type mWorker struct {
	dir, alive  bool
	owner, last int8
	q           [mQueue]mFrame
	pipe, done  [2]mOut // taken by the worker; effect made
	out         [mQueue]mOut
	outs, acked int8
	recs        [mQueue]mRec
	harm        mHarm
}

type world struct {
	req    [mCalls]int8 // 0 not sent, 1 pending, 2 answered
	val    [mCalls]int8
	eff    [mCalls]int8
	conn   int8 // epoch of the daemon that the proxy is connected to
	p2d    [mQueue]mMsg
	d2p    [mQueue]mMsg
	alive  bool
	ep     int8
	pend   [mCalls]bool // the daemon has the client's line
	back   bool         // the proxy has resumed, or its session began here
	c      [mCalls]mCall
	att    [mWorkers]int8 // 0 unknown, 1 attached, 2 dead
	read   [mWorkers]int8
	next   [mWorkers]int8
	wk     [mWorkers]mWorker
	kills  int8 // of daemons
	wkills int8
	tasks  [mCalls]mTask
	damage mDamage
}

// push puts v at the first free place of q, and reports whether there was one.
func push[T comparable](q []T, v T) bool {
	var zero T
	for i := range q {
		if q[i] == zero {
			q[i] = v
			return true
		}
	}
	return false
}

func shift[T any](q []T) {
	var zero T
	copy(q, q[1:])
	q[len(q)-1] = zero
}

// forgetVolatile removes what a daemon's death destroys.
func (s *world) forgetVolatile() {
	s.pend, s.c, s.back = [mCalls]bool{}, [mCalls]mCall{}, false
	s.att, s.read, s.next = [mWorkers]int8{}, [mWorkers]int8{}, [mWorkers]int8{}
	s.p2d = [mQueue]mMsg{}
	s.damage.since, s.damage.unread = [mCalls]int8{}, [mWorkers]bool{}
}

// record finds the record of call n, in the newest directory.
func (s *world) record(n int) (k, i int) {
	for k := mWorkers - 1; k >= 0; k-- {
		for i := mQueue - 1; s.wk[k].dir && i >= 0; i-- {
			if int(s.wk[k].recs[i].n) == n+1 {
				return k, i
			}
		}
	}
	return -1, -1
}

// drop removes the records of call n.
func (s *world) drop(n int) {
	for k := range s.wk {
		recs := s.wk[k].recs
		s.wk[k].recs = [mQueue]mRec{}
		for _, r := range recs {
			if r.n != 0 && int(r.n) != n+1 {
				push(s.wk[k].recs[:], r)
			}
		}
	}
	s.tasks[n].recorded = false
}

// up reports whether the proxy is connected to the daemon that lives.
func (s *world) up() bool { return s.alive && s.conn == s.ep }

type mStep struct {
	to   world
	name string
}

// steps returns all steps that may happen next.
func (r *mRules) steps(s world, maxKills, maxWorkerKills int8) (all []mStep) {
	add := func(t world, format string, args ...any) { all = append(all, mStep{t, fmt.Sprintf(format, args...)}) }
	r.client(s, add)
	r.deaths(s, maxKills, maxWorkerKills, add)
	r.harm(s, add)
	for k := range s.wk {
		r.worker(s, k, add)
	}
	if s.alive {
		r.readAgain(s, add)
		r.listen(s, add)
		for k := range s.wk {
			r.watch(s, k, add)
		}
		for n := range s.c {
			r.call(s, n, add)
		}
	}
	return all
}

type adder func(t world, format string, args ...any)

// client adds the steps of the client and its proxy.
func (r *mRules) client(s world, add adder) {
	for n := range s.req {
		if s.req[n] != 0 {
			continue
		}
		t := s
		t.req[n] = 1
		if !s.up() || push(t.p2d[:], mMsg{mAsk, int8(n), 0}) {
			add(t, "the client asks %d", n)
		}
		break
	}
	if s.alive && s.conn != s.ep && s.d2p[0].kind == mNone {
		t := s
		t.conn, t.damage.knows = s.ep, s.damage.store
		var pending int8
		for n := range s.req {
			if s.req[n] == 1 {
				pending |= 1 << n
			}
		}
		push(t.p2d[:], mMsg{mResume, pending, 0})
		for n := range s.req {
			if s.req[n] == 1 {
				push(t.p2d[:], mMsg{mAsk, int8(n), s.damage.knows + 1})
			}
		}
		add(t, "the proxy resumes, pending %b", pending)
	}
	if m := s.d2p[0]; m.kind == mAnswer {
		t := s
		shift(t.d2p[:])
		if t.req[m.n] == 1 {
			t.req[m.n], t.val[m.n] = 2, m.val
		}
		if !s.up() || push(t.p2d[:], mMsg{mGot, m.n, 0}) {
			add(t, "the proxy reads the answer to %d", m.n)
		}
	}
}

// deaths adds the deaths of daemons and workers.
func (r *mRules) deaths(s world, maxKills, maxWorkerKills int8, add adder) {
	if !s.alive {
		t := s
		t.alive = true
		t.ep++
		t.forgetVolatile()
		for k := range t.wk {
			if t.wk[k].harm.fails {
				t.damage.unread[k] = !r.broken["Passing"]
				continue
			}
			r.load(&t, k)
		}
		for n := range t.c {
			r.loadTask(&t, n)
		}
		add(t, "daemon %d starts", t.ep)
	} else if s.kills < maxKills {
		t := s
		t.alive = false
		t.kills++
		t.forgetVolatile()
		add(t, "the daemon is killed")
		for i := mQueue - 1; i >= 0 && s.conn == s.ep; i-- {
			if s.d2p[i].kind != mNone {
				t.d2p[i] = mMsg{}
				add(t, "the daemon is killed in its last line")
				break
			}
		}
	}
	for k := range s.wk {
		if !s.wk[k].alive || s.wkills >= maxWorkerKills {
			continue
		}
		t := s
		w := &t.wk[k]
		*w = mWorker{dir: w.dir, owner: w.owner, last: w.last, acked: w.acked, recs: w.recs, harm: w.harm}
		t.wkills++
		add(t, "worker %d is killed", k)
	}
}

// worker adds the steps of worker k.
func (r *mRules) worker(s world, k int, add adder) {
	w := s.wk[k]
	if !w.alive {
		return
	}
	for i, f := range w.q {
		older := f.w == 0
		for j := range i {
			older = older || w.q[j].ep == f.ep
		}
		if older {
			continue
		}
		t := s
		x := &t.wk[k]
		copy(x.q[i:], w.q[i+1:])
		x.q[mQueue-1] = mFrame{}
		if f.ep != w.owner && !faultpoint.Broken("worker.fence") || f.w <= w.last {
			add(t, "worker %d leaves out write %d", k, f.w)
			continue
		}
		x.last = f.w
		if push(x.pipe[:], mOut{f.w, f.n}) {
			add(t, "worker %d takes write %d, call %d", k, f.w, f.n)
		}
	}
	if o := w.pipe[0]; o.w != 0 {
		t := s
		x := &t.wk[k]
		shift(x.pipe[:])
		t.eff[o.n]++
		if push(x.done[:], o) {
			add(t, "child %d does call %d", k, o.n)
		}
	}
	if o := w.done[0]; o.w != 0 && w.outs < mQueue {
		t := s
		x := &t.wk[k]
		shift(x.done[:])
		x.out[x.outs] = o
		x.outs++
		add(t, "child %d answers write %d", k, o.w)
	}
}

// listen adds the step in which the daemon reads what the proxy sent.
func (r *mRules) listen(s world, add adder) {
	m := s.p2d[0]
	if !s.up() || m.kind == mNone {
		return
	}
	t := s
	shift(t.p2d[:])
	switch m.kind {
	case mAsk:
		t.pend[m.n], t.damage.since[m.n] = true, m.val
		t.c[m.n].claim = r.claim(t.c[m.n].claim, Ask)
	case mGot:
		r.confirm(&t, int(m.n))
	case mResume:
		t.back = true
		for n := range t.c {
			if t.c[n].claim.IsDetached() {
				if m.n>>n&1 == 0 {
					r.confirm(&t, n)
				}
				continue
			}
			claim := Unclaimed
			if m.n>>n&1 == 0 {
				claim = r.claim(claim, Confirm)
			}
			// No call of this model is cancelled. So one that is not pending has its
			// answer, even if its output was acknowledged and is not read again.
			f := t.c[n].phase.Facts()
			f.Pending, f.Answered = claim.Wanted(), true
			if a := r.decide(f); t.c[n].phase != New && a == Forget {
				r.settle(&t, n)
			}
		}
	}
	add(t, "the daemon reads %d of %d", m.kind, m.n)
}

func (r *mRules) settle(t *world, n int) {
	t.c[n].phase, t.c[n].routed = t.c[n].phase.After(Settle), false
	if k, i := t.record(n); i >= 0 && t.att[k] == 1 && t.wk[k].alive {
		return // the record goes with the ack
	}
	t.drop(n)
}

// watch adds the steps in which the daemon learns about worker k.
func (r *mRules) watch(s world, k int, add adder) {
	w := s.wk[k]
	if !w.dir || s.damage.unread[k] {
		return
	}
	switch {
	case s.att[k] == 0 && w.alive:
		t := s
		r.compare(&t, k)
		t.att[k], t.wk[k].owner, t.read[k], t.next[k] = 1, s.ep, w.acked, w.last+1
		for _, rec := range w.recs {
			f := Open.Facts()
			f.Pending, f.Taken, f.Alive = true, rec.w <= w.last, true
			if rec.n == 0 || t.c[rec.n-1].phase != Open || r.decide(f) != Dispatch {
				continue
			}
			t.void(k, rec.w)
			t.c[rec.n-1] = mCall{phase: Open.After(Unsent), claim: s.c[rec.n-1].claim}
		}
		add(t, "the daemon attaches worker %d, which took %d", k, w.last)
	case s.att[k] != 2 && !w.alive:
		t := s
		r.compare(&t, k)
		t.att[k] = 2
		for n := range t.c {
			switch {
			case t.c[n].phase != Open || int(t.c[n].k) != k:
			case t.c[n].write == wRecorded:
				t.drop(n) // it was certainly not sent
				t.c[n] = mCall{phase: Open.After(Unsent), claim: s.c[n].claim}
			default:
				t.c[n].phase = Open.After(Lose)
			}
		}
		add(t, "the daemon sees that worker %d is dead", k)
	case s.att[k] == 2 && w.harm.bad && !r.broken["DamageStays"]:
		// It stays until no session of an earlier daemon is expected any more.
	case s.att[k] == 2:
		unconfirmed := 0
		for _, rec := range w.recs {
			if rec.n != 0 {
				unconfirmed++
				if c := s.c[rec.n-1]; c.phase != Over && !c.routed {
					return // what became of it is not known yet
				}
			}
		}
		if !MayRemoveDir(unconfirmed) {
			break
		}
		t := s
		t.wk[k] = mWorker{}
		t.att[k] = 0
		add(t, "the daemon removes directory %d", k)
	}
	if s.att[k] != 1 || !w.alive {
		return
	}
	if s.read[k] < w.outs {
		r.output(s, k, add)
	}
	r.ack(s, k, add)
}

// void drops the record of a write that was not made.
func (s *world) void(k int, write int8) {
	recs := s.wk[k].recs
	s.wk[k].recs = [mQueue]mRec{}
	for _, rec := range recs {
		if rec.n != 0 && rec.w != write {
			push(s.wk[k].recs[:], rec)
		} else if rec.n != 0 {
			s.tasks[rec.n-1].recorded = false
		}
	}
}

// output adds the step in which the daemon reads one line of worker k.
func (r *mRules) output(s world, k int, add adder) {
	o := s.wk[k].out[s.read[k]]
	t := s
	t.read[k]++
	to := int8(-1)
	for _, rec := range s.wk[k].recs { // only the records say whose answer it is
		if rec.n != 0 && rec.w == o.w {
			to = rec.n - 1
		}
	}
	if to >= 0 && t.c[to].phase == Open {
		val := int8(1)
		if to != o.n {
			val = 2
		}
		t.c[to] = mCall{phase: Open.After(Reply), claim: s.c[to].claim, routed: s.c[to].routed, k: int8(k), w: o.w, val: val}
	}
	add(t, "the daemon reads the answer to write %d of worker %d", o.w, k)
}

// ack adds the step that acknowledges what the proxy has confirmed.
func (r *mRules) ack(s world, k int, add adder) {
	t := s
	w := &t.wk[k]
	upTo := int64(s.read[k])
	for i := w.acked; i < s.read[k]; i++ {
		for _, rec := range w.recs {
			if rec.n == 0 || rec.w != w.out[i].w {
				continue
			}
			if s.c[rec.n-1].phase != Over {
				upTo = AckBefore(upTo, int64(i)+1)
			} else {
				t.void(k, rec.w)
			}
		}
	}
	w.acked = max(w.acked, int8(upTo))
	if w.acked > s.wk[k].acked {
		add(t, "the daemon acks %d of worker %d", w.acked, k)
	}
}

// call adds what the daemon does next about call n.
func (r *mRules) call(s world, n int, add adder) {
	c := s.c[n]
	if c.phase == Open && c.write != wSent {
		r.send(s, n, add)
		return
	}
	if r.task(s, n, add) {
		return
	}
	if !s.pend[n] || c.routed || c.phase == Over || c.phase != New && c.phase != Answered && s.att[c.k] == 0 {
		return // it waits for its worker, or has nothing to do
	}
	if c.phase == New && s.damage.isUnread() {
		return // its record may be there
	}
	f := c.phase.Facts()
	f.Pending, f.Alive = true, c.phase != New && s.att[c.k] == 1
	f.Damaged = c.phase == New && s.damage.since[n] > 0 && s.damage.since[n] <= s.damage.store
	answer := func(val int8) {
		t := s
		t.c[n].routed = true
		if s.up() && push(t.d2p[:], mMsg{mAnswer, int8(n), val}) {
			add(t, "the daemon answers %d with %d", n, val)
		}
	}
	switch r.decide(f) {
	case Deliver:
		answer(c.val)
	case Unknown:
		answer(3)
	case Dispatch:
		r.dispatch(s, n, add)
	case Wait, Forget, Cancel, Fail:
	}
}

// dispatch puts call n on record with a worker, and makes one if there is none.
func (r *mRules) dispatch(s world, n int, add adder) {
	t := s
	k := -1
	for i := range t.wk {
		if t.wk[i].harm.bad && !r.broken["NoMoreWrites"] {
			continue // it takes no more writes
		}
		if t.wk[i].alive && t.wk[i].dir && t.att[i] == 0 {
			return // a worker is about to be adopted
		}
		if t.att[i] == 1 && t.wk[i].alive {
			k = i
		}
	}
	for i := range t.wk {
		if k < 0 && !t.wk[i].dir && !t.wk[i].harm.bad {
			k = i
			t.wk[i] = mWorker{dir: true, alive: true, owner: s.ep}
			t.att[i], t.next[i], t.read[i] = 1, 1, 0
		}
	}
	if k < 0 {
		return
	}
	for m := range t.c {
		if t.c[m].phase == Open && t.c[m].write == wRecorded && int(t.c[m].k) == k {
			return // one write after the other
		}
	}
	t.drop(n)
	t.tasks[n].recorded = s.c[n].claim.IsDetached() // the new record says so, too
	t.c[n] = mCall{phase: t.c[n].phase.After(Sent), claim: s.c[n].claim, routed: s.c[n].routed, k: int8(k), w: t.next[k]}
	if !faultpoint.Broken("record.first") && !push(t.wk[k].recs[:], mRec{int8(n + 1), t.next[k]}) {
		return
	}
	t.wk[k].harm.covers = t.next[k]
	t.next[k]++
	add(t, "call %d becomes write %d of worker %d", n, t.c[n].w, k)
}

// send adds the write of call n.
func (r *mRules) send(s world, n int, add adder) {
	c := s.c[n]
	t := s
	w := &t.wk[c.k]
	if c.write == wUnrecorded { // the broken order writes the record afterwards
		t.c[n].write = wSent
		if push(w.recs[:], mRec{int8(n + 1), c.w}) {
			add(t, "call %d is recorded", n)
		}
		return
	}
	if s.att[c.k] != 1 || !push(w.q[:], mFrame{s.ep, c.w, int8(n)}) {
		return
	}
	t.c[n].write = wSent
	if faultpoint.Broken("record.first") {
		t.c[n].write = wUnrecorded
	}
	add(t, "call %d is sent", n)
}

// wrong returns what is wrong with a state, or "".
func (s *world) wrong() string {
	for n := range s.req {
		switch {
		case s.eff[n] > 1:
			return fmt.Sprintf("call %d has had its effect %d times", n, s.eff[n])
		case s.val[n] == 2:
			return fmt.Sprintf("call %d got another's answer", n)
		case s.val[n] == 1 && s.eff[n] != 1:
			return fmt.Sprintf("call %d was answered and has had its effect %d times", n, s.eff[n])
		case s.val[n] == 3 && s.wkills == 0 && s.damage.harms == 0:
			return fmt.Sprintf("call %d is said to be unknown, and no worker was killed", n)
		}
		if wrong := s.tasks[n].wrong(s, n); wrong != "" {
			return wrong
		}
	}
	return ""
}

// explore walks every order of steps. It returns the shortest trace to a wrong state, or
// nil.
func (r *mRules) explore(maxKills, maxWorkerKills int8) (states int, trace []string) {
	type from struct {
		at   int
		name string
	}
	first := world{alive: true, back: true}
	seen := map[world]struct{}{first: {}}
	queue, came := []world{first}, []from{{-1, ""}}
	way := func(i int, last string) []string {
		trace := []string{last}
		for ; i > 0; i = came[i].at {
			trace = append([]string{came[i].name}, trace...)
		}
		return trace
	}
	for i := 0; i < len(queue); i++ {
		s := queue[i]
		steps := r.steps(s, maxKills, maxWorkerKills)
		for _, step := range steps {
			if _, ok := seen[step.to]; ok {
				continue
			}
			seen[step.to] = struct{}{}
			queue, came = append(queue, step.to), append(came, from{i, step.name})
			if wrong := step.to.wrong(); wrong != "" {
				return len(seen), way(len(queue)-1, wrong)
			}
		}
		if len(steps) > 0 {
			continue
		}
		for n := range s.req {
			if s.req[n] != 2 {
				return len(seen), way(i, fmt.Sprintf("call %d is never answered", n))
			}
			if s.val[n] == 4 && s.tasks[n].file != 2 {
				return len(seen), way(i, fmt.Sprintf("the task of call %d never ends", n))
			}
			if s.tasks[n].file != 0 && s.c[n].phase != Over && s.tasks[n].recorded {
				return len(seen), way(i, fmt.Sprintf("the record of the detached call %d stays", n))
			}
		}
	}
	return len(seen), nil
}

func sound() mRules {
	return mRules{decide: Decide, claim: Claim.After, broken: map[string]bool{}, judge: Evidence.Verdict}
}

// TestModel checks that with all rules kept each call is answered once, has its effect at
// most once, and is answered as unknown only if a worker was killed.
func TestModel(t *testing.T) {
	r := sound()
	kills, workerKills := int8(2), int8(1)
	if testing.Short() {
		kills = 1
	}
	if os.Getenv("HOLDLINE_LONG") != "" {
		workerKills = 2
	}
	states, trace := r.explore(kills, workerKills)
	for _, step := range trace {
		t.Error(step)
	}
	t.Logf("%d states", states)
	if states < 10_000 {
		t.Errorf("%d states: the model does not get far", states)
	}
}

// TestModelBroken breaks each rule, and each row of the decision, in turn. The model must
// notice each time.
func TestModelBroken(t *testing.T) {
	change := func(row Facts, a Action) func(Facts) Action {
		return func(f Facts) Action {
			f.Convergent = false
			if f == row {
				return a
			}
			return Decide(f)
		}
	}
	pending := func(f Facts) Facts {
		f.Pending, f.Call = true, true
		return f
	}
	breaks := func(rule string) func(*mRules) {
		return func(*mRules) { faultpoint.Break(func(name string) bool { return name == rule }) }
	}
	for name, spoil := range map[string]func(*mRules){
		"a worker takes any write":        breaks("worker.fence"),
		"records come after the write":    breaks("record.first"),
		"output is acked when it is read": breaks("ack.confirmed"),
		"directories are removed at once": breaks("directory.kept"),
		"what is under way is made again": func(r *mRules) {
			r.decide = change(pending(Facts{Recorded: true, Taken: true, Alive: true}), Dispatch)
		},
		"what was not taken is waited for": func(r *mRules) {
			r.decide = change(pending(Facts{Recorded: true, Alive: true}), Wait)
		},
		"the dead one's call is made again": func(r *mRules) {
			r.decide = change(pending(Facts{Recorded: true}), Dispatch)
		},
		"the dead one's call is waited for": func(r *mRules) {
			r.decide = change(pending(Facts{Recorded: true}), Wait)
		},
		"what was never made is unknown": func(r *mRules) { r.decide = change(pending(Facts{}), Unknown) },
		"an answer that is there is unknown": func(r *mRules) {
			r.decide = change(pending(Facts{Recorded: true, Alive: true, Answered: true}), Unknown)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer faultpoint.Break(nil)
			r := sound()
			spoil(&r)
			states, trace := r.explore(1, 1)
			if trace == nil {
				t.Fatalf("nothing wrong in %d states", states)
			}
			t.Logf("%d states, %d steps: %s", states, len(trace), trace[len(trace)-1])
		})
	}
}
