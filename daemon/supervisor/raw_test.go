package supervisor_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/daemon/calls"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// raw is a bare connection to a worker.
type raw struct {
	t    *testing.T
	nc   net.Conn
	next int64
}

// rawDial connects to a worker's socket.
func rawDial(t *testing.T, path string) *raw {
	t.Helper()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return &raw{t: t, nc: nc}
}

// send sends a request. number is used by the kinds that have one.
func (r *raw) send(kind workerwire.Kind, params any, number int64, payload []byte) int64 {
	r.t.Helper()
	r.next++
	f := workerwire.Frame{Kind: kind, ID: r.next, N: number, Payload: payload}
	if params != nil {
		f.Body = jsonrpc.Encode(params)
	}
	if err := workerwire.WriteFrames(r.nc, f); err != nil {
		r.t.Fatal(err)
	}
	return r.next
}

// sendOnly sends a frame that gets no answer.
func (r *raw) sendOnly(f workerwire.Frame) {
	r.t.Helper()
	if err := workerwire.WriteFrames(r.nc, f); err != nil {
		r.t.Fatal(err)
	}
}

// answer skips events until the answer to id arrives.
func (r *raw) answer(id int64) workerwire.Frame {
	r.t.Helper()
	for {
		f, err := workerwire.ReadFrame(r.nc)
		if err != nil {
			r.t.Fatalf("waiting for answer %d: %v", id, err)
		}
		if f.ID == id {
			return f
		}
	}
}

// ask sends a request, and returns the code of the error answer, or "".
func (r *raw) ask(kind workerwire.Kind, params any) string {
	r.t.Helper()
	return codeOf(r.answer(r.send(kind, params, 0, nil)))
}

// codeOf returns the code of an error answer, or "".
func codeOf(f workerwire.Frame) string {
	if e, ok := errors.AsType[*workerwire.Error](f.Err()); ok {
		return e.Code
	}
	return ""
}

func (r *raw) want(code string, kind workerwire.Kind, params any) {
	r.t.Helper()
	if got := r.ask(kind, params); got != code {
		r.t.Errorf("request %d %+v: error code %q, want %q", kind, params, got, code)
	}
}

func (r *raw) wantWrite(code string, id int64, data string) {
	r.t.Helper()
	if got := codeOf(r.answer(r.send(workerwire.Write, nil, id, []byte(data)))); got != code {
		r.t.Errorf("write %d: error code %q, want %q", id, got, code)
	}
}

// TestFence checks that after an attach no frame of an older connection is taken, and which
// requests need an attach. Writes are taken in order, each once.
func TestFence(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(), shell("fence", `cat`))
	w.Close()
	old, now := rawDial(t, w.Spec().Socket), rawDial(t, w.Spec().Socket)
	hello := workerwire.InitializeParams{Version: process.Version}
	old.want(workerwire.CodeInvalid, workerwire.Ack, nil) // no initialize before it
	old.want(workerwire.CodeVersion, workerwire.Initialize, workerwire.InitializeParams{Version: 99})
	old.want("", workerwire.Initialize, hello)
	old.want(workerwire.CodeUnknownMethod, 99, nil)
	for _, kind := range []workerwire.Kind{
		workerwire.Write, workerwire.Ack, workerwire.Terminate,
	} {
		old.want(workerwire.CodeNotAttached, kind, nil)
	}
	old.want("", workerwire.Attach, workerwire.AttachParams{Epoch: 5})
	old.wantWrite("", 1, "one\n")
	old.wantWrite("", 1, "again\n") // not taken a second time
	old.wantWrite(workerwire.CodeWriteGap, 3, "gap\n")
	old.wantWrite(workerwire.CodeInvalid, 0, "zero\n")

	now.want("", workerwire.Initialize, hello)
	now.want(workerwire.CodeStaleEpoch, workerwire.Attach, workerwire.AttachParams{Epoch: 4})
	now.want(workerwire.CodeInvalid, workerwire.Attach, workerwire.AttachParams{Epoch: 6, AfterSeq: 1000})
	var a workerwire.AttachResult
	f := now.answer(now.send(workerwire.Attach, workerwire.AttachParams{Epoch: 6}, 0, nil))
	unmarshal(t, f.Body, &a)
	if a.LastWrite != 1 || a.NextSeq < 1 {
		t.Errorf("attach = %+v, want L = 1", a)
	}
	// The older connection is closed, and a frame that it still sends is not taken.
	_ = workerwire.WriteFrames(old.nc,
		workerwire.Frame{Kind: workerwire.Write, ID: 99, N: 2, Payload: []byte("ghost\n")})
	now.sendOnly(workerwire.Frame{Kind: workerwire.Write, N: 2, Payload: []byte("two\n")})
	now.sendOnly(workerwire.Frame{
		Kind: workerwire.Terminate,
		Body: jsonrpc.Encode(workerwire.TerminateParams{GraceMS: time.Minute.Milliseconds()}),
	})
	now.sendOnly(workerwire.Frame{Kind: workerwire.Write, N: 3, Payload: []byte("late\n")})

	// Events are numbered without gaps, and the end is the last one.
	var got []byte
	next, exited := int64(1), false
	for last := workerwire.Kind(0); last != workerwire.Closed; next++ {
		f, err := workerwire.ReadFrame(now.nc)
		if err != nil {
			t.Fatal(err)
		}
		if f.N != next || f.Kind == workerwire.Closed && !exited {
			t.Fatalf("event %d of kind %d after kind %d, want number %d", f.N, f.Kind, last, next)
		}
		if last = f.Kind; last == workerwire.Stdout {
			got = append(got, f.Payload...)
		}
		if last == workerwire.Exited { // output that was still in the pipe may follow
			exited = true
			var exit process.Exit
			if unmarshal(t, f.Body, &exit); exit.Code == nil || *exit.Code != 0 {
				t.Errorf("exit %+v", exit)
			}
		}
	}
	if string(got) != "one\ntwo\n" {
		t.Errorf("the child was told %q, want one and two", got)
	}
	now.sendOnly(workerwire.Frame{Kind: workerwire.Ack, N: next - 1})
	until(t, "the worker to leave", func() bool {
		st, err := process.ReadState(w.Dir())
		return err == nil && st.Phase == process.PhaseExited
	})
}

// TestBadFrames checks that invalid frames end the connection, not the worker.
func TestBadFrames(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	w := h.start(s, shell("bad", `echo up; cat`))
	for _, in := range []string{
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", strings.Repeat("\x00", 25), strings.Repeat("\xff", 25),
	} {
		r := rawDial(t, w.Spec().Socket)
		_, _ = r.nc.Write([]byte(in))
		if n, err := r.nc.Read(make([]byte, 1)); err == nil {
			t.Errorf("%q: %d bytes of answer, want the connection closed", in, n)
		}
	}
	// More connections than the worker serves at once, each cut in a frame.
	for range 40 {
		r := rawDial(t, w.Spec().Socket)
		_, _ = r.nc.Write([]byte("\x00\x00"))
	}
	if _, err := w.Write(t.Context(), calls.Record{N: 1}, []byte("x\n")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(w.Dir(), process.FileSocket)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v, want mode 0600", info.Mode(), err)
	}
	if _, err := w.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

func unmarshal(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}
