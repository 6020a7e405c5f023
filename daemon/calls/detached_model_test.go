package calls

import (
	"os"
	"slices"
	"testing"
)

// The second model is one call that a private process serves. First a session attends it,
// then it is detached to the job store, as consults are. Its daemon decides by [Decide],
// [Phase] and [Claim] alone. The model plays the rest: the client and its proxy, the
// worker, the private process (the "engine") with the program that it starts, and the files
// of the job.
//
// The rules of the players have the names of RECOVERY.md, section 6. This package decides
// nothing about StopQueue, MarkFirst, AuditFirst, AuditOnce and the rules of panels; the
// tests of the job store check them.

// What the client has for line n.
const (
	notAsked int8 = iota
	waits
	hasAnswer
	hasID
	hasCancelled
	isGone
)

// What is in outcome.json, in the engine's answer, in answer.json, and on the way to the
// client.
const (
	outDone    int8 = iota + 1 // the program ended by itself
	outStopped                 // cancelled
	outFailed                  // [Fail]
	outUnknown                 // [Unknown]
	outID                      // not an answer, but the id to fetch it by
)

// The owner that the file of the job names.
const (
	byClient int8 = iota + 1
	byStore
)

// States of the worker.
const (
	noWorker int8 = iota
	forked        // it has not reached its lock yet
	living
	killed
	dismissed // it has exited in order
)

// States of the engine.
const (
	noEngine int8 = iota
	idle
	asked     // it has read the request
	noted     // its start line is on disk
	running   // the program was started
	decided   // its outcome is final
	filed     // outcome.json was written
	replied   // its answer is on stdout
	endedItem // it has exited or was killed
)

// life is the state of the whole model: everything about the one call.
type life struct {
	// The client and its proxy.
	client, value      int8
	proxyDead, conn    bool
	req, cancel, got   bool // on their way to the daemon
	wire               int8 // what is on its way to the client
	control            int8 // a cancellation by id: 1 asked, 2 answered
	toldID, wantsEnded bool // the client has the id; a cancellation is legitimate

	// Files. dir is 1 for the worker's directory alone, 2 if it has its spec.
	job, dir                int8
	state, record, begun    bool
	outcome, answer         int8
	onlyMemory, memoryStore bool // the job, or that it is detached, is not on disk

	// Worker, engine and program.
	worker, engine         int8
	late                   bool // a worker forked by a dead daemon is on its way to its lock
	attachedTo             int8 // epoch
	runFrame, oldRun       int8 // epochs of the daemons that sent the request
	cancelFrame            int8
	runTaken, cancelTaken  bool
	runTwice               bool
	line, said             int8 // the engine's answer: kept by the worker; ever written
	closed, heard, program bool
	starts, end            int8

	// The daemon's memory.
	up, attached, waiting  bool
	epoch                  int8
	phase                  Phase
	claim                  Claim
	recorded, cancelSent   bool // the request is on record, not sent; the cancellation was sent
	controlRead, confirmed bool
	lost, hunted           bool
	seen                   int8 // the outcome as the daemon found it when it saw that the worker is dead
	readLine               int8 // the engine's answer as the daemon read it
	fetched, marked        bool // a detached answer was fetched; the worker's directory is marked as owing an answer
	known                  bool // this daemon forked the worker, or found it at its start

	// Budgets, and what only the checks need.
	daemons, workers, engines, boots, full int8
	crashed, lostControl, heardFirst       bool
	pruned                                 bool
	wrong                                  int8
}

// wrongs are faults that are found while an answer is given.
var wrongs = []string{
	"", "a fault without doubt is said of a program that ran under a lost worker",
	"the outcome of a program that never ran is said to be unknown", "a fault is said of a call that was answered",
	"cancelled, and no party asked for it", "the cancellation was answered, and the program ran to its end",
	"cancelled first, and answered as done", "an id that was told is not known", "removed while its client waits",
	"said to have failed, though its process was told nothing and it could begin again",
}

// detachedRules are the law and the rules of the players. broken has the names of the rules
// that are not kept.
type detachedRules struct {
	decide func(Facts) Action
	judge  func(JobFacts) JobVerdict
	claim  func(Claim, Demand) Claim
	broken map[string]bool
	limits struct{ daemons, workers, engines, boots, full, control int8 }
}

