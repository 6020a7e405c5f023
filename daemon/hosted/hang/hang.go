// Package hang finds out whether a process of an MCP server hangs.
//
// A server may hang: it is stopped, or deadlocked, and will never answer
// anything again. It may as well be busy with one call, and read nothing
// meanwhile. Only time tells the two apart. So a call that had no answer only
// makes the process suspect; then it is asked for a sign of life, and is ended
// if it says nothing at all for longer than it may take for a call. One that
// computes meanwhile has until its longest call would be over.
//
// Users learn of the silence much earlier: a process that sends nothing during a call is
// pinged soon, and one that does not answer is shown as such. That alone ends no process.
package hang

import "time"

// maxProbes is how many probes in a row a suspect process may leave unanswered before
// it is ended.
const maxProbes = 3

// probeMargin is what each probe waits beyond its share of a call's time, so
// that a process that is busy with one call can still answer that in time.
const probeMargin = time.Second

// busyShare is the inverse of the share of a probe's time for which a computing
// process runs on a processor at least, even on a busy machine. A process that only
// waits needs far less.
const busyShare = 50

// A Process is one that has left a call without an answer.
type Process struct {
	// Limits returns the time that a call may take without progress, and in all.
	Limits func() (answer, most time.Duration)
	// LivesAfter asks the process for a sign of life, and reports whether there was one
	// within that time.
	LivesAfter func(wait time.Duration) bool
	// CPUTime returns for how long the process has run on a processor.
	CPUTime func() time.Duration
}

// Probe asks a process for signs of life. It reports whether the process has stayed
// silent, and for how long. Probes during which the process computes do not count, up to
// the time that the longest call may take.
func Probe(p Process) (hung bool, after time.Duration) {
	begun := time.Now()
	for n := 0; n < maxProbes; {
		timeout, most := p.Limits()
		wait := timeout/maxProbes + probeMargin
		used := p.CPUTime()
		if p.LivesAfter(wait) {
			return false, 0
		}
		busy := p.CPUTime()-used >= wait/busyShare
		if !busy || time.Since(begun) >= most {
			n++
		}
	}
	return true, time.Since(begun)
}
