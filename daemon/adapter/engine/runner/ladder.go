package runner

import (
	"syscall"
	"time"

	"holdline/daemon/adapter/engine"
)

// phase is a step of a run from its prompt to its end. Each has a time limit but
// ended.
//
//	phase         begins when                          ends with
//	working       the program is started               turn over: leaving
//	                                                   deadline, stall: interrupting
//	                                                   cancelled: cancelling
//	interrupting  the program was told to end its turn turn over: best; answered: leaving
//	best          its best answer was asked for        turn over: leaving
//	cancelling    it was told to end its turn          turn over: closing
//	leaving       its stdin was closed behind the      its own exit
//	              answer
//	closing       its stdin was closed to end it       its own exit
//	terminating   it got SIGTERM                       its exit
//	killing       all that it started got SIGKILL,     its exit; after a minute: ended
//	              again and again
//	drained       it has exited; output is read on     end of its output
//	ended         there is nothing more to come
//
// When the time of interrupting, best, leaving or cancelling is over, closing
// follows; then terminating, then killing. A program that cannot be told to end
// its turn goes from working to closing. A cancellation during leaving leads to
// closing. The exit leads to drained from each of them.
type phase int

const (
	working phase = iota
	interrupting
	best
	cancelling
	leaving
	closing
	terminating
	killing
	drained
	ended
)

// enter begins a phase that may last for limit. Only [run.conduct] enters the
// last one.
func (r *run) enter(p phase, limit time.Duration) {
	r.phase = p
	r.timer.Reset(limit)
}

// endTurn does what the end of a turn calls for; answered says that it ended by
// an answer.
func (r *run) endTurn(answered bool) {
	ladder := r.params.Ladder
	switch r.phase {
	case interrupting:
		ask := r.talk.BestAnswer()
		if !answered && ask != nil {
			r.ladder("time is up, asked for the best answer so far")
			r.prog.write(ask)
			r.enter(best, ladder.Best)
			return
		}
		if answered {
			r.why = engine.Itself // it had ended by itself just then
		}
		fallthrough
	case working, best:
		r.prog.closeStdin()
		r.enter(leaving, ladder.Leave)
	case cancelling:
		r.terminate()
	case leaving, closing, terminating, killing, drained, ended:
	}
}

// cancel begins the short way: the program is told to end its turn, so that it
// reports its session and cost, and is then ended.
func (r *run) cancel() {
	switch r.phase {
	case working, interrupting, best:
		r.why = engine.Cancelled
		interrupt := r.talk.Interrupt()
		if interrupt == nil {
			r.terminate()
			return
		}
		r.ladder("cancelling")
		r.prog.write(interrupt)
		r.enter(cancelling, r.params.Ladder.Cancel)
	case leaving, closing:
		r.why = engine.Cancelled
		r.terminate()
	case cancelling:
	case terminating, killing, drained, ended:
		r.why = engine.Cancelled
	}
}

// expire is the end of a phase's time.
func (r *run) expire() {
	switch r.phase {
	case working:
		r.interrupt(engine.Deadline, "time is up")
	case interrupting, best, leaving, cancelling:
		r.terminate()
	case closing:
		r.prog.signal(syscall.SIGTERM)
		r.enter(terminating, r.grace())
	case terminating:
		r.killed = time.Now()
		r.prog.signal(syscall.SIGKILL)
		r.enter(killing, killPause)
	case killing:
		if time.Since(r.killed) > giveUp {
			r.phase = ended // the kernel does not let go of it; the worker says what became of it
			return
		}
		r.prog.signal(syscall.SIGKILL)
		r.enter(killing, killPause)
	case drained:
		r.prog.stopReading()
	case ended:
	}
}

// interrupt begins the long way: the program is to give its best answer.
func (r *run) interrupt(why engine.Why, note string) {
	r.why = why
	line := r.talk.Interrupt()
	if line == nil {
		r.terminate()
		return
	}
	r.ladder(note)
	r.prog.write(line)
	r.enter(interrupting, r.params.Ladder.Interrupt)
}

// checkStall interrupts a program that has made no progress for too long, and
// returns when to look again.
func (r *run) checkStall() time.Duration {
	stall := r.params.Ladder.Stall
	if quiet := time.Since(r.active); quiet < stall {
		return stall - quiet
	}
	if r.phase == working {
		r.interrupt(engine.Stalled, "no progress for "+stall.String())
	}
	return stall
}

// terminate ends the program: its stdin is closed, then it gets SIGTERM, then
// SIGKILL.
func (r *run) terminate() {
	if r.phase >= closing {
		if r.phase == closing { // a shorter grace may hold now
			r.enter(closing, r.grace())
		}
		return
	}
	r.ladder("ending the program")
	r.prog.closeStdin()
	r.enter(closing, r.grace())
}

// grace is the time between two steps of ending the program.
func (r *run) grace() time.Duration {
	if r.why == engine.Cancelled {
		return r.params.Ladder.CancelGrace
	}
	return r.params.Ladder.Grace
}

// ladder records and reports a step of the ladder.
func (r *run) ladder(note string) {
	r.flushPiece()
	r.record(engine.Entry{Kind: engine.KindLadder, Text: note})
	r.say("%s", note)
}
