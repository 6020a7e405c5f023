package outbox

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

// TestStall checks that a client that reads nothing is kept as long as its queue has room,
// and is disconnected after the stall time once the queue is full.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		o := New(ours, false, nil)
		ended := make(chan error, 1)
		go func() { ended <- o.Run() }()
		if err := o.Put(t.Context(), Answer{Line: []byte("first\n")}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * protocol.StallWindow)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("a client with room in its queue was dropped: %v", err)
		default:
		}
		begin := time.Now()
		for range MaxLines {
			o.Offer([]byte("more\n"), nil)
		}
		if err := <-ended; !errors.Is(err, ErrSlow) {
			t.Errorf("write = %v, want ErrSlow", err)
		}
		if took := time.Since(begin); took > 2*protocol.StallWindow {
			t.Errorf("it took %v", took)
		}
	})
}

// TestStall_Acknowledged checks that a client that reads nothing of a full queue is kept as
// long as it acknowledges: its proxy is copying a long line to a slow reader.
func TestStall_Acknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		o := New(ours, true, nil)
		ended := make(chan error, 1)
		go func() { ended <- o.Run() }()
		o.Offer([]byte("first\n"), nil)
		synctest.Wait()
		for range MaxLines {
			o.Offer([]byte("more\n"), nil)
		}
		for range 10 {
			time.Sleep(protocol.StallWindow / 2)
			o.Acknowledge(0)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("a client that acknowledges was dropped: %v", err)
		default:
		}
		if err := <-ended; !errors.Is(err, ErrSlow) {
			t.Errorf("Run = %v after the client fell silent, want ErrSlow", err)
		}
	})
}

// TestAwaitRoom checks that AwaitRoom blocks while much is queued, that the client then
// counts as slow, and that it returns with its context and with the outbox.
func TestAwaitRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		o := New(ours, false, nil)
		if err := o.AwaitRoom(t.Context()); err != nil {
			t.Fatalf("AwaitRoom of an empty outbox = %v", err)
		}
		o.Offer(make([]byte, softBytes+1), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := o.AwaitRoom(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("AwaitRoom = %v, want the end of its context", err)
		}
		waited, ran := make(chan error, 1), make(chan error, 1)
		go func() { waited <- o.AwaitRoom(t.Context()) }()
		go func() { ran <- o.Run() }()
		synctest.Wait()
		if !o.isFull() {
			t.Error("the queue is not full although a goroutine waits for room")
		}
		if _, err := io.ReadFull(theirs, make([]byte, softBytes+1)); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; err != nil {
			t.Errorf("AwaitRoom = %v once all was written", err)
		}
		o.Abort(nil)
		if err := o.AwaitRoom(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("AwaitRoom of an aborted outbox = %v", err)
		}
		if err := <-ran; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// tryConn is a connection that takes a number of bytes without blocking.
type tryConn struct {
	net.Conn
	room int
	got  []byte
}

func (c *tryConn) TryWrite(p []byte) int {
	n := min(c.room, len(p))
	c.room -= n
	c.got = append(c.got, p[:n]...)
	return n
}

func (c *tryConn) Write(p []byte) (int, error) {
	c.got = append(c.got, p...)
	return len(p), nil
}

func (c *tryConn) SetWriteDeadline(time.Time) error { return nil }

// TestWriteNow checks that the goroutine that puts an answer writes as much of it as the
// connection takes, and that the rest and later lines follow in order.
func TestWriteNow(t *testing.T) {
	for room := range 12 {
		c := &tryConn{room: room}
		o := New(c, false, nil)
		for _, line := range []string{"one\n", "two\n", "three\n"} {
			if err := o.Put(t.Context(), Answer{Line: []byte(line)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		o.Close()
		if err := o.Run(); err != nil {
			t.Fatal(err)
		}
		if got := string(c.got); got != "one\ntwo\nthree\n" || !o.Empty() {
			t.Errorf("with room for %d bytes: wrote %q, %d bytes are left", room, got, o.bytes)
		}
	}
}

// TestAskOfFullQueue checks that a server's request has room beside notifications that a
// slow client has not read, unless its bytes exceed the limit of the queue.
func TestAskOfFullQueue(t *testing.T) {
	o := New(nil, false, nil)
	for range 2 * MaxLines {
		o.Offer([]byte("note\n"), nil)
	}
	o.Ask([]byte("question\n"))
	lines, _ := o.takeLines()
	if n := len(lines); n != MaxLines+1 || string(lines[n-1]) != "question\n" || o.count != int64(n) {
		t.Errorf("%d lines are queued, the last is %q", n, lines[n-1])
	}
	o.written(0, nil)
	o.Offer(make([]byte, MaxBytes-o.bytes), nil)
	o.Ask([]byte("question\n"))
	if lines, _ := o.takeLines(); len(lines) != 1 {
		t.Errorf("%d lines are queued beyond the bytes that may be", len(lines))
	}
}

// TestOutboxBounds puts and offers more than fits. Put blocks, Offer drops, and everything
// that was put arrives in order.
func TestOutboxBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New(nil, false, nil)
		for range MaxLines {
			o.Offer([]byte("a\n"), nil)
		}
		o.Offer([]byte("dropped\n"), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := o.Put(ctx, Answer{Line: []byte("b\n")}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("put into a full queue = %v", err)
		}
		waited := make(chan error, 1)
		go func() { waited <- o.Put(t.Context(), Answer{Line: []byte("last\n")}, nil) }()
		synctest.Wait()
		ours, theirs := net.Pipe()
		read := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(theirs)
			read <- b
		}()
		wrote := make(chan error, 1)
		o.conn = ours
		go func() { wrote <- o.Run() }()
		if err := <-waited; err != nil {
			t.Errorf("put = %v", err)
		}
		o.Close()
		if err := <-wrote; err != nil {
			t.Errorf("write = %v", err)
		}
		ours.Close()
		if got, want := <-read, append(bytes.Repeat([]byte("a\n"), MaxLines), "last\n"...); !bytes.Equal(got, want) {
			t.Errorf("%d bytes arrived, want %d, ending in %q", len(got), len(want), got[max(0, len(got)-16):])
		}
		if err := o.Put(t.Context(), Answer{Line: []byte("x\n")}, nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("put after close = %v", err)
		}
	})
}

// TestOutboxTakesOneLongLine checks that a line of any size fits into an empty queue, and
// nothing else beside it.
func TestOutboxTakesOneLongLine(t *testing.T) {
	o := New(nil, false, nil)
	o.Offer(make([]byte, jsonrpc.MaxFrame+2<<20), nil)
	o.Offer([]byte("x\n"), nil)
	if lines, _ := o.takeLines(); len(lines) != 1 {
		t.Errorf("%d lines are queued, want the one", len(lines))
	}
}

// TestOutboxUnwanted cancels an answer that waits for room: it is not sent, and the lines
// after it are.
func TestOutboxUnwanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New(nil, false, nil)
		for range MaxLines {
			o.Offer([]byte("a\n"), nil)
		}
		var unwanted atomic.Bool
		ended := make(chan error, 2)
		go func() {
			ended <- o.Put(t.Context(), Answer{N: 1, Line: []byte("cancelled\n")},
				func() bool { return !unwanted.Load() })
		}()
		synctest.Wait()
		unwanted.Store(true)
		lines, _ := o.takeLines()
		o.written(len(lines)*2, nil)
		if err := <-ended; !errors.Is(err, ErrCancelled) {
			t.Errorf("put of a cancelled answer = %v", err)
		}
		if err := o.Put(t.Context(), Answer{N: 2, Line: []byte("next\n")}, nil); err != nil {
			t.Errorf("put = %v", err)
		}
		if lines, _ := o.takeLines(); len(lines) != 1 || string(lines[0]) != "next\n" {
			t.Errorf("queued: %q", lines)
		}
	})
}

