package worker

import (
	"io"
	"net"
	"os"
	"testing"

	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// TestChildEndsDuringWrite shuts stdin after a write was made and before that is noted. The
// write counts as made, the one queued behind it does not.
func TestChildEndsDuringWrite(t *testing.T) {
	r, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w := newWorker(t.TempDir(), process.Spec{}, nil, io.Discard)
	const size = 1 << 20 // more than a pipe holds
	w.in.file = in
	w.in.queue = []inputWrite{{data: make([]byte, size), size: size}, {data: make([]byte, 10), size: 10}}
	w.in.bytes, w.in.taken = size+10, 2
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		w.writeStdin()
	}()
	// The first bytes show that the write has begun, and that it does not hold the lock.
	if _, err := io.ReadFull(r, make([]byte, size/2)); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	if _, err := io.ReadFull(r, make([]byte, size/2)); err != nil {
		t.Fatal(err)
	}
	w.shutStdinLocked()
	w.mu.Unlock()
	<-fed
	if w.in.written != 1 || w.in.lost != 2 || w.in.state != inputShut || w.in.bytes != 0 {
		t.Errorf("%d written, lost from %d on, %d bytes wait", w.in.written, w.in.lost, w.in.bytes)
	}
}

// TestAnswersUnread checks that a connection is dropped, and nothing else, when the outcome of
// several writes is known at once and too many answers wait for its peer.
func TestAnswersUnread(t *testing.T) {
	w := newWorker(t.TempDir(), process.Spec{}, nil, io.Discard)
	c := &conn{w: w, nc: &net.UnixConn{}, version: 1, answers: make([]workerwire.Frame, maxFrames)}
	w.in.taken, w.in.written = 3, 2
	w.in.waiting = []waiter{{c, 1, 1}, {c, 2, 2}, {c, 3, 3}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settleLocked()
	if c.state != connDropped || len(w.in.waiting) > 0 {
		t.Errorf("state %d, %d requests wait", c.state, len(w.in.waiting))
	}
}