// Kinds of steps. A run that can continue only by slow steps is quiet. One that can
// continue only by crashes and choices is at its end.
const (
	must = iota
	slow
	choice
	crash
)

type lifeStep struct {
	to   life
	kind int
	name string
}

type lifeAdder func(to life, kind int, name string)

// die removes what a daemon has only in memory.
func (s *life) die() {
	s.crashed = s.crashed || s.job != 0
	s.up, s.attached, s.waiting, s.conn, s.req, s.cancel, s.got = false, false, false, false, false, false, false
	s.phase, s.claim, s.recorded, s.cancelSent, s.controlRead, s.confirmed = New, Unclaimed, false, false, false, false
	s.lost, s.hunted, s.seen, s.readLine, s.fetched, s.marked, s.known = false, false, 0, 0, false, false, false
	if s.onlyMemory {
		s.job, s.onlyMemory = 0, false
	}
	s.memoryStore = false
	if s.worker == forked {
		s.worker, s.late = noWorker, true
	}
}

// killEngine kills the engine, and the program with it.
func (s *life) killEngine() {
	if s.engine >= idle && s.engine < endedItem {
		s.engine = endedItem
	}
	s.program = false
}

// jobFacts returns what a daemon that starts finds in the files of the job.
func (s *life) jobFacts() JobFacts {
	return JobFacts{
		Alive: s.worker == living, Spec: s.dir == 2, State: s.state, Boot: s.boots == 0, Job: s.job != 0,
		Answer: s.answer != 0, Told: s.runTaken || s.begun,
	}
}

// facts returns what the daemon knows. ok is false while it has to learn more first.
func (r *detachedRules) facts(s *life) (f Facts, ok bool) {
	f = s.phase.Facts()
	f.Pending, f.Private, f.Started, f.Begun = s.claim.Wanted(), true, s.state, s.begun
	outcome := s.outcome
	if r.broken["ReadLast"] && s.lost {
		outcome = s.seen
	}
	if r.broken["FileIsAnswer"] && s.lost {
		outcome = 0
	}
	f.Answered = outcome != 0 || s.readLine != 0
	switch s.worker {
	case living:
		f.Alive = !s.closed || s.line != s.readLine // output is read in order
		return f, s.attached && !s.recorded
	case killed:
		f.Killed, f.Taken, f.Again = true, s.runTaken, s.boots == 0
		return f, s.lost && s.hunted || f.Answered && s.lost
	case noWorker:
		return f, !s.late || s.dir == 0 || !f.Pending // a late worker is found by its lock or by its spec
	}
	return f, false
}

// settle writes answer.json.
func (s *life) settle(v int8) {
	s.answer = v
	switch {
	case v == outFailed && s.starts > 0 && s.worker == killed && !s.closed:
		s.wrong = 1
	case v == outUnknown && s.starts == 0 && !s.begun:
		s.wrong = 2
	case v == outFailed && s.worker == killed && !s.runTaken && s.boots == 0:
		s.wrong = 9
	case (v == outFailed || v == outUnknown) && s.said != 0:
		s.wrong = 3
	case v == outStopped && !s.wantsEnded:
		s.wrong = 4
	case v == outDone && s.lostControl:
		s.wrong = 5
	case v == outDone && s.heardFirst:
		s.wrong = 6
	}
}

// steps returns all steps that may happen next.
func (r *detachedRules) steps(s life) (all []lifeStep) {
	add := func(to life, kind int, name string) { all = append(all, lifeStep{to, kind, name}) }
	r.client(s, add)
	r.crashes(s, add)
	r.workerSteps(s, add)
	r.engineSteps(s, add)
	if !s.up {
		t := s
		t.up, t.epoch, t.known = true, s.epoch+1, s.worker == living
		if s.record {
			t.phase = t.phase.After(Sent)
		}
		if s.job == byStore { // it was cancelled or confirmed earlier: the two look the same
			t.claim = r.claim(r.claim(Awaited, Detach), Confirm)
		}
		if s.answer != 0 {
			t.phase = Over
		}
		if s.job != 0 && s.worker == killed && r.judge(s.jobFacts()) == JobWaits { // it begins again
			t.resetWorker()
			t.worker = noWorker
		}
		add(t, must, "a daemon starts")
		return all
	}
	r.lines(s, add)
	if s.job != 0 {
		r.attach(s, add)
		r.act(s, add)
		r.finish(s, add)
	}
	return all
}

