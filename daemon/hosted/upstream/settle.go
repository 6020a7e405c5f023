package upstream

import (
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/question"
	"holdline/daemon/supervisor"
	"holdline/protocol/faultpoint"
)

// settle acknowledges output that the worker need not keep, and removes records and
// files that are not needed any more. Answers that wait too long for their client are
// written to files first. It returns how long the reader may wait before it calls
// settle again. Only the reader calls it.
func (u *Process) settle(w *supervisor.Worker) time.Duration {
	u.recordDeadlines()
	u.hub.Mu.Lock()
	spool, asks, next := u.settleMarks(time.Now())
	u.hub.Mu.Unlock()
	written := func(what string, err error) {
		if err == nil {
			next = 0
			return
		}
		u.Log.Warn(what+" cannot be written down", "err", err) // the server is held up, and nothing is lost
		next = min(next, time.Second)
	}
	for _, c := range spool {
		written("answer", u.spool(c))
	}
	for _, q := range asks {
		written("a request of the server", u.writeQuestion(q))
	}
	safe, again := u.stdout.Ackable(u.last, u.firstMark())
	if again > 0 {
		next = min(next, again)
	}
	ack, forget, files, names := u.dispensable(safe)
	// The records go first: a daemon that found neither an answer nor that its
	// call is done would cancel it.
	if err := w.Forget(forget...); err != nil {
		u.Log.Debug("what is done is not on record yet", "err", err)
	}
	if len(forget) > 0 {
		faultpoint.At("hosted.forgot")
	}
	w.Ack(ack)
	calls.RemoveAnswers(u.Dir, files)
	question.Remove(u.Dir, names, u.Log)
	return next
}

// dispensable returns what is not needed any more: the output up to ack, records, and
// files of answers and, by name, of requests. Output is needed up to safe at most, and
// from the first line that has a mark. The caller must drop the returned records and
// files, since they are taken from their lists here. It also ends a draining process that has no calls
// left.
func (u *Process) dispensable(safe int64) (ack int64, forget, files []int64, names []string) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if u.State == Draining && len(u.Calls) == 0 {
		u.EndLocked()
	}
	forget, files = u.records.Take()
	return u.ackBefore(safe), forget, files, u.questions.TakeSettled()
}

// spool writes the answer of a call to its file.
func (u *Process) spool(c *Call) error {
	u.hub.Mu.Lock()
	a, write := c.Answer, c.write
	u.hub.Mu.Unlock()
	size, err := calls.WriteAnswer(u.Dir, write, a)
	faultpoint.At("hosted.spooled")
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.hub.spooledLocked(c.Key.Session, c.Written(size, err))
	return err
}
