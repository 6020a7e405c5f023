package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol"
	"holdline/protocol/jsonrpc"
)

// TestStall has a client take nothing: with room in its queue it may be as
// slow as it likes, with a full one it is given up after the stall's time.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		o := newOutbox(false, nil)
		ended := make(chan error, 1)
		go func() { ended <- o.write(ours) }()
		if err := o.put(t.Context(), sent{line: []byte("first\n")}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * stallTimeout)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("a client with room in its queue was dropped: %v", err)
		default:
		}
		begin := time.Now()
		for range maxQueueLines {
			o.offer([]byte("more\n"), nil)
		}
		if err := <-ended; !errors.Is(err, errSlow) {
			t.Errorf("write = %v, want errSlow", err)
		}
		if took := time.Since(begin); took > 2*stallTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// TestAskOfFullQueue: a server's request is not lost among the notifications that
// a slow client has not taken yet; it is if the queue has no room for its bytes.
func TestAskOfFullQueue(t *testing.T) {
	o := newOutbox(false, nil)
	for range 2 * maxQueueLines {
		o.offer([]byte("note\n"), nil)
	}
	o.ask([]byte("question\n"))
	lines, _ := o.take()
	if n := len(lines); n != maxQueueLines+1 || string(lines[n-1]) != "question\n" || o.count != int64(n) {
		t.Errorf("%d lines are queued, the last is %q", n, lines[n-1])
	}
	o.offer(make([]byte, maxQueueBytes-o.bytes), nil)
	o.ask([]byte("question\n"))
	if lines, _ := o.take(); len(lines) != 1 {
		t.Errorf("%d lines are queued beyond the bytes that may be", len(lines))
	}
}

// TestOutboxBounds puts more than fits: putting waits, offering drops, and
// everything put arrives in order.
func TestOutboxBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox(false, nil)
		for range maxQueueLines {
			o.offer([]byte("a\n"), nil)
		}
		o.offer([]byte("dropped\n"), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := o.put(ctx, sent{line: []byte("b\n")}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("put into a full queue = %v", err)
		}
		waited := make(chan error, 1)
		go func() { waited <- o.put(t.Context(), sent{line: []byte("last\n")}, nil) }()
		synctest.Wait()
		ours, theirs := net.Pipe()
		read := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(theirs)
			read <- b
		}()
		wrote := make(chan error, 1)
		go func() { wrote <- o.write(ours) }()
		if err := <-waited; err != nil {
			t.Errorf("put = %v", err)
		}
		o.close()
		if err := <-wrote; err != nil {
			t.Errorf("write = %v", err)
		}
		ours.Close()
		if got, want := <-read, append(bytes.Repeat([]byte("a\n"), maxQueueLines), "last\n"...); !bytes.Equal(got, want) {
			t.Errorf("%d bytes arrived, want %d, ending in %q", len(got), len(want), got[max(0, len(got)-16):])
		}
		if err := o.put(t.Context(), sent{line: []byte("x\n")}, nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("put after close = %v", err)
		}
	})
}

// TestOutboxTakesOneLongLine: whatever its size, a line fits into an empty
// queue, and nothing else beside it.
func TestOutboxTakesOneLongLine(t *testing.T) {
	o := newOutbox(false, nil)
	o.offer(make([]byte, jsonrpc.MaxFrame+2<<20), nil)
	o.offer([]byte("x\n"), nil)
	if lines, _ := o.take(); len(lines) != 1 {
		t.Errorf("%d lines are queued, want the one", len(lines))
	}
}

// TestOutboxUnwanted cancels an answer that waits for room: it is left out, and
// what comes after it is not.
func TestOutboxUnwanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox(false, nil)
		for range maxQueueLines {
			o.offer([]byte("a\n"), nil)
		}
		var unwanted atomic.Bool
		ended := make(chan error, 2)
		go func() {
			ended <- o.put(t.Context(), sent{n: 1, line: []byte("cancelled\n")}, func() bool { return !unwanted.Load() })
		}()
		synctest.Wait()
		unwanted.Store(true)
		lines, _ := o.take()
		o.written(len(lines) * 2)
		if err := <-ended; !errors.Is(err, errCancelled) {
			t.Errorf("put of a cancelled answer = %v", err)
		}
		if err := o.put(t.Context(), sent{n: 2, line: []byte("next\n")}, nil); err != nil {
			t.Errorf("put = %v", err)
		}
		if lines, _ := o.take(); len(lines) != 1 || string(lines[0]) != "next\n" {
			t.Errorf("queued: %q", lines)
		}
	})
}

// TestFarewellInFullQueue: a bye finds room where nothing else does.
func TestFarewellInFullQueue(t *testing.T) {
	o := newOutbox(true, nil)
	for range maxQueueLines + 1 {
		o.offer([]byte("more\n"), nil)
	}
	o.farewell(&protocol.Control{Holdline: protocol.Version, Bye: protocol.ByeStopped})
	lines, _ := o.take()
	if n := len(lines); n != maxQueueLines+1 || !protocol.IsControl(lines[n-1]) {
		t.Errorf("%d lines are queued, the last is %s; want %d and a bye", n, lines[n-1], maxQueueLines+1)
	}
}
