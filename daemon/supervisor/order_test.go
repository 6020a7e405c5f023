package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/supervisor/far"
	"holdline/protocol/farwire"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/programtest"
	"holdline/protocol/rawio"
	"holdline/protocol/workerwire"
)

// newTestWorker returns a worker without a process, whose directory is there.
func newTestWorker(t *testing.T, o Options, spec process.Spec) *Worker {
	t.Helper()
	o.RuntimeDir, o.StateDir, o.Log = t.TempDir(), t.TempDir(), slog.New(slog.DiscardHandler)
	s := New(o)
	dir := s.Dir(spec.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := s.register(dir, spec)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestDeadAfterClose checks that a supervisor that was closed meanwhile starts nothing for a worker
// that is found dead.
func TestDeadAfterClose(t *testing.T) {
	t.Parallel()
	w := newTestWorker(t, Options{}, process.Spec{ID: "w"})
	if err := w.sup.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.begin(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("begin = %v, want %v", err, ErrClosed)
		<-w.Done()
	}
}

// TestSpoolAfterLoss checks that output which the worker could not read from its spool, and told as
// lost, is left out when the spool itself is read.
func TestSpoolAfterLoss(t *testing.T) {
	t.Parallel()
	w := newTestWorker(t, Options{}, process.Spec{ID: "w"})
	for _, f := range []workerwire.Frame{
		{Kind: workerwire.Stdout, N: 1, Body: jsonrpc.Encode(workerwire.Dropped{Bytes: 4})},
		{Kind: workerwire.Stdout, N: 2, Payload: []byte("two\n")},
	} {
		if err := w.queueEvent(&f); err != nil {
			t.Fatal(err)
		}
	}
	w.queue = nil
	spool := []byte("one\ntwo\nthree\n")
	if err := os.WriteFile(filepath.Join(w.dir, process.FileSpool), spool, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.fromSpool(&process.Spool{Bytes: int64(len(spool))}, 0); err != nil {
		t.Fatal(err)
	}
	if len(w.queue) != 1 || string(w.queue[0].Data) != "three\n" {
		t.Errorf("read again: %+v", w.queue)
	}
}

// chanReader reads what comes on a channel.
type chanReader struct {
	c    chan []byte
	left []byte
}

// Read blocks until there is something to read, or the channel is closed.
func (r *chanReader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		b, ok := <-r.c
		if !ok {
			return 0, io.EOF
		}
		r.left = b
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// TestAnswerBehindEvents checks that the answer to a request is read, although so many events wait
// for the user that no more are read: to a sign of life, since the host is not silent, and to the
// question what became of a write.
func TestAnswerBehindEvents(t *testing.T) {
	for name, ask := range map[string]func(w *Worker, c *client){
		"sign of life": func(w *Worker, c *client) { w.keepAlive(c) },
		"write": func(w *Worker, c *client) {
			ch, err := w.repeatWrite(t.Context(), &write{id: 1})
			if err != nil {
				t.Error(err)
			}
			select {
			case <-ch:
			case <-c.lost:
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorker(t, Options{}, process.Spec{ID: "w", Far: &process.Far{Host: "box"}})
			synctest.Test(t, func(t *testing.T) {
				in := &chanReader{c: make(chan []byte)}
				c := &client{
					out: rawio.New(&bytes.Buffer{}), r: workerwire.Reader{R: in}, nc: unixConn(t), lost: make(chan struct{}),
					waiting: map[int64]chan workerwire.Frame{}, acks: map[int64]int64{},
					session: &far.Session{Host: "box"},
				}
				w.c, w.queued = c, maxWaiting+1
				go func() { _ = w.receive(c) }()
				synctest.Wait() // it waits for the user
				go ask(w, c)
				var answer bytes.Buffer
				if err := workerwire.WriteFrames(&answer, workerwire.Frame{Kind: workerwire.Result, ID: 1}); err != nil {
					t.Fatal(err)
				}
				select {
				case in.c <- answer.Bytes():
				case <-time.After(farwire.Silence):
					t.Error("the answer is not read")
				}
				close(c.lost)
				w.mu.Lock()
				w.queued = 0
				w.changed.Broadcast()
				w.mu.Unlock()
				close(in.c)
			})
		})
	}
}

// unixConn returns a connection whose other end says nothing.
func unixConn(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return nc
}

// TestLostWhileConnecting checks that a connection to a host that breaks at that moment does not
// count as one that the worker has refused: such a worker would be killed.
func TestLostWhileConnecting(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	hello := farwire.Hello{Version: farwire.Version, Workers: process.Newest(), Node: "n"}
	text := fmt.Sprintf("#!/bin/sh\necho 'holdline-far %s'\nread look\necho '{\"alive\":true}'\nread connect\n",
		jsonrpc.Encode(hello))
	programtest.Write(t, filepath.Join(bin, "ssh"), text)
	environ := func(context.Context) []string { return []string{"PATH=" + bin + ":/usr/bin:/bin"} }
	at := &process.Far{Host: "box"}
	w := newTestWorker(t, Options{Environ: environ}, process.Spec{ID: "w", Far: at})
	_, err := elsewhere{w.sup, at}.connectOnce(t.Context(), w)
	if _, lost := errors.AsType[*far.UnreachableError](err); !lost || errors.Is(err, errSilent) {
		t.Errorf("connect = %v, want that the host cannot be reached, and nothing of the worker", err)
	}
	w.Close()
	if err := w.sup.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}