// lines adds the steps in which the daemon reads from its client or writes to it.
func (r *detachedRules) lines(s life, add lifeAdder) {
	if s.req {
		t := s
		t.req, t.waiting, t.claim = false, true, r.claim(s.claim, Ask)
		if s.job == 0 {
			t.job, t.onlyMemory = byClient, r.broken["JobFirst"]
		}
		add(t, must, "the daemon reads line n")
	}
	if s.cancel && !s.req {
		t := s
		t.cancel, t.waiting, t.confirmed, t.claim = false, false, true, r.claim(s.claim, Withdraw)
		add(t, must, "the daemon reads the cancellation of line n")
	}
	if s.got {
		t := s
		t.got, t.confirmed, t.claim = false, true, r.claim(s.claim, Confirm)
		add(t, must, "the daemon reads that line n is confirmed")
	}
	if s.proxyDead && !s.req && !s.cancel && !s.got && (!s.confirmed || s.waiting) {
		t := s
		t.confirmed, t.waiting, t.claim = true, false, r.claim(s.claim, Close)
		add(t, must, "the session is over")
	}
	if s.control == 1 && !s.controlRead {
		t := s
		t.controlRead, t.claim = true, r.claim(s.claim, Withdraw)
		add(t, must, "the cancellation by id arrives")
	}
	if s.control == 1 && s.controlRead &&
		(s.job == 0 || s.answer != 0 || s.attached && s.cancelTaken || r.broken["ControlTaken"]) {
		t := s
		t.control = 2
		add(t, must, "the cancellation by id is answered")
	}
	if !s.waiting || s.wire != 0 || !s.conn {
		return
	}
	t := s
	t.waiting = false
	early := r.verdict(&s)
	switch {
	case s.answer != 0:
		t.wire = s.answer
		add(t, must, "the daemon answers line n")
	case r.broken["AnswerFirst"] && early != 0:
		t.wire = early
		add(t, must, "the daemon answers line n")
	case !s.claim.Wanted():
	case s.job == byStore:
		t.wire = outID
		add(t, must, "the daemon tells the id")
	case r.broken["DetachFirst"] && !s.memoryStore:
		t.wire, t.memoryStore, t.claim = outID, true, r.claim(s.claim, Detach)
		add(t, choice, "the daemon tells the id")
	case r.broken["JobFirst"] && s.onlyMemory:
		t.wire, t.memoryStore, t.claim = outID, true, r.claim(s.claim, Detach)
		add(t, choice, "the daemon tells the id")
	case !s.memoryStore:
		t.waiting, t.job, t.claim = true, byStore, r.claim(s.claim, Detach)
		add(t, choice, "the job's file says detached")
	}
}

// attach adds the steps in which the daemon finds out about the worker.
func (r *detachedRules) attach(s life, add lifeAdder) {
	if s.onlyMemory || s.memoryStore && s.job == byClient {
		t := s
		if t.onlyMemory = false; s.memoryStore {
			t.job = byStore
		}
		add(t, must, "the daemon writes the job's file")
	}
	if s.worker == living && !s.attached && (s.known || s.answer == 0) {
		t := s
		if t.attached, t.attachedTo = true, s.epoch; r.broken["Fence"] {
			t.oldRun = max(s.runFrame, s.oldRun)
		}
		t.runFrame, t.cancelFrame, t.cancelSent = 0, 0, s.cancelTaken
		if !s.runTaken {
			t.phase = t.phase.After(Unsent)
		}
		add(t, must, "the daemon attaches, and knows what was taken")
	}
	if s.attached && s.line != 0 && s.readLine == 0 {
		t := s
		t.readLine = s.line
		add(t, must, "the daemon reads the engine's answer")
	}
	if s.worker == killed && !s.lost && s.answer == 0 {
		t := s
		t.lost, t.attached, t.seen, t.phase = true, false, s.outcome, s.phase.After(Lose)
		t.hunted = r.broken["Hunt"]
		add(t, must, "the daemon finds the worker dead")
	}
	if s.lost && !s.hunted {
		t := s
		t.hunted = true
		t.killEngine()
		add(t, must, "the daemon kills what is left of the worker's processes")
	}
}

