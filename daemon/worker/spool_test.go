package worker

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/rawio"
	"holdline/protocol/workerwire"
)

// connected returns a connection of w on which push runs, and its other end. The
// connection is dropped at the end of the test.
func connected(t *testing.T, w *worker) (*conn, net.Conn) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{nc: nc, stream: rawio.New(nc), w: w, version: 1}
	var pushing sync.WaitGroup
	pushing.Go(c.push)
	t.Cleanup(func() {
		w.mu.Lock()
		c.dropLocked()
		w.mu.Unlock()
		pushing.Wait()
		_ = peer.Close()
	})
	return c, peer
}

// TestSpoolWithoutLock checks that a daemon gets all output in order, from the spool and
// from memory, while the child writes and another spool is begun. TestMain fails if a file
// is read or written under the mutex.
func TestSpoolWithoutLock(t *testing.T) {
	spec := process.Spec{Orphan: process.Orphan{Do: process.OrphanLeave}}
	spec.SetDefaults()
	w := newWorker(t.TempDir(), spec, nil, io.Discard)
	var want bytes.Buffer
	write := func(n int) {
		for i := range n {
			line := fmt.Appendf(nil, "%d of %d\n", i, n)
			want.Write(line)
			w.took(line)
		}
	}
	write(100)
	w.mu.Lock()
	w.goAloneLocked()
	later := w.later
	w.mu.Unlock()
	for _, do := range later {
		do()
	}
	if w.attendance != spooling || w.out.in.Bytes != 0 {
		t.Fatalf("attendance %d, %d bytes in memory, want them in the spool", w.attendance, w.out.in.Bytes)
	}
	write(200)
	c, peer := connected(t, w)
	attach := jsonrpc.Encode(workerwire.AttachParams{Epoch: 1})
	c.handle(&workerwire.Frame{Kind: workerwire.Attach, Body: attach}, inputWrite{})
	var writing sync.WaitGroup
	writing.Go(func() { write(3000) })
	writing.Go(func() { // as if the worker had been alone a moment ago
		if err := w.startSpool(); err != nil {
			t.Error(err)
		}
	})
	read := make(chan []byte, 10_000) // more than all events
	go func() {
		defer close(read)
		for {
			f, err := workerwire.ReadFrame(peer)
			if err != nil {
				return
			}
			c.handle(&workerwire.Frame{Kind: workerwire.Ack, N: f.N - f.N%2}, inputWrite{})
			read <- f.Payload
		}
	}()
	writing.Wait()
	var got bytes.Buffer
	for got.Len() < want.Len() {
		b, ok := <-read
		if !ok {
			break
		}
		got.Write(b)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("the daemon got %d bytes, want %d: %.200q", got.Len(), want.Len(), got.Bytes())
	}
}

// TestLastSpoolFails checks that the spool stays if it cannot be replaced at the end, and only what
// came after it counts as lost.
func TestLastSpoolFails(t *testing.T) {
	w := newLongWorker(t)
	w.took([]byte("one\n"))
	w.mu.Lock()
	w.goAloneLocked()
	w.mu.Unlock()
	w.doLater()
	w.attendance = attended // a daemon came
	w.took([]byte("two\n"))
	blocked := filepath.Join(w.dir, process.FileSpool+".new", "x")
	if err := os.MkdirAll(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	w.lastSpool(false)
	if err := w.saveState(); err != nil {
		t.Fatal(err)
	}
	st, err := process.ReadState(w.dir)
	if err != nil || st.Spool == nil || *st.Spool != (process.Spool{Bytes: 4, Lost: 4}) {
		t.Errorf("the state is %+v, %v, want the first line in the spool and the second one lost", st.Spool, err)
	}
}
