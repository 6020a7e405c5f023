package hang

import "time"

const (
	// quietTime is how long a process may send nothing during a call before it is pinged.
	quietTime = 8 * time.Second
	// answerTime is how long it then has for an answer. Together the two are less than 15 s.
	answerTime = 5 * time.Second
	// longQuiet is the silence after which a process is pinged together with the next call: the
	// machine may have slept meanwhile, or the process may have been stopped long ago.
	longQuiet = 10 * time.Minute
)

// callShare is the inverse of the share of a call's time that quietTime and answerTime each take
// at most. So the fault of a call that times out can say that the process does not answer.
const callShare = 3

// A Busy is a process that has calls to answer.
type Busy struct {
	// Limits returns the time that a call may take without progress, and in all.
	Limits func() (answer, most time.Duration)
	// Silent returns for how long the process has sent nothing. open is false if it has no calls
	// to answer any more.
	Silent func() (d time.Duration, open bool)
	// Pause waits for that long. It reports false if the process ended, or the daemon stops.
	Pause func(d time.Duration) bool
	// Ping asks the process for a sign of life and waits until there is one; after wait it shows
	// that the process does not answer. It reports false if the process ended, or the daemon stops.
	Ping func(wait time.Duration) bool
}

// Watch pings a process whenever it is silent during calls, until it has none any more. There is
// never more than one ping without an answer, so a process that reads nothing for hours
// finds one when it reads again. Watch ends no process: see [Probe].
func Watch(p Busy) {
	begun := time.Now()
	for first := true; ; first = false {
		silent, open := p.Silent()
		if !open {
			return
		}
		answer, _ := p.Limits()
		due := first && silent >= longQuiet
		// Nothing was expected of it before the call.
		wait := min(quietTime, answer/callShare) - min(silent, time.Since(begun))
		switch {
		case !due && wait > 0:
			if !p.Pause(wait) {
				return
			}
		case !p.Ping(min(answerTime, answer/callShare)):
			return
		}
	}
}