// TestFarewellInFullQueue checks that a bye is queued even if the queue is full.
func TestFarewellInFullQueue(t *testing.T) {
	o := New(nil, true, nil)
	for range MaxLines + 1 {
		o.Offer([]byte("more\n"), nil)
	}
	o.Control(protocol.Control{Holdline: protocol.Version, Bye: protocol.ByeStopped})
	lines, _ := o.takeLines()
	if n := len(lines); n != MaxLines+1 || !protocol.IsControl(lines[n-1]) {
		t.Errorf("%d lines are queued, the last is %s; want %d and a bye", n, lines[n-1], MaxLines+1)
	}
}

// TestLast checks that a bye replaces all that is queued, unless the client has a part of a line:
// the bye would be taken for the rest of it. That is written then, with what was to be written
// together with it. Nothing counts as queued afterwards.
func TestLast(t *testing.T) {
	bye := protocol.Control{Holdline: protocol.Version, Bye: protocol.ByeFull}
	for room, want := range map[int]string{
		0: "", 2: "one\ntwo\nthree\n", 4: "one\n", 6: "one\ntwo\nthree\n", 9: "one\ntwo\nthree\n",
	} {
		c := &tryConn{room: room}
		o := New(c, false, nil)
		for _, line := range []string{"one\n", "two\n", "three\n"} {
			if err := o.Put(t.Context(), Answer{Line: []byte(line)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		o.Last(bye)
		if err := o.Run(); err != nil {
			t.Fatal(err)
		}
		if got := string(c.got); got != want+string(protocol.Append(nil, bye)) || !o.Empty() {
			t.Errorf("with room for %d bytes: wrote %q, %d bytes are left", room, got, o.bytes)
		}
	}
}

// byeConn is a connection that calls bye when it is sent one.
type byeConn struct {
	tryConn
	written, bye func()
}

func (c *byeConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(`"bye"`)) {
		c.bye()
	} else {
		c.written()
	}
	return c.tryConn.Write(p)
}

// TestHoarderBye checks that no other goroutine may write when a hoarder gets its bye: the bye
// could follow a part of a line.
func TestHoarderBye(t *testing.T) {
	c := &byeConn{written: func() {}}
	o := New(c, true, nil)
	o.Acknowledge(0)
	told := false
	c.bye = func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if told = true; !o.writing {
			t.Error("another goroutine may write")
		}
	}
	o.Requeue([]Answer{{N: 1, Line: make([]byte, maxUnconfirmed+1)}})
	if err := o.Run(); !errors.Is(err, ErrHoarder) || !told {
		t.Errorf("Run = %v, and it has sent a bye: %v", err, told)
	}
}

// TestLastDuringWrite checks that lines that a bye replaces while the line before them is written
// do not count as queued any more.
func TestLastDuringWrite(t *testing.T) {
	c := &byeConn{bye: func() {}}
	o := New(c, false, nil)
	c.written = func() { o.Last(protocol.Control{Holdline: protocol.Version, Bye: protocol.ByeFull}) }
	o.Requeue([]Answer{{Line: make([]byte, maxBatch)}, {Line: []byte("two\n")}})
	if err := o.Run(); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(c.got, []byte("two")) || !o.Empty() {
		t.Errorf("the replaced line was written, or %d bytes are left", o.bytes)
	}
}
