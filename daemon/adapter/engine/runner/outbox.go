package runner

import (
	"errors"
	"io"
	"sync"
)

// outbox writes messages to stdout in a goroutine of its own, so that a client that does
// not read delays no run.
type outbox struct {
	lines  chan []byte
	broken func(error) // called if lines cannot be written
	work   sync.WaitGroup
}

// maxQueued bounds the messages that wait. Answers have three quarters of the places to
// themselves.
const maxQueued = 256

// errUnread is the reason for giving up a client that does not read its answers.
var errUnread = errors.New("the client does not read")

// newOutbox returns an outbox and starts its goroutine. The caller must close it. broken is
// called, from any goroutine, if w cannot be written or the client does not read. After an
// error of w nothing more is written.
func newOutbox(w io.Writer, broken func(error)) *outbox {
	o := &outbox{lines: make(chan []byte, maxQueued), broken: broken}
	o.work.Go(func() {
		var err error
		for line := range o.lines {
			if err != nil {
				continue
			}
			if _, err = w.Write(line); err != nil {
				broken(err)
			}
		}
	})
	return o
}

// queueAnswer queues an answer. It does not block: a client that leaves too many answers unread is
// given up.
func (o *outbox) queueAnswer(line []byte) {
	select {
	case o.lines <- append(line, '\n'):
	default:
		o.broken(errUnread)
	}
}

// queueProgress queues a progress report, and drops it if the client is far behind: a later one says
// more. It does not block.
func (o *outbox) queueProgress(line []byte) {
	if len(o.lines) < maxQueued/4 {
		o.queueAnswer(line)
	}
}

// close blocks until everything is written, or has failed. Nothing may be queued afterwards.
func (o *outbox) close() {
	close(o.lines)
	o.work.Wait()
}
