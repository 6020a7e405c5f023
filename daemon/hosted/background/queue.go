// Package background makes the writes to a process of an MCP server that belong to no
// call: cancellations, notifications, and answers to requests of the server.
package background

import (
	"context"
	"log/slog"
	"sync"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/question"
)

// most bounds the writes that wait for the server to read. There is always room for the
// answers to its requests.
const most = 1024 + question.Max

// A Write is a line to the server.
type Write struct {
	Rec  calls.Record
	Line []byte          // without the newline
	Done func(err error) // may be nil; called once, when the write was made or has failed
	Void func() bool     // may be nil; reports that the write is to be left out, without Done
}

// A Queue has the writes to one process, in order. An empty queue holds no memory. It is
// safe for concurrent use; its mutex is innermost.
type Queue struct {
	log *slog.Logger
	due chan struct{} // holds a token while the queue may not be empty

	mu     sync.Mutex // guards all that follows
	writes []Write
	full   bool // an answer was dropped, and that is in the log
}

// NewQueue returns an empty queue.
func NewQueue(log *slog.Logger) *Queue { return &Queue{log: log, due: make(chan struct{}, 1)} }

// Push queues a write. It never blocks.
//
// A full queue means that the server has stopped reading its stdin. Then the write is
// dropped, and its Done is not called. The last places are for answers to the server's
// own requests, of which at most [question.Max] can wait.
func (q *Queue) Push(w Write) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch waiting := len(q.writes); {
	case w.Rec.Kind != calls.KindRespond && waiting >= most-question.Max:
		return
	case waiting >= most:
		if !q.full { // said once: a flood of requests is one thing
			q.log.Warn("the server does not read: answers to its requests are left out")
		}
		q.full = true
		return
	}
	q.writes = append(q.writes, w)
	select {
	case q.due <- struct{}{}:
	default:
	}
}

// pop removes and returns the first write; false if there is none.
func (q *Queue) pop() (w Write, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.writes) == 0 {
		return Write{}, false
	}
	w, q.writes[0] = q.writes[0], Write{}
	if q.writes = q.writes[1:]; len(q.writes) == 0 {
		q.writes = nil
	}
	return w, true
}

// Run calls write for each queued write, one after the other, until exited is closed or
// ctx is done. write may block until the server reads. Run is called once, so the writes
// keep their order. Those that are still queued at the end are lost: the next daemon
// decides anew what to write.
func (q *Queue) Run(ctx context.Context, exited <-chan struct{}, write func(w *Write)) {
	for {
		select {
		case <-exited:
			return
		case <-ctx.Done():
			return
		case <-q.due:
		}
		for {
			w, ok := q.pop()
			if !ok {
				break
			}
			select {
			case <-exited:
				return
			default:
			}
			if ctx.Err() != nil {
				return
			}
			write(&w)
		}
	}
}
