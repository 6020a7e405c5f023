package upstream

import (
	"math"
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
	spool, asks, next := u.settleMarks(time.Now())
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

// settleMarks drops the marks of lines that the worker need not keep. It returns the
// calls whose answers, and the requests which, must now go to files, and how long
// until the next one must.
func (u *Process) settleMarks(now time.Time) (spool []*Call, asks []*question.Question, next time.Duration) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	next = time.Hour
	kept := u.marks[:0]
	for _, k := range u.marks {
		if k.settledLocked() {
			continue
		}
		left := calls.SpoolAfter - now.Sub(k.at)
		switch {
		case left > 0:
			next = min(next, left)
		case k.question != nil:
			asks = append(asks, k.question)
		case k.c.BeginWriting():
			spool = append(spool, k.c)
		}
		kept = append(kept, k)
	}
	clear(u.marks[len(kept):])
	u.marks = kept
	return spool, asks, next
}

// firstMark returns the number of the output in which the first marked line begins,
// or the largest number if there is none. Only the reader calls it.
func (u *Process) firstMark() int64 {
	if len(u.marks) == 0 {
		return math.MaxInt64
	}
	return u.marks[0].seq
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
	forget, files = u.forget, u.files
	u.forget, u.files = nil, nil
	ack = safe
	for _, k := range u.marks {
		ack = calls.AckBefore(ack, k.seq)
	}
	return ack, forget, files, u.questions.TakeSettled()
}

// settledLocked reports whether the worker may forget the line: its answer or request
// is in a file, or is not needed any more.
func (k *mark) settledLocked() bool {
	if k.question != nil {
		return k.question.IsSettled()
	}
	return !k.c.NeedsLine()
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
