package upstream

import (
	"os"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/output"
	"holdline/daemon/hosted/question"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/lines"
	"holdline/daemon/supervisor"
	"holdline/protocol"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
)

// settle acknowledges output that the worker need not keep, and removes records and files that are
// not needed any more. Before that it writes moved deadlines to records, and to files what has
// waited too long. It notifies clients of changes that they missed, and ends a draining process without
// calls. Errors are logged.
//
// It returns how long the reader may wait: at most an hour, a second after a file could not be
// written, and 0 after one was. Only the reader calls it, and must not hold hub.Mu.
func (u *Process) settle(w *supervisor.Worker) time.Duration {
	u.recordDeadlines()
	u.hub.Mu.Lock()
	due, next := u.output.Settle(time.Now())
	say, retell := u.tellAllLocked()
	u.hub.Mu.Unlock()
	next = min(next, retell)
	recorded := u.recordChanges(w, say)
	if !recorded {
		next = min(next, time.Second)
	}
	for _, c := range due {
		if err := u.writeDown(c); err != nil {
			// the server is held up, and nothing is lost
			u.Log.Warn("output of the server cannot be written down", "err", err)
			next = min(next, time.Second)
			continue
		}
		next = 0
	}
	ack, again := u.output.Ackable()
	if again > 0 {
		next = min(next, again)
	}
	forget, files, names := u.dispensable()
	// The records go first: a daemon that found neither an answer nor that its
	// call is done would cancel it.
	if err := w.Forget(forget...); err != nil {
		u.Log.Debug("what is done is not on record yet", "err", err)
	}
	if len(forget) > 0 {
		faultpoint.At("hosted.forgot")
	}
	if recorded { // else the next daemon reads again what has changed
		w.Ack(ack)
	}
	calls.RemoveAnswers(u.Dir, files)
	if len(names) > 0 {
		u.asking.Lock()
		question.Remove(u.Dir, names, u.Log)
		u.asking.Unlock()
	}
	return next
}

// dispensable returns, and removes from their lists, the writes whose records and whose files are
// not needed, and files of requests. It ends a draining process without calls. It takes hub.Mu.
func (u *Process) dispensable() (forget, files []int64, names []string) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if u.State == stage.Draining && len(u.Calls) == 0 {
		u.EndLocked()
	}
	forget, files = u.records.Take()
	names = u.questions.TakeSettled()
	if u.lostAsks != nil && !u.hasDoubtfulLocked() { // a daemon after this one doubts no other calls for them
		names, u.lostAsks = append(names, u.lostAsks...), nil
	}
	return forget, files, names
}

// writeDown writes the content of a line, an answer or a request, to a file, so that the worker
// need not keep the line. After an error it must. It takes hub.Mu, but not while it writes.
func (u *Process) writeDown(c output.Content) error {
	if q, ok := c.(*question.Question); ok {
		return u.writeQuestion(q)
	}
	return u.spool(c.(*Call)) //nolint:forcetypeassert // nothing else is kept
}

// spool moves a call's answer to its file and counts its bytes, which may end the session. After an
// error the answer stays. It takes hub.Mu, but not while it writes.
func (u *Process) spool(c *Call) error {
	u.hub.Mu.Lock()
	a, write, w := c.Answer, c.write, u.attached
	u.hub.Mu.Unlock()
	size, sum, err := calls.WriteAnswer(u.Dir, write, a)
	if err == nil && a.Fault == nil { // a daemon that finds no fault decides as this one did
		err = w.Filed(write, size, sum)
	}
	faultpoint.At("hosted.spooled")
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.hub.spooledLocked(c.Key.Session, c.Written(size, sum, err))
	return err
}

// fileLocked makes the file of the line l that of the call's answer, and returns true, or false if
// that fails. The file of a call that was settled meanwhile is removed. The caller must hold
// hub.Mu, which it unlocks while it works on files.
func (u *Process) fileLocked(c *Call, msg *jsonrpc.Message, l *lines.Line) bool {
	write, w := c.write, u.attached
	unlocked := func(f func()) {
		u.hub.Mu.Unlock()
		defer u.hub.Mu.Lock() // after a panic, too: the caller unlocks it
		f()
	}
	path, size, sum := calls.AnswerFile(u.Dir, write), int64(len(l.Text)), uint32(0)
	var info os.FileInfo
	var err error
	unlocked(func() {
		if err = l.Keep(path); err == nil {
			info, err = os.Lstat(path)
		}
		if err == nil {
			sum = calls.AnswerSum(u.Dir, write, l.Text)
			err = w.Filed(write, size, sum)
		}
		faultpoint.At("hosted.filed")
	})
	switch {
	case u.Calls[write] != c || c.Phase() == calls.Answered: // it was settled meanwhile
		unlocked(func() { calls.RemoveAnswers(u.Dir, []int64{write}) })
		return true
	case err != nil:
		return false
	}
	u.hub.spooledLocked(c.Key.Session, c.Filed(size, sum, protocol.Span{
		Offset: int64(jsonrpc.Offset(l.Text, msg.Result)), Size: int64(len(msg.Result)), Changed: info.ModTime().UnixNano(),
	}))
	u.settledLocked(c)
	return true
}
