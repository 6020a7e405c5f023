package upstream

import (
	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/question"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// CatchUp waits until this daemon has read everything that the server wrote before
// the attach. The server may have ended meanwhile, and then must get no writes: a
// call that is lost in its stdin is one of which the next daemon does not know
// whether it was made. Each call's own time bounds the wait.
func (u *Process) CatchUp() {
	select {
	case <-u.caughtUp:
	case <-u.readEnded:
	case <-u.hub.Life.Done():
	}
}

// recordLocked restores one record of an earlier daemon. Those of all writes but calls wait
// in u.records until [Process.ResumeLocked] knows which of these writes were made.
//
// Two processes may have a record of the same call: the daemon made the call again
// after the first process died. Then the younger process has the call, and the write
// to the older one is kept in call.earlier.
func (u *Process) recordLocked(r calls.Record) {
	h := u.hub
	switch r.Kind {
	case calls.KindRespond:
		u.records.Find(r)
		if c := u.Calls[r.Call]; c != nil && c.Key.Session == r.Session { // that line continues it
			delete(h.Calls, c.Key)
			c.Key.N = r.N
			h.Calls[c.Key] = c
		}
	case calls.KindCall:
		c := NewCall(calls.Restore(&r, tool.Contract(r.Contract) == tool.Convergent))
		c.Up, c.write = u, r.Write
		u.Calls[r.Write] = c
		if before := h.Calls[c.Key]; before != nil { // it was made again after its process died
			if before.Up != u && before.Up.Generation > u.Generation {
				before.earlier = append(before.earlier, place{u, r.Write})
				before.Replays = 1
				return // the later process has it
			}
			c.earlier = append(before.earlier, place{before.Up, before.write})
			c.Replays = len(c.earlier)
		}
		h.Calls[c.Key] = c
	default:
		u.records.Find(r)
	}
}

// RestoreLocked makes a process of what an earlier daemon has left in its directory:
// its requests in files, the records of its calls, and the sizes of answers in files by
// write. This daemon is not attached to it yet.
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
	for write, size := range answers {
		if c := u.Calls[write]; c != nil {
			c.RestoreAnswer(size)
			u.hub.spooledLocked(c.Key.Session, size)
		} else { // an earlier daemon died after it had dropped the record
			u.records.Remove(write)
			u.nudge()
		}
	}
}

// ResumeLocked attaches a restored process to its worker. It learns from the worker which
// writes of the earlier daemon were made, and resets calls that were certainly not made.
// It reports whether the process lives.
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
	close(u.unsure)
	u.unsure = nil
	found := u.records.TakeFound()
	u.records.Forget(u.Standing.Restore(found, last)...)
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

// AdoptedLocked lets a process that lives serve again, whose handshake an earlier daemon
// has made. It is not serving yet.
func (u *Process) AdoptedLocked(s *process.Server) {
	u.introducedLocked(s.Era, s.Result)
	u.Standing.Wake()
	if dialect.AcceptsRootsChanged(s.Offered) { // its client may have said so while there was no daemon
		u.noteLocked(mcp.RootsChanged, nil)
	}
}

// AttachCondemnedLocked attaches a process that was condemned before this daemon was
// attached to its worker, to end it. It reports whether the process is attached.
func (u *Process) AttachCondemnedLocked(w *supervisor.Worker) bool {
	if u.attached == nil && !u.hub.Closed {
		u.AttachLocked(w)
		u.TerminateLocked()
	}
	return u.attached != nil
}
