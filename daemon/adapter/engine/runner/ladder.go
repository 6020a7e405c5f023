package runner

import (
	"syscall"
	"time"

	"holdline/daemon/adapter/engine"
)

// phase is a step of a run from its prompt to its end. Each phase but ended has a time
// limit.
//
//	phase         begins when                          ends with
//	working       the program is started               turn over: leaving, unless a message is left
//	                                                   deadline, stall: interrupting
//	                                                   cancelled: cancelling
//	interrupting  an interrupt was sent to it          turn over: best; answered: leaving
//	best          its best answer was asked for        turn over: leaving
//	cancelling    an interrupt was sent to it          turn over: closing
//	leaving       its stdin was closed behind the      its own exit
//	              answer
//	closing       its stdin was closed to end it       its own exit
//	terminating   it got SIGTERM                       its exit
//	killing       all that it started got SIGKILL,     its exit; after a minute: ended
//	              again and again
//	drained       it has exited; output is read on     end of its output
//	ended         there is nothing more to come
//
// When the time of interrupting, best, leaving or cancelling is over, closing follows;
// then terminating, then killing. A program that reads no interrupt goes from working
// to closing. A cancellation during leaving leads to closing. The exit leads to drained
// from each of them.
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

// enter begins a phase that may last for limit. Only [run.conduct] enters the phase
// drained, and no caller enters ended.
func (r *run) enter(p phase, limit time.Duration) {
	r.phase = p
	if r.why != engine.Itself || len(r.ear.held) == 0 { // else another start of the program may follow
		r.deafen()
	}
	r.timer.Reset(limit)
}

// endTurn moves on to the next phase after the end of a turn. answered means that the
// turn ended with an answer. An answer that came just as the time was up counts as a
// whole one.
func (r *run) endTurn(answered bool) {
	ladder := r.params.Ladder
	if r.phase == working && r.goesOn(answered) {
		return
	}
	switch r.phase {
	case interrupting:
		if answered {
			r.why = engine.Itself // it had ended by itself just then
		} else if ask := r.talk.BestAnswer(); ask != nil {
			r.ladder("time is up, asked for the best answer so far")
			r.prog.queueInput(ask)
			r.enter(best, ladder.Best)
			return
		}
		fallthrough
	case working, best:
		if c, ok := r.talk.(engine.Closer); ok {
			line, after := c.Close()
			if after > 0 {
				r.prog.pauseInput(after)
			}
			if line != nil {
				r.prog.queueInput(line)
			}
		}
		r.prog.closeStdin()
		r.enter(leaving, ladder.Leave)
	case cancelling:
		r.terminate()
	case leaving, closing, terminating, killing, drained, ended:
	}
}

// cancel begins to cancel the run. It interrupts the program first, so that the program
// still reports its session and cost, and ends it soon after. A program that reads no
// interrupt is ended at once.
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
		r.prog.queueInput(interrupt)
		r.enter(cancelling, r.params.Ladder.Cancel)
	case leaving, closing:
		r.why = engine.Cancelled
		r.terminate()
	case cancelling:
	case terminating:
		r.why = engine.Cancelled
		r.enter(terminating, r.grace())
	case killing, drained, ended:
		r.why = engine.Cancelled
	}
}

// expire moves on when the time of the present phase is over.
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
			r.phase = ended // the kernel does not end it; the worker reports its exit
			return
		}
		r.prog.signal(syscall.SIGKILL)
		r.enter(killing, killPause)
	case drained:
		r.prog.stopReading()
	case ended:
	}
}

// interrupt interrupts the turn, so that the program can then give its best answer. why
// and note are the reason, for the outcome and for people. A program that reads no
// interrupt is ended.
func (r *run) interrupt(why engine.Why, note string) {
	r.why = why
	line := r.talk.Interrupt()
	if line == nil {
		r.terminate()
		return
	}
	r.ladder(note)
	r.prog.queueInput(line)
	r.enter(interrupting, r.params.Ladder.Interrupt)
}

// checkStall interrupts a program that has made no progress for too long. It returns
// how long to wait before the next check.
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

// terminate ends the program: it closes stdin, and later phases send SIGTERM, then
// SIGKILL. If the program is being ended already, the grace of a cancellation can only
// shorten the wait.
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

// grace returns the time between two steps of ending the program. It is shorter after a
// cancellation, since a caller waits.
func (r *run) grace() time.Duration {
	if r.why == engine.Cancelled {
		return r.params.Ladder.CancelGrace
	}
	return r.params.Ladder.Grace
}

// ladder records a step of the ladder in the transcript and reports it as progress.
func (r *run) ladder(note string) {
	r.flushPiece()
	r.record(engine.Entry{Kind: engine.KindLadder, Text: note})
	r.reportStep("%s", note)
}