// verdict returns what answer.json must say, 0 if it is too early.
func (r *detachedRules) verdict(s *life) int8 {
	f, ok := r.facts(s)
	if !ok {
		return 0
	}
	value := s.outcome
	if value == 0 || r.broken["FileIsAnswer"] && s.lost {
		value = s.readLine
	}
	if r.broken["ReadLast"] && s.lost {
		value = max(s.seen, s.readLine)
	}
	switch r.decide(f) {
	case Deliver:
		return value
	case Fail:
		return outFailed
	case Unknown:
		return outUnknown
	case Forget: // the store settles every job, also an unwanted one
		switch {
		case value != 0:
			return value
		case s.worker == killed && s.begun:
			return outUnknown
		}
		return outStopped
	case Cancel, Dispatch, Wait:
	}
	return 0
}

// act adds the step that the daemon takes for the call.
func (r *detachedRules) act(s life, add lifeAdder) {
	if s.recorded {
		t := s
		if t.recorded = false; r.broken["RecordFirst"] {
			t.record = true
		} else {
			t.runFrame = s.epoch
		}
		add(t, must, "the daemon sends or records the run")
		return
	}
	f, ok := r.facts(&s)
	if !ok || s.answer != 0 {
		return
	}
	t := s
	switch action := r.decide(f); {
	case action == Dispatch && s.worker == living:
		t.phase, t.recorded = s.phase.After(Sent), true
		if r.broken["RecordFirst"] {
			t.runFrame = s.epoch
		} else {
			t.record = true
		}
		add(t, must, "the daemon records or sends the run")
	case action == Dispatch && s.dir == 0 && !s.marked:
		t.dir = 1
		add(t, must, "the worker's directory is made")
	case action == Dispatch && r.broken["QueueRow"] && s.crashed && !s.waiting:
		t.forgetJob()
		add(t, must, "a job without spec and state is removed")
	case action == Dispatch && s.dir > 0 && !s.late:
		t.dir, t.worker, t.known = 2, forked, true
		if s.worker == killed {
			t.resetWorker()
		}
		add(t, must, "the worker is forked")
	case action == Cancel && !s.cancelSent:
		t.cancelSent, t.cancelFrame = true, s.epoch
		add(t, must, "the daemon sends the cancellation")
	}
}

// resetWorker clears the state of the worker, so that the job can get another.
func (s *life) resetWorker() {
	s.state, s.engine, s.heard, s.end, s.line, s.closed, s.lost, s.hunted, s.attached = false, noEngine, false, 0, 0,
		false, false, false, false
	s.runFrame, s.oldRun, s.cancelFrame, s.runTaken, s.cancelTaken, s.runTwice, s.phase, s.cancelSent = 0, 0, 0, false,
		false, false, New, false
}

// forgetJob removes everything of a job.
func (s *life) forgetJob() {
	if s.toldID && !s.fetched {
		s.wrong = 7
	}
	if s.client == waits {
		s.wrong = 8
	}
	s.resetWorker()
	s.worker, s.job, s.dir, s.record, s.begun, s.outcome, s.answer, s.onlyMemory, s.marked = noWorker, 0, 0, false,
		false, 0, 0, false, false
	s.claim, s.readLine, s.pruned = Unclaimed, 0, true
}

// finish adds the steps of the end, in order: answer.json, dismissal, directory, job.
func (r *detachedRules) finish(s life, add lifeAdder) {
	if v := r.verdict(&s); v != 0 && s.answer == 0 && (!r.broken["AnswerFirst"] || !s.waiting || !s.conn) {
		t := s
		if s.dir == 0 && !s.confirmed && !r.broken["OwedMark"] {
			t.dir, t.marked = 1, true
			add(t, must, "a directory is made, since the answer is owed")
		} else {
			t.settle(v)
			t.phase = s.phase.After(Reply).After(Settle)
			if t.dir == 2 && !s.state && !r.broken["SpecGone"] {
				t.dir = 1
			}
			add(t, must, "answer.json is written")
		}
	}
	quietWorker := s.worker != living && s.worker != forked
	if (s.answer != 0 || r.broken["AckLast"] && s.readLine != 0 && s.closed) && s.worker == living && s.attached &&
		!r.broken["Dismiss"] {
		t := s
		t.worker, t.attached, t.runFrame, t.oldRun, t.cancelFrame, t.line = dismissed, false, 0, 0, 0, 0
		if s.answer == 0 { // the answer is only in memory
			t.worker, t.attached = living, true
			if s.line == 0 {
				return
			}
		}
		t.killEngine()
		add(t, must, "the daemon acknowledges, and the worker leaves")
	}
	if s.dir != 0 && (s.answer != 0 || r.broken["ReapAnswered"]) && (s.confirmed || r.broken["ReapConfirmed"]) &&
		quietWorker {
		t := s
		t.dir, t.record = 0, false
		if s.worker != noWorker || s.answer == 0 {
			t.resetWorker()
			t.worker = noWorker
		}
		t.state = false
		add(t, must, "the worker's directory is removed")
	}
	if s.answer != 0 && (s.dir == 0 || r.broken["Owed"]) && (s.job != byStore || s.fetched || r.broken["KeepTold"]) &&
		quietWorker && !s.late {
		t := s
		t.forgetJob()
		add(t, choice, "the job is pruned")
	}
}

