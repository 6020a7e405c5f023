package upstream

import (
	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/question"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// CatchUp blocks until this daemon has read everything from before the attach, until the reader has
// ended, or until the daemon stops. A server that has ended meanwhile must get no writes: whether a
// call lost in its stdin was made, the next daemon would not know. The caller must not hold hub.Mu,
// which the reader needs.
func (u *Process) CatchUp() {
	select {
	case <-u.caughtUp:
	case <-u.readEnded:
	case <-u.hub.Life.Done():
	}
}

// recordLocked restores one record: that of a call as a call; those of other writes wait until
// [Process.ResumeLocked] knows which were made. The caller must hold hub.Mu.
func (u *Process) recordLocked(r calls.Record) {
	switch r.Kind {
	case calls.KindRespond:
		u.records.Find(r)
		if c := u.Calls[r.Call]; c != nil && c.Key.Session == r.Session { // that line continues it
			u.hub.RemoveLocked(c)
			c.Key.N = r.N
			u.enterLocked(c)
		}
	case calls.KindCall:
		c := NewCall(calls.Restore(&r, tool.Contract(r.Contract) == tool.Convergent))
		c.Up, c.write = u, r.Write
		u.Calls[r.Write] = c
		u.enterLocked(c)
	default:
		u.records.Find(r)
	}
}

// enterLocked makes c, a restored call of this process, the hub's call of its key. If another
// process has that call too, it was made again after the first one died. Then the younger one's is
// the hub's, and keeps the older write in its field earlier. The caller must hold hub.Mu.
func (u *Process) enterLocked(c *Call) {
	of := u.hub.Calls
	switch before := of[c.Key]; {
	case before == nil:
	case before.Up != u && before.Up.Generation > u.Generation:
		before.earlier = append(append(before.earlier, c.earlier...), place{u, c.write})
		before.Replays = len(before.earlier)
		return
	default:
		c.earlier = append(append(c.earlier, before.earlier...), place{before.Up, before.write})
		c.Replays = len(c.earlier)
	}
	of[c.Key] = c
}

// RestoreLocked makes a process of what an earlier daemon has left: its requests, the records of
// its calls, and the sizes of answers in files by write. It registers the process and the calls
// with the hub. Files without a record are removed later. The caller must hold hub.Mu.
func (u *Process) RestoreLocked(
	generation int64, kept []question.Kept, records []calls.Record, answers map[int64]int64,
) {
	u.Restored, u.Generation = true, generation
	u.questions.Restore(kept)
	u.unsure = make(chan struct{})
	u.hub.Processes[u] = struct{}{}
	for _, r := range records {
		u.recordLocked(r)
	}
	for _, k := range kept {
		u.shownLocked(&k)
	}
	for write, size := range answers {
		if c := u.Calls[write]; c != nil && c.Doubtful {
			continue // it may be that of another call
		} else if c != nil {
			c.RestoreAnswer(size)
			u.hub.spooledLocked(c.Key.Session, size)
		} else { // an earlier daemon died after it had dropped the record
			u.records.Remove(write)
			u.nudge()
		}
	}
}

// shownLocked records which call's client was told of a request. The call is suspended, unless a
// later line of the client continues it. The caller must hold hub.Mu.
func (u *Process) shownLocked(k *question.Kept) {
	c := u.Calls[k.Call]
	if c == nil {
		return
	}
	u.questions.WasShown(c.Call, question.ID(u.ID, k.Seq, k.Nth))
	if k.N < c.Key.N || c.Claim().IsDetached() {
		return
	}
	if k.N > c.Key.N { // the record of the line is not needed any more
		u.hub.RemoveLocked(c)
		c.Key.N = k.N
		u.enterLocked(c)
	}
	u.hub.parkLocked(c)
}

// ResumeLocked attaches a restored process to its worker. It learns from the worker which writes
// were made, resets calls that were not, drops records that are not needed, and closes u.unsure. It
// reports whether the process lives. The caller must hold hub.Mu.
func (u *Process) ResumeLocked(w *supervisor.Worker) (alive bool) {
	u.AttachLocked(w) // its goroutines wait for the lock
	last := w.LastWrite()
	alive = w.Status().State == supervisor.Ready
	for write, c := range u.Calls {
		f := c.FactsLocked(true)
		f.Alive, f.Taken, f.Convergent = alive, write <= last, false
		if c.Phase() == calls.Open && alive && calls.Decide(f) == calls.Dispatch {
			c.ForgetVoidLocked()
			c.Apply(calls.Unsent)
		}
	}
	u.sureLocked()
	found := u.records.TakeFound()
	_, until := w.Old()
	u.records.Forget(u.restoreStandingLocked(found, last, until)...)
	for _, r := range found {
		if r.Write > last {
			continue
		}
		if r.Kind == calls.KindRespond && r.Name != "" {
			u.questions.MarkAnswered(r.Name)
		}
		u.records.Made(r.Kind, r.Write)
	}
	return alive
}

// DoubtLocked settles the calls whose records stand before damaged ones, or all if all says so, that
// have no answer: nothing that the process says can be tied to them. Those that may run again are New
// then; the others are answered with f. The caller must hold hub.Mu.
func (u *Process) DoubtLocked(all bool, f *fault.Record) {
	for _, c := range u.Calls {
		c.Doubtful = c.Doubtful || all
		if !c.Doubtful || c.Phase() != calls.Open {
			continue
		}
		switch calls.Decide(c.FactsLocked(true)) {
		case calls.Unknown:
			c.Answer.Fault = f
			c.Apply(calls.Reply)
		case calls.Dispatch:
			c.ForgetVoidLocked()
			c.Apply(calls.Unsent)
		case calls.Deliver, calls.Wait, calls.Forget, calls.Cancel, calls.Fail:
		}
	}
}

// MissLocked records that requests of the server are lost, by the names of their files. The caller must hold hub.Mu.
func (u *Process) MissLocked(names []string) { u.lostAsks = names }

// hasDoubtfulLocked reports whether the process has a call whose record is doubtful. The caller must hold hub.Mu.
func (u *Process) hasDoubtfulLocked() bool {
	for _, c := range u.Calls {
		if c.Doubtful {
			return true
		}
	}
	return false
}

// sureLocked closes u.unsure, if it is open. The caller must hold hub.Mu.
func (u *Process) sureLocked() {
	if u.unsure != nil {
		close(u.unsure)
		u.unsure = nil
	}
}

// AdoptedLocked records the handshake s of an earlier daemon, and wakes the reconcile loop. A
// server that wants to know of changed roots is told. The caller must hold hub.Mu.
func (u *Process) AdoptedLocked(s *process.Server) {
	u.introducedLocked(s.Era, s.Result)
	u.Wake()
	if dialect.AcceptsRootsChanged(s.Offered) { // its client may have said so while there was no daemon
		u.noteLocked(mcp.RootsChanged, nil)
	}
}

// AttachCondemnedLocked attaches w to a condemned process without a worker, and ends that, unless
// the hub is closed. It reports whether there is a worker now. The caller must hold hub.Mu.
func (u *Process) AttachCondemnedLocked(w *supervisor.Worker) bool {
	if u.attached == nil && !u.hub.Closed {
		u.AttachLocked(w)
		u.TerminateLocked()
	}
	return u.attached != nil
}
