package runner

import (
	"errors"
	"io"
	"sync"
)

// outbox writes messages to stdout in a goroutine of its own, so that a client that
// does not read delays no run. Answers wait in a queue. Of each call's progress only
// the latest report waits; it is dropped once the call is answered.
type outbox struct {
	w      io.Writer
	broken func(error) // called if w cannot be written
	wake   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	answers [][]byte          // guarded by mu
	notes   map[string][]byte // by request id; guarded by mu
	closed  bool              // close was called; guarded by mu
}

// newOutbox returns an outbox and starts its goroutine. The caller must close it.
// broken is called, from any goroutine, if w cannot be written or the client does not
// read.
func newOutbox(w io.Writer, broken func(error)) *outbox {
	o := &outbox{
		w: w, broken: broken, wake: make(chan struct{}, 1), done: make(chan struct{}),
		notes: map[string][]byte{},
	}
	go o.writeLoop()
	return o
}

// maxAnswers bounds the answers that wait. The process gives up a client that sends
// more requests without reading answers.
const maxAnswers = 256

// errUnread is the reason for giving up a client that does not read its answers.
var errUnread = errors.New("the client does not read")

// put queues the answer to the request key, and drops its progress: no report may
// follow the answer. It does not block.
func (o *outbox) put(key string, line []byte) {
	o.mu.Lock()
	delete(o.notes, key)
	full := len(o.answers) >= maxAnswers
	if !full {
		o.answers = append(o.answers, append(line, '\n'))
	}
	o.mu.Unlock()
	if full {
		o.broken(errUnread)
		return
	}
	o.signal()
}

// note replaces the progress report that waits for the request key. It does not block.
func (o *outbox) note(key string, line []byte) {
	o.mu.Lock()
	o.notes[key] = append(line, '\n')
	o.mu.Unlock()
	o.signal()
}

// drop drops the progress of a call that gets no answer.
func (o *outbox) drop(key string) {
	o.mu.Lock()
	delete(o.notes, key)
	o.mu.Unlock()
}

// close blocks until everything is written, or until a write fails. Nothing may be
// queued afterwards.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
	<-o.done
}

// signal wakes the goroutine that writes.
func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// writeLoop writes the messages that wait until the outbox is closed and empty.
func (o *outbox) writeLoop() {
	defer close(o.done)
	for range o.wake {
		for {
			line, last := o.next()
			if line == nil {
				if last {
					return
				}
				break
			}
			if _, err := o.w.Write(line); err != nil {
				o.broken(err)
				return
			}
		}
	}
}

// next takes the next message, progress before answers. It returns nil if there is
// none; then last reports whether the outbox is closed.
func (o *outbox) next() (line []byte, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, line := range o.notes {
		delete(o.notes, key)
		return line, false
	}
	if len(o.answers) == 0 {
		return nil, o.closed
	}
	line = o.answers[0]
	o.answers[0] = nil
	o.answers = o.answers[1:]
	return line, false
}