// bad returns what is wrong with a state, or "".
func (s *life) bad(quiet, last bool) string {
	switch {
	case s.wrong != 0:
		return wrongs[s.wrong]
	case s.starts > 1, s.runTwice && s.engine >= asked:
		return "the program was started twice, or asked for twice"
	case s.answer != 0 && s.outcome != 0 && s.answer != s.outcome:
		return "answer.json is not what outcome.json says"
	case s.answer != 0 && s.value != 0 && s.answer != s.value:
		return "the client was told something else than answer.json says"
	case s.answer > outDone && s.program:
		return "answered with a fault while the program runs"
	case s.toldID && s.job == 0 && s.up && !s.pruned:
		return "an id that was told is not known"
	}
	if quiet && s.program {
		switch {
		case s.job == byClient && s.client != waits:
			return "the program runs for no client"
		case s.control == 2:
			return "the cancellation was answered, and the program runs on"
		case s.job == byStore && s.client == hasCancelled && !s.crashed:
			return "cancelled, and the program runs on under an id that no client has"
		}
	}
	if !last {
		return ""
	}
	switch {
	case s.client == waits:
		return "the client is never answered"
	case s.control == 1:
		return "the cancellation by id is never answered"
	case s.job != 0 && s.answer == 0:
		return "there is never an answer.json"
	case s.worker == living || s.worker == forked:
		return "the worker lives without an owner"
	case s.program || s.engine >= idle && s.engine < endedItem:
		return "engine or program live without an owner"
	case s.dir != 0:
		return "the worker's directory is left"
	}
	return ""
}

// explore walks every interleaving. It returns the shortest trace to a wrong state, or nil.
func (r *detachedRules) explore() (states int, trace []string) {
	type origin struct {
		from int32
		name string
	}
	first := life{up: true, epoch: 1}
	seen := map[life]struct{}{first: {}}
	queue, origins := []life{first}, []origin{{-1, ""}}
	for i := 0; i < len(queue); i++ {
		steps := r.steps(queue[i])
		quiet, last := true, true
		for _, step := range steps {
			quiet = quiet && step.kind != must
			last = last && step.kind != must && step.kind != slow
		}
		if wrong := queue[i].bad(quiet, last); wrong != "" {
			trace = []string{wrong}
			for j := int32(i); j > 0; j = origins[j].from {
				trace = append(trace, origins[j].name)
			}
			slices.Reverse(trace)
			return len(seen), trace
		}
		for _, step := range steps {
			if _, ok := seen[step.to]; !ok {
				seen[step.to] = struct{}{}
				queue, origins = append(queue, step.to), append(origins, origin{int32(i), step.name})
			}
		}
	}
	return len(seen), nil
}

// detachedRuns returns the runs to explore: what may die in each, and how often.
func detachedRuns() (runs []detachedRules) {
	add := func(daemons, workers, engines, boots, full, control int8) {
		r := detachedRules{decide: Decide, judge: DecideJob, claim: Claim.After, broken: map[string]bool{}}
		r.limits.daemons, r.limits.workers, r.limits.engines = daemons, workers, engines
		r.limits.boots, r.limits.full, r.limits.control = boots, full, control
		runs = append(runs, r)
	}
	add(1, 1, 0, 0, 0, 0)
	add(1, 0, 1, 0, 0, 0)
	add(1, 0, 0, 0, 1, 0)
	add(1, 0, 0, 1, 0, 0)
	add(1, 0, 0, 0, 0, 1)
	if os.Getenv("HOLDLINE_LONG") != "" {
		add(2, 1, 1, 0, 0, 0)
		add(2, 0, 0, 0, 0, 1)
		add(1, 1, 0, 0, 0, 1)
		add(1, 1, 0, 1, 0, 0)
		add(2, 0, 1, 0, 1, 0)
		add(3, 0, 0, 0, 0, 0)
	}
	return runs
}

