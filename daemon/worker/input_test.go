package worker

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/rawio"
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

// cutPipe takes n bytes, and then fails.
type cutPipe struct {
	n   int
	got []byte
}

// Read is not used.
func (p *cutPipe) Read([]byte) (int, error) { return 0, io.EOF }

// Write takes what is left of n.
func (p *cutPipe) Write(b []byte) (int, error) {
	n := min(len(b), p.n-len(p.got))
	p.got = append(p.got, b[:n]...)
	if n < len(b) {
		return n, syscall.EPIPE
	}
	return n, nil
}

// TestJoinedWrites checks that short writes are made as one, and what each of them comes to if the
// child gets only the beginning of that.
func TestJoinedWrites(t *testing.T) {
	const a, b, c = "0123456789", "abcdefghijklmnopqrst", "ABCDE"
	long := strings.Repeat("x", maxJoined)
	for n := range len(a+b+c) + 1 {
		w := newWorker(t.TempDir(), process.Spec{}, nil, io.Discard)
		w.in.file = &os.File{} // closing it fails, which does not matter
		w.mu.Lock()
		for i, s := range []string{a, b, c, long} {
			w.takeLocked(&conn{w: w}, &workerwire.Frame{N: int64(i + 1)}, inputWrite{data: []byte(s), size: len(s)})
		}
		pipe := &cutPipe{n: n}
		err := w.makeLocked(rawio.New(pipe))
		if failed := n < len(a+b+c); failed != (err != nil) || w.in.bytes != len(long) || len(w.in.making) != 0 {
			t.Errorf("%d bytes: %v, %d bytes wait", n, err, w.in.bytes)
		}
		w.shutStdinLocked()
		var written, torn int64
		for _, s := range []int{len(a), len(a + b), len(a + b + c)} {
			if n >= s {
				written++
			} else if n != 0 && n != len(a) && n != len(a+b) {
				torn = written + 1
			}
		}
		if w.in.written != written || w.in.torn != torn || w.in.lost != written+1 || string(pipe.got) != (a + b + c)[:n] {
			t.Errorf("%d bytes: %d written, %d torn, lost from %d on; the child got %q",
				n, w.in.written, w.in.torn, w.in.lost, pipe.got)
		}
		w.mu.Unlock()
	}
}

// TestFiledInput checks a write the middle of which lies in a file: what the child gets, how much
// of it, and that the file has no name any more.
func TestFiledInput(t *testing.T) {
	dir := t.TempDir()
	w := newWorker(dir, process.Spec{}, nil, io.Discard)
	open := func(name string, before int, offset, size int64) (inputWrite, error) {
		if err := os.WriteFile(filepath.Join(dir, process.FileInput+"x"), []byte("..middle.."), 0o600); err != nil {
			t.Fatal(err)
		}
		span := protocol.Span{File: name, Offset: offset, Size: size}
		return w.openInput(&workerwire.Frame{
			Kind: workerwire.Write, Payload: []byte("<>"),
			Body: jsonrpc.Encode(workerwire.Filed{Before: before, Span: span}),
		})
	}
	for n := range len("<middle>") + 1 {
		b, err := open(process.FileInput+"x", 1, 2, int64(len("middle")))
		if err != nil || b.size != len("<middle>") {
			t.Fatalf("%d bytes, %v", b.size, err)
		}
		pipe := &cutPipe{n: n}
		made, err := b.write(rawio.New(pipe))
		if made != n || string(pipe.got) != "<middle>"[:n] || (err == nil) != (n == len("<middle>")) {
			t.Errorf("%d written of %d, %v: %q", made, n, err, pipe.got)
		}
		b.close()
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
	for why, err := range map[string]error{
		"another name":       second(open("x", 1, 2, 6)),
		"elsewhere":          second(open("../"+process.FileInput+"x", 1, 2, 6)),
		"too long":           second(open(process.FileInput+"x", 1, 8, 6)),
		"before the payload": second(open(process.FileInput+"x", -1, 2, 6)),
		"behind the payload": second(open(process.FileInput+"x", 3, 2, 6)),
	} {
		if !errors.Is(err, bulk.ErrSpan) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// second returns the second of two values.
func second[T, E any](_ T, e E) E { return e }

// TestShortWrites makes writes of all lengths as they are taken, some at once and some later. The
// child gets their bytes in order, and short ones become no garbage.
func TestShortWrites(t *testing.T) {
	w := newWorker(t.TempDir(), process.Spec{}, nil, io.Discard)
	w.mu.Lock()
	defer w.mu.Unlock()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c, pipe, to, want := &conn{w: w}, &cutPipe{n: math.MaxInt}, []byte(nil), []byte(nil)
	stream := rawio.New(pipe)
	take := func(n int) {
		to = to[:0]
		for range n {
			to = append(to, byte(r.Int()))
		}
		kept := w.takeLocked(c, &workerwire.Frame{N: w.in.taken + 1}, inputWrite{data: to, size: n})
		if want = append(want, to...); !kept {
			t.Fatal("not taken")
		}
		if n > maxShort {
			to = nil // it is the worker's now
		}
	}
	make1 := func() {
		if err := w.makeLocked(stream); err != nil {
			t.Fatal(err)
		}
	}
	for range 2000 {
		take(r.IntN(100) << r.IntN(8))
		for len(w.in.queue) > r.IntN(20) {
			make1()
		}
	}
	for len(w.in.queue) > 0 {
		make1()
	}
	if !bytes.Equal(pipe.got, want) || len(w.in.short) > 0 {
		t.Errorf("%d bytes were written of %d, %d are left", len(pipe.got), len(want), len(w.in.short))
	}
	pipe.got, want = make([]byte, 0, 1<<20), make([]byte, 0, 1<<20)
	f, short := workerwire.Frame{N: w.in.taken}, make([]byte, 20)
	if n := testing.AllocsPerRun(1000, func() {
		f.N++
		w.takeLocked(c, &f, inputWrite{data: short, size: len(short)})
		make1()
	}); n > 0 {
		t.Errorf("%v allocations for a short write", n)
	}
}
