package calls

import (
	"fmt"
	"testing"
)

// The model is the line with everything left out but what decides: one client
// and its proxy, daemons that die and follow each other, workers that die, two
// calls that may not run twice. Every order of their steps is walked through,
// and what becomes of a call is decided by the program's own Decide.

// rules are what the program keeps to. Each may be broken alone.
type rules struct {
	fence   bool // after an attach a worker takes nothing from an older connection
	before  bool // the record comes before the write
	ackGot  bool // output is acked once its client has confirmed it
	keepDir bool // a dead worker's directory stays until its calls are confirmed
	decide  func(Facts) Action
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
	mAnswer // val is 1 for the right answer, 2 for another's, 3 for unknown
)

type mMsg struct{ kind, n, val int8 }

// Where a call stands with the daemon that lives.
const (
	dNew      = iota
	dRecorded // on record, not sent
	dSent     // without its record, if that comes later
	dOpen     // with a worker
	dAnswered // answer read
	dRouted   // answer queued for the proxy
	dDone     // confirmed
)

type mCall struct{ state, k, w, val int8 }

type (
	mFrame struct{ ep, w, n int8 }
	mRec   struct{ n, w int8 } // n+1; 0 is none
	mOut   struct{ w, n int8 }
)

type mWorker struct {
	dir, alive  bool
	owner, last int8
	q           [mQueue]mFrame
	pipe, done  [2]mOut // taken; effect made
	out         [mQueue]mOut
	outs, acked int8
	recs        [mQueue]mRec
}

type world struct {
	req    [mCalls]int8 // 0 not sent, 1 pending, 2 answered
	val    [mCalls]int8
	eff    [mCalls]int8
	conn   int8 // epoch that the proxy is connected to
	p2d    [mQueue]mMsg
	d2p    [mQueue]mMsg
	alive  bool
	ep     int8
	pend   [mCalls]bool // the daemon has the client's line
	back   bool         // the proxy has resumed, or began here
	c      [mCalls]mCall
	att    [mWorkers]int8 // 0 not looked at, 1 attached, 2 dead
	read   [mWorkers]int8
	next   [mWorkers]int8
	wk     [mWorkers]mWorker
	kills  int8 // of daemons
	wkills int8
}

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

// forgetVolatile is what a daemon's death takes with it.
func (s *world) forgetVolatile() {
	s.pend, s.c, s.back = [mCalls]bool{}, [mCalls]mCall{}, false
	s.att, s.read, s.next = [mWorkers]int8{}, [mWorkers]int8{}, [mWorkers]int8{}
	s.p2d = [mQueue]mMsg{}
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
}

// up tells whether the proxy is connected to the daemon that lives.
func (s *world) up() bool { return s.alive && s.conn == s.ep }

type mStep struct {
	to   world
	name string
}