// TestDetachedModel checks that with all rules kept the program is started at most once,
// its client gets one answer or the id, nothing runs without an owner, and every job ends.
func TestDetachedModel(t *testing.T) {
	total := 0
	for _, r := range detachedRuns() {
		states, trace := r.explore()
		total += states
		for _, step := range trace {
			t.Error(step)
		}
		if trace != nil {
			t.Fatalf("with limits %+v", r.limits)
		}
	}
	t.Logf("%d states", total)
	if total < 10_000 {
		t.Errorf("%d states: the model does not get far", total)
	}
}

// TestDetachedModelBroken breaks each rule in turn. The model must notice each time.
func TestDetachedModelBroken(t *testing.T) {
	spoil := map[string]func(*detachedRules){
		"NotPending": func(r *detachedRules) { r.claim = claimBut(Confirm, Unclaimed, Unclaimed) },
		"OwnerGone": func(r *detachedRules) {
			r.claim = func(c Claim, d Demand) Claim {
				if d == Close {
					return c
				}
				return c.After(d)
			}
		},
		"CancelOpen": func(r *detachedRules) {
			r.claim = claimBut(Withdraw, Promised, Detached)
		},
		"a session's end touches the store": func(r *detachedRules) { r.claim = claimBut(Close, Detached, Unwanted) },
		"a private process is started again": func(r *detachedRules) {
			r.decide = func(f Facts) Action {
				if a := Decide(f); a != Fail {
					return a
				}
				return Dispatch
			}
		},
		"what was told is begun again": func(r *detachedRules) {
			r.decide = func(f Facts) Action {
				if a := Decide(f); a != Unknown && a != Fail || !f.Private || f.Alive {
					return a
				}
				return Dispatch
			}
		},
		"a daemon that starts begins what was told": func(r *detachedRules) {
			r.judge = func(f JobFacts) JobVerdict {
				f.Told = false
				return DecideJob(f)
			}
		},
		"what was told nothing has failed": func(r *detachedRules) {
			r.decide = func(f Facts) Action {
				f.Again = false
				return Decide(f)
			}
		},
		"an outcome counts only if its run is on record": func(r *detachedRules) {
			r.decide = func(f Facts) Action {
				if f.Answered && !f.Alive && f.Killed {
					f.Answered = false
				}
				return Decide(f)
			}
		},
		"what began and is lost has failed": func(r *detachedRules) {
			r.decide = func(f Facts) Action {
				f.Begun = false
				return Decide(f)
			}
		},
		"what is in flight is not cancelled": func(r *detachedRules) {
			r.decide = func(f Facts) Action {
				if a := Decide(f); a != Cancel {
					return a
				}
				return Wait
			}
		},
	}
	for _, name := range []string{
		"JobFirst", "DetachFirst", "ControlTaken", "CancelWins", "Ladder", "QueueRow", "RecordFirst", "Fence",
		"StartLine", "SyncStart", "SpecGone", "OutcomeFirst", "FileIsAnswer", "ReadLast", "Hunt", "AnswerFirst",
		"AckLast", "ReapAnswered", "Dismiss", "ReapConfirmed", "Owed", "OwedMark", "KeepTold",
	} {
		spoil[name] = func(r *detachedRules) { r.broken[name] = true }
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			total := 0
			for _, r := range detachedRuns() {
				spoil(&r)
				states, trace := r.explore()
				if total += states; trace != nil {
					t.Logf("%d states, %d steps: %s", total, len(trace), trace[len(trace)-1])
					return
				}
			}
			t.Errorf("nothing wrong in %d states", total)
		})
	}
}

// claimBut returns [Claim.After] with one row changed.
func claimBut(demand Demand, from, to Claim) func(Claim, Demand) Claim {
	return func(c Claim, d Demand) Claim {
		if c == from && d == demand {
			return to
		}
		return c.After(d)
	}
}
