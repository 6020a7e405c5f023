package upstream

import "time"

// restartClockLocked gives a call its full time for an answer again. The new deadline
// is written to the call's record later, by the reader.
func (u *Process) restartClockLocked(c *Call) {
	timeout, _ := u.Instance.Limits()
	until := time.Now().Add(timeout)
	if c.Deadline.Move(until, timeout) {
		u.records.MoveDeadline(c.write, until)
		u.nudge()
	}
	c.Progressed()
}

// recordDeadlines writes the deadlines that progress has moved into the records of
// their calls. The next daemon goes by these.
func (u *Process) recordDeadlines() {
	u.hub.Mu.Lock()
	w, moved := u.attached, u.records.TakeDeadlines()
	u.hub.Mu.Unlock()
	for write, until := range moved {
		if err := w.MoveDeadline(write, until); err != nil { // the next daemon gives it less time
			u.Log.Debug("a call's deadline is not on record", "err", err)
		}
	}
}
