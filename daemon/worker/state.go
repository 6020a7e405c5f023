package worker

import (
	"syscall"
	"time"

	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// childState is how far the life of the child has come. It only goes forward, and may skip states.
//
//	childStarting -> childRunning: the exec step has become the program
//	              -> childReaped:  its pid may be another process's: it gets no more signals
//	              -> childEnded:   its exit is known; what it left behind may live
//	              -> childGone:    all of that is gone too, or was killed for long enough;
//	                               what is in the pipes now is read, whatever the limits say
//	              -> childClosed:  all of its output was read: the last event has its number
type childState int

const (
	childStarting childState = iota
	childRunning
	childReaped
	childEnded
	childGone
	childClosed
)

// moveChildLocked moves the child to the state to, if that is later. With childClosed it queues the
// event Closed. It wakes all that wait for w.cond, and conduct. The caller must hold w.mu.
func (w *worker) moveChildLocked(to childState) {
	if to <= w.childState {
		return
	}
	w.childState = to
	switch to { //nolint:exhaustive // the others are only noted
	case childEnded:
		w.endedAt = time.Now()
	case childGone:
		w.drainUntil = time.Now().Add(drainTime)
	case childClosed:
		w.closedSeq = w.out.push(entry{kind: closed})
		faultpoint.At("worker.closed")
	}
	w.cond.Broadcast()
	w.wakeConduct()
}

// attendance records whether a daemon looks after the worker. Without one the child's output
// would fill the memory: it is read up to the limit only, or goes to the spool.
//
//	attended -> holding:  no daemon has come back in time; stdout is read up to the limit
//	attended -> spooling: no daemon has come back in time; stdout goes to the spool
//	holding, spooling -> attended: a daemon attaches
//	any -> leaving: the worker has put what is left into its files; it stays so
type attendance int

const (
	attended attendance = iota // a daemon is attached, or has time to come back
	holding
	spooling
	leaving
)

// attendLocked sets the attendance, unless it is leaving, and wakes w.cond. w.mu must be held.
func (w *worker) attendLocked(to attendance) {
	if w.attendance != leaving {
		w.attendance = to
	}
	w.cond.Broadcast()
}

// isAloneLocked reports whether the worker goes on without a daemon. The caller must hold w.mu.
func (w *worker) isAloneLocked() bool { return w.attendance == holding || w.attendance == spooling }

// ladderStep is how far the end of the child and its descendants has come. It only goes forward.
//
//	ladderIdle       -> ladderClosing:    a daemon, a signal or the worker wants the end: stdin is closed
//	ladderClosing    -> ladderTerminated: the tree was sent SIGTERM, at termAt
//	ladderTerminated -> ladderKilling:    the tree is killed again and again, from killAt on
//	ladderIdle       -> ladderKilling:    the child has ended, and its descendants have had [linger]
type ladderStep int

const (
	ladderIdle ladderStep = iota
	ladderClosing
	ladderTerminated
	ladderKilling
)

// ladder is the state of the ending of the child.
type ladder struct {
	step         ladderStep
	termAt       time.Time // set while step is ladderClosing or above
	killAt       time.Time // as termAt
	killingUntil time.Time // when the worker stops killing, whatever still lives
	nextKill     time.Time // when the next round of the killing is due
}

// terminateLocked begins to end the child, or shortens the time that it has left: stdin is closed
// after the writes in the queue, and conduct sends SIGTERM after grace, SIGKILL after grace again.
// grace is at least what the spec wants, and an hour at most. The caller must hold w.mu.
func (w *worker) terminateLocked(grace time.Duration) {
	grace = max(0, min(max(grace, w.spec.EndGrace()), time.Hour))
	now := time.Now()
	l := &w.ladder
	if l.step == ladderIdle {
		l.step = ladderClosing
		l.termAt, l.killAt = now.Add(grace), now.Add(2*grace)
	}
	l.termAt = earlier(l.termAt, now.Add(grace))
	l.killAt = earlier(l.killAt, now.Add(2*grace))
	w.closeStdinLocked()
	w.wakeConduct()
}

// climbLocked takes the next step, if it is due, against a child that is being ended. With SIGTERM
// it closes stdin at once. Signals are left to w.later. The caller must hold w.mu.
func (w *worker) climbLocked(now time.Time, due func(time.Time) bool) {
	l := &w.ladder
	if l.step == ladderIdle {
		return
	}
	if due(l.termAt) && l.step == ladderClosing {
		l.step = ladderTerminated
		w.shutStdinLocked()
		w.later = append(w.later, func() { w.signalTree(syscall.SIGTERM) })
	}
	if due(l.killAt) && due(l.nextKill) {
		w.killTreeLocked(now)
	}
}

// killTreeLocked adds to w.later one round that sends SIGKILL to all processes of the tree and
// wakes conduct, which calls killTreeLocked again after [killPause]: a process may fork between
// the listing and the signal, and a later round catches its child. If the child has ended and
// killTime is over, or where the tree is not known exactly, this round is the last one and moves
// the child to childGone. The caller must hold w.mu.
func (w *worker) killTreeLocked(now time.Time) {
	l := &w.ladder
	if l.step != ladderKilling {
		l.step = ladderKilling
		l.killingUntil = now.Add(killTime)
	}
	l.nextKill = now.Add(killPause)
	last := w.childState >= childEnded && (!process.Exact || now.After(l.killingUntil))
	w.later = append(w.later, func() {
		w.signalTree(syscall.SIGKILL)
		w.mu.Lock()
		defer w.mu.Unlock()
		if last {
			w.moveChildLocked(childGone)
		}
		w.wakeConduct()
	})
}

// earlier returns the earlier one of two times.
func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
