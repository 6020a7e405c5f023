package consult

import "holdline/daemon/supervisor"

// facts are what a daemon that starts finds in the directory of a job. Boot means that
// the job was asked for under this boot of the machine.
type facts struct {
	supervisor.Facts
	job    bool // there is a job.json
	answer bool // there is an answer.json
}

// verdict says what became of a job of an earlier daemon.
type verdict int

// The verdicts.
const (
	isNone     verdict = iota + 1 // no client knows its id
	hasEnded                      // it has its answer
	goesOn                        // its worker lives, or has left something to be read
	waits                         // it has not begun, and is queued
	neverBegan                    // it has not begun, and its client ended with the machine
	wasLost                       // it is not known what became of it
)

// decide says what became of a job. It depends on nothing but the facts, so that each of
// its cases can be named and tested. The first row that matches decides:
//
//	an answer               hasEnded
//	no job.json             isNone: it is written before the call is answered or queued
//	alive, with a spec      goesOn
//	a state, with a spec    goesOn: what the worker left says more than nothing
//	a state, no spec        wasLost: the spec was removed since the start failed
//	nothing, other boot     neverBegan
//	nothing                 waits: a worker has a state before its child runs
func decide(f facts) verdict {
	switch {
	case f.answer:
		return hasEnded
	case !f.job:
		return isNone
	case f.Spec && (f.Alive || f.State):
		return goesOn
	case f.State:
		return wasLost
	case !f.Boot:
		return neverBegan
	}
	return waits
}
