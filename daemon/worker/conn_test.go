package worker

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// TestAckWhileLeaving checks that a worker that exits has saved in state.json which output
// is acknowledged, and refuses later acknowledgements. Otherwise its daemon, which forgets
// acknowledged output, would read it again from the spool.
func TestAckWhileLeaving(t *testing.T) {
	spec := process.Spec{}
	spec.SetDefaults()
	w := newWorker(t.TempDir(), spec, nil, io.Discard)
	c := &conn{w: w, version: 1}
	w.attached = c
	w.out.addStdout([]byte("one\n"))
	w.out.push(entry{kind: exited})
	ack := func(id, seq int64) error {
		t.Helper()
		if !c.handle(&workerwire.Frame{Kind: workerwire.Ack, ID: id, N: seq}, inputWrite{}) || len(c.answers) != 1 {
			t.Fatalf("the acknowledgement of %d has %d answers", seq, len(c.answers))
		}
		e := c.answers[0].Err()
		c.answers = nil
		return e
	}
	if e := ack(1, 1); e != nil || w.out.acked != 1 {
		t.Errorf("an acknowledgement before: %v, acknowledged up to %d", e, w.out.acked)
	}
	w.attendLocked(leaving)
	if e := ack(2, 2); e == nil || w.out.acked != 1 {
		t.Errorf("an acknowledgement behind the last state: %v, acknowledged up to %d", e, w.out.acked)
	}
}

// TestRefusedWriteIsClosed checks that the file with the bytes of a write is closed if the write is
// refused, for each reason that there is.
func TestRefusedWriteIsClosed(t *testing.T) {
	for reason, connect := range map[string]func(w *worker) *conn{
		"before initialize": func(w *worker) *conn { return &conn{w: w} },
		"not attached":      func(w *worker) *conn { return &conn{w: w, version: 1} },
		"no id": func(w *worker) *conn {
			w.attached = &conn{w: w, version: 1}
			return w.attached
		},
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorker(t.TempDir(), process.Spec{}, nil, io.Discard)
			file, err := os.CreateTemp(t.TempDir(), "")
			if err != nil {
				t.Fatal(err)
			}
			c := connect(w)
			if !c.handle(&workerwire.Frame{Kind: workerwire.Write, ID: 1}, inputWrite{file: file}) || len(c.answers) != 1 {
				t.Fatalf("%d answers", len(c.answers))
			}
			w.doLater()
			if err := file.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("the file was not closed: %v", err)
			}
		})
	}
}

// TestTerminateOfDropped checks that a connection may be dropped while its requests to end the
// child are answered, since its peer reads nothing.
func TestTerminateOfDropped(t *testing.T) {
	w := newWorker(t.TempDir(), process.Spec{}, nil, io.Discard)
	c, _ := connected(t, w)
	w.mu.Lock()
	defer w.mu.Unlock()
	c.answers = make([]workerwire.Frame, maxFrames)
	w.childState, w.readersLeft = childGone, 2
	w.ending = []waiter{{c: c, id: 1}, {c: c, id: 2}}
	w.afterExitLocked(time.Now(), func(time.Time) bool { return false })
	if c.state != connDropped || w.ending != nil {
		t.Errorf("the connection is in state %d, %d requests wait", c.state, len(w.ending))
	}
}

// TestAttachLongSecrets checks that a daemon gets the secrets of a child whose environment has more
// of them than a body may have bytes.
func TestAttachLongSecrets(t *testing.T) {
	w := newWorker(t.TempDir(), process.Spec{}, nil, io.Discard)
	w.secrets = []string{strings.Repeat("k3y", workerwire.MaxBody), "short"}
	c := &conn{w: w, version: 1}
	attach := workerwire.Frame{Kind: workerwire.Attach, ID: 1, Body: []byte(`{"epoch":1}`)}
	if !c.handle(&attach, inputWrite{}) || len(c.answers) != 1 {
		t.Fatalf("%d answers", len(c.answers))
	}
	var wire bytes.Buffer
	if err := workerwire.WriteFrames(&wire, c.answers[0]); err != nil {
		t.Fatal(err)
	}
	f, err := workerwire.ReadFrame(&wire)
	if err != nil {
		t.Fatal(err)
	}
	var result workerwire.AttachResult
	if err := f.Decode(&result); err != nil || !slices.Equal(result.Secrets, w.secrets) || result.NextSeq != 1 {
		t.Errorf("%d secrets, next %d, %v", len(result.Secrets), result.NextSeq, err)
	}
}