// steps are all that may happen next.
func (r *rules) steps(s world, maxKills, maxWorkerKills int8) (all []mStep) {
	add := func(t world, format string, args ...any) { all = append(all, mStep{t, fmt.Sprintf(format, args...)}) }
	r.client(s, add)
	r.deaths(s, maxKills, maxWorkerKills, add)
	for k := range s.wk {
		r.worker(s, k, add)
	}
	if s.alive {
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

func (r *rules) client(s world, add adder) {
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
		t.conn = s.ep
		var pending int8
		for n := range s.req {
			if s.req[n] == 1 {
				pending |= 1 << n
			}
		}
		push(t.p2d[:], mMsg{mResume, pending, 0})
		for n := range s.req {
			if s.req[n] == 1 {
				push(t.p2d[:], mMsg{mAsk, int8(n), 0})
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

func (r *rules) deaths(s world, maxKills, maxWorkerKills int8, add adder) {
	if !s.alive {
		t := s
		t.alive = true
		t.ep++
		t.forgetVolatile()
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
		*w = mWorker{dir: w.dir, owner: w.owner, last: w.last, acked: w.acked, recs: w.recs}
		t.wkills++
		add(t, "worker %d is killed", k)
	}
}

func (r *rules) worker(s world, k int, add adder) {
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
		if r.fence && f.ep != w.owner || f.w <= w.last {
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

// listen is the daemon reading what the proxy sent.
func (r *rules) listen(s world, add adder) {
	m := s.p2d[0]
	if !s.up() || m.kind == mNone {
		return
	}
	t := s
	shift(t.p2d[:])
	switch m.kind {
	case mAsk:
		t.pend[m.n] = true
	case mGot:
		r.settle(&t, int(m.n))
	case mResume:
		t.back = true
		for n := range t.c {
			if k, i := t.record(n); i >= 0 && m.n>>n&1 == 0 {
				// The output that an earlier daemon had acked is not read again, so
				// that this is only asked of calls that have none.
				f := Facts{Recorded: true, Taken: t.wk[k].recs[i].w <= t.wk[k].last, Alive: t.wk[k].alive, Answered: true, Call: true}
				if a := r.decide(f); a == Forget || a == Cancel {
					r.settle(&t, n)
				}
			}
		}
	}
	add(t, "the daemon reads %d of %d", m.kind, m.n)
}

func (r *rules) settle(t *world, n int) {
	t.c[n].state = dDone
	if k, i := t.record(n); i >= 0 && t.att[k] == 1 && t.wk[k].alive {
		return // it goes with the ack
	}
	t.drop(n)
}

// watch is the daemon and worker k.
func (r *rules) watch(s world, k int, add adder) {
	w := s.wk[k]
	if !w.dir {
		return
	}
	switch {
	case s.att[k] == 0 && w.alive:
		t := s
		t.att[k], t.wk[k].owner, t.read[k], t.next[k] = 1, s.ep, w.acked, w.last+1
		for _, rec := range w.recs {
			f := Facts{Pending: true, Recorded: true, Taken: rec.w <= w.last, Alive: true, Call: true}
			if rec.n != 0 && r.decide(f) == Dispatch {
				t.void(k, rec.w)
			}
		}
		add(t, "the daemon attaches worker %d, which took %d", k, w.last)
	case s.att[k] != 2 && !w.alive:
		t := s
		t.att[k] = 2
		for n := range t.c {
			if t.c[n].state == dRecorded && int(t.c[n].k) == k {
				t.drop(n) // it was certainly not sent
				t.c[n] = mCall{}
			}
		}
		add(t, "the daemon sees that worker %d is dead", k)
	case s.att[k] == 2:
		if r.keepDir && w.recs != [mQueue]mRec{} {
			break
		}
		for n := range s.c {
			if (s.c[n].state == dOpen || s.c[n].state == dSent) && int(s.c[n].k) == k {
				return // it is not said yet what became of it
			}
		}
		if _, i := s.recordIn(k); i >= 0 && !r.keepDir && !s.allKnown(k) {
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

func (s *world) recordIn(k int) (n, i int) {
	for i, rec := range s.wk[k].recs {
		if rec.n != 0 {
			return int(rec.n - 1), i
		}
	}
	return -1, -1
}

// allKnown tells whether everything in directory k was said to the proxy.
func (s *world) allKnown(k int) bool {
	for _, rec := range s.wk[k].recs {
		if rec.n != 0 && s.c[rec.n-1].state < dRouted {
			return false
		}
	}
	return true
}

// void drops the record of a write that was not made.
func (s *world) void(k int, write int8) {
	recs := s.wk[k].recs
	s.wk[k].recs = [mQueue]mRec{}
	for _, rec := range recs {
		if rec.n != 0 && rec.w != write {
			push(s.wk[k].recs[:], rec)
		}
	}
}

// output is the daemon reading one line of worker k.
func (r *rules) output(s world, k int, add adder) {
	o := s.wk[k].out[s.read[k]]
	t := s
	t.read[k]++
	to := int8(-1)
	for _, rec := range s.wk[k].recs { // the records alone know whose it is
		if rec.n != 0 && rec.w == o.w {
			to = rec.n - 1
		}
	}
	if to >= 0 && t.c[to].state < dAnswered {
		val := int8(1)
		if to != o.n {
			val = 2
		}
		t.c[to] = mCall{dAnswered, int8(k), o.w, val}
	}
	if !r.ackGot {
		t.wk[k].acked = t.read[k]
	}
	add(t, "the daemon reads the answer to write %d of worker %d", o.w, k)
}

// ack frees what the proxy has confirmed.
func (r *rules) ack(s world, k int, add adder) {
	t := s
	w := &t.wk[k]
	for w.acked < s.read[k] {
		free := true
		for _, rec := range w.recs {
			free = free && (rec.n == 0 || rec.w != w.out[w.acked].w || s.c[rec.n-1].state == dDone)
		}
		if !free {
			break
		}
		t.void(k, w.out[w.acked].w)
		w.acked++
	}
	if w.acked > s.wk[k].acked {
		add(t, "the daemon acks %d of worker %d", w.acked, k)
	}
}

// call is what the daemon does next about call n.
func (r *rules) call(s world, n int, add adder) {
	c := s.c[n]
	if c.state == dRecorded || c.state == dSent {
		r.send(s, n, add)
		return
	}
	if !s.pend[n] || c.state >= dRouted {
		return
	}
	k, i := s.record(n)
	if i >= 0 && s.att[k] == 0 {
		return // its worker is waited for
	}
	f := Facts{Pending: true, Call: true}
	if i >= 0 {
		f.Recorded, f.Alive, f.Answered = true, s.att[k] == 1, c.state == dAnswered
		f.Taken = c.state == dOpen || s.wk[k].recs[i].w < s.next[k]
	}
	if c.state == dOpen && i < 0 {
		f.Recorded, f.Taken, f.Alive = true, true, s.att[c.k] == 1
	}
	if c.state == dAnswered {
		f.Recorded, f.Answered = true, true
	}
	answer := func(val int8) {
		t := s
		t.c[n].state = dRouted
		if s.up() && push(t.d2p[:], mMsg{mAnswer, int8(n), val}) {
			if !r.ackGot {
				t.drop(n)
			}
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
	case Wait, Forget, Cancel:
	}
}

// dispatch puts call n on record with a worker, which is made if there is none.
func (r *rules) dispatch(s world, n int, add adder) {
	t := s
	k := -1
	for i := range t.wk {
		if t.wk[i].alive && t.wk[i].dir && t.att[i] == 0 {
			return // one is about to be taken up
		}
		if t.att[i] == 1 && t.wk[i].alive {
			k = i
		}
	}
	for i := range t.wk {
		if k < 0 && !t.wk[i].dir {
			k = i
			t.wk[i] = mWorker{dir: true, alive: true, owner: s.ep}
			t.att[i], t.next[i], t.read[i] = 1, 1, 0
		}
	}
	if k < 0 {
		return
	}
	for m := range t.c {
		if t.c[m].state == dRecorded && int(t.c[m].k) == k {
			return // one write after the other
		}
	}
	t.drop(n)
	t.c[n] = mCall{dRecorded, int8(k), t.next[k], 0}
	if r.before && !push(t.wk[k].recs[:], mRec{int8(n + 1), t.next[k]}) {
		return
	}
	t.next[k]++
	add(t, "call %d becomes write %d of worker %d", n, t.c[n].w, k)
}

// send makes the write of call n.
func (r *rules) send(s world, n int, add adder) {
	c := s.c[n]
	t := s
	w := &t.wk[c.k]
	if c.state == dSent { // the record comes behind, in the broken order
		t.c[n].state = dOpen
		if push(w.recs[:], mRec{int8(n + 1), c.w}) {
			add(t, "call %d is recorded", n)
		}
		return
	}
	if s.att[c.k] != 1 || !push(w.q[:], mFrame{s.ep, c.w, int8(n)}) {
		return
	}
	t.c[n].state = dOpen
	if !r.before {
		t.c[n].state = dSent
	}
	add(t, "call %d is sent", n)
}

// wrong says what is wrong with a state; "" for nothing.
func (s *world) wrong() string {
	for n := range s.req {
		switch {
		case s.eff[n] > 1:
			return fmt.Sprintf("call %d has had its effect %d times", n, s.eff[n])
		case s.val[n] == 2:
			return fmt.Sprintf("call %d got another's answer", n)
		case s.val[n] == 1 && s.eff[n] != 1:
			return fmt.Sprintf("call %d was answered and has had its effect %d times", n, s.eff[n])
		case s.val[n] == 3 && s.wkills == 0:
			return fmt.Sprintf("call %d is said to be unknown, and no worker was killed", n)
		}
	}
	return ""
}

// explore walks through every order of steps, and returns the shortest way to
// something wrong, if there is one.
func (r *rules) explore(maxKills, maxWorkerKills int8) (states int, trace []string) {
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
		}
	}
	return len(seen), nil
}

func sound() rules {
	return rules{fence: true, before: true, ackGot: true, keepDir: true, decide: Decide}
}

// TestModel: with every rule in force each call is answered once, has its
// effect at most once, and is said to be unknown only if a worker was killed.
func TestModel(t *testing.T) {
	r := sound()
	kills, workerKills := int8(2), int8(1)
	if testing.Short() {
		kills = 1
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

// TestModelBroken takes each rule away, and each row of the decision: the
// model notices.
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
	for name, spoil := range map[string]func(*rules){
		"a worker takes any write":          func(r *rules) { r.fence = false },
		"records come after the write":      func(r *rules) { r.before = false },
		"output is acked when it is routed": func(r *rules) { r.ackGot = false },
		"directories are removed at once":   func(r *rules) { r.keepDir = false },
		"what is under way is made again":   func(r *rules) { r.decide = change(pending(Facts{Recorded: true, Taken: true, Alive: true}), Dispatch) },
		"what was not taken is waited for":  func(r *rules) { r.decide = change(pending(Facts{Recorded: true, Alive: true}), Wait) },
		"the dead one's call is made again": func(r *rules) { r.decide = change(pending(Facts{Recorded: true}), Dispatch) },
		"the dead one's call is waited for": func(r *rules) { r.decide = change(pending(Facts{Recorded: true}), Wait) },
		"what was never made is unknown":    func(r *rules) { r.decide = change(pending(Facts{}), Unknown) },
		"an answer that is there is unknown": func(r *rules) {
			r.decide = change(pending(Facts{Recorded: true, Taken: true, Alive: true, Answered: true}), Unknown)
		},
	} {
		t.Run(name, func(t *testing.T) {
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
