package supervisor_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdline/daemon/calls"
	"holdline/protocol/process"
)

// raw is a bare connection to a worker.
type raw struct {
	t    *testing.T
	nc   net.Conn
	next int64
}

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

func (r *raw) send(method string, params any, payload []byte) int64 {
	r.t.Helper()
	r.next++
	f := process.Frame{ID: r.next, Method: method, Params: process.Encode(params), Payload: payload}
	if err := process.WriteFrame(r.nc, &f); err != nil {
		r.t.Fatal(err)
	}
	return r.next
}

// answer skips events until the answer to id comes.
func (r *raw) answer(id int64) process.Frame {
	r.t.Helper()
	for {
		f, err := process.ReadFrame(r.nc)
		if err != nil {
			r.t.Fatalf("waiting for answer %d: %v", id, err)
		}
		if f.ID == id {
			return f
		}
	}
}

// ask returns the code of the error answer, or "".
func (r *raw) ask(method string, params any, payload []byte) string {
	r.t.Helper()
	if f := r.answer(r.send(method, params, payload)); f.Error != nil {
		return f.Error.Code
	}
	return ""
}

func (r *raw) want(code, method string, params any, payload []byte) {
	r.t.Helper()
	if got := r.ask(method, params, payload); got != code {
		r.t.Errorf("%s %+v: error code %q, want %q", method, params, got, code)
	}
}

// An attach is a fence: what an older connection has on its way is not taken.
func TestFence(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(), shell("fence", `cat`))
	w.Close()
	old, now := rawDial(t, w.Spec().Socket), rawDial(t, w.Spec().Socket)
	hello := process.InitializeParams{Version: process.Version}
	old.want(process.CodeInvalid, process.MethodRead, process.ReadParams{}, nil) // before initialize
	old.want(process.CodeVersion, process.MethodInitialize, process.InitializeParams{Version: 99}, nil)
	old.want("", process.MethodInitialize, hello, nil)
	old.want(process.CodeUnknownMethod, "process/fork", struct{}{}, nil)
	for method, params := range map[string]any{
		process.MethodWrite: process.WriteParams{WriteID: 1}, process.MethodAck: process.AckParams{Seq: 1},
		process.MethodSignal: process.SignalParams{Signal: "SIGINT"}, process.MethodCloseStdin: struct{}{},
		process.MethodTerminate: process.TerminateParams{},
	} {
		old.want(process.CodeNotAttached, method, params, nil)
	}
	old.want("", process.MethodAttach, process.AttachParams{Epoch: 5}, nil)
	old.want("", process.MethodWrite, process.WriteParams{WriteID: 1}, []byte("one\n"))
	old.want("", process.MethodWrite, process.WriteParams{WriteID: 1}, []byte("again\n")) // not made again
	old.want(process.CodeWriteGap, process.MethodWrite, process.WriteParams{WriteID: 3}, []byte("gap\n"))
	old.want(process.CodeInvalid, process.MethodWrite, process.WriteParams{WriteID: 0}, []byte("zero\n"))
	old.want(process.CodeInvalid, process.MethodSignal, process.SignalParams{Signal: "SIGNOT"}, nil)

	now.want("", process.MethodInitialize, hello, nil)
	now.want(process.CodeStaleEpoch, process.MethodAttach, process.AttachParams{Epoch: 4}, nil)
	now.want(process.CodeInvalid, process.MethodAttach, process.AttachParams{Epoch: 6, AfterSeq: 1000}, nil)
	var a process.AttachResult
	f := now.answer(now.send(process.MethodAttach, process.AttachParams{Epoch: 6}, nil))
	unmarshal(t, f.Result, &a)
	if a.LastWrite != 1 || a.NextSeq < 1 {
		t.Errorf("attach = %+v, want L = 1", a)
	}
	// The older connection is closed; a frame that it gets off is not taken.
	_ = process.WriteFrame(old.nc, &process.Frame{
		ID: 99, Method: process.MethodWrite,
		Params: process.Encode(process.WriteParams{WriteID: 2}), Payload: []byte("ghost\n"),
	})
	now.want("", process.MethodWrite, process.WriteParams{WriteID: 2}, []byte("two\n"))
	now.want("", process.MethodCloseStdin, struct{}{}, nil)
	now.want("", process.MethodWrite, process.WriteParams{WriteID: 3}, []byte("late\n"))

	var got []byte
	next, done := int64(1), false
	for !done {
		var r process.ReadResult
		f := now.answer(now.send(process.MethodRead, process.ReadParams{AfterSeq: next - 1, MaxBytes: 3, WaitMS: 10_000}, nil))
		unmarshal(t, f.Result, &r)
		got = append(got, f.Payload...)
		if len(r.Chunks) > 1 || r.NextSeq <= next && !r.Closed {
			t.Fatalf("read = %+v after %d", r, next)
		}
		if done = r.Closed; done && (!r.Exited || *r.Code != 0) {
			t.Errorf("last read = %+v", r)
		}
		next = r.NextSeq
	}
	if string(got) != "one\ntwo\n" {
		t.Errorf("the child was told %q, want one and two", got)
	}
	now.want("", process.MethodAck, process.AckParams{Seq: next - 1}, nil)
	until(t, "the worker to leave", func() bool {
		st, err := process.ReadState(w.Dir())
		return err == nil && st.Phase == process.PhaseExited
	})
}

// Frames that are none end the connection, not the worker.
func TestBadFrames(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	w := h.start(s, shell("bad", `echo up; cat`))
	for _, in := range []string{"GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00\x02\x00\x00\x00\x00[]", "\xff\xff\xff\xff\xff\xff\xff\xff"} {
		r := rawDial(t, w.Spec().Socket)
		_, _ = r.nc.Write([]byte(in))
		if n, err := r.nc.Read(make([]byte, 1)); err == nil {
			t.Errorf("%q: %d bytes of answer, want the connection closed", in, n)
		}
	}
	// More connections than are served, and one that was cut in a frame.
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
