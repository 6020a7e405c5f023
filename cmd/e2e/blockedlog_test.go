package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestBlockedLog checks that a daemon serves, reloads and stops although its standard error is
// a full pipe that nothing reads.
func TestBlockedLog(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err == nil { // until the pipe is full
		_, err = w.Write(make([]byte, 4096))
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(programs, "holdline"), "daemon")
	cmd.Env, cmd.Dir, cmd.Stderr = p.env, p.project, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	waitFor(t, "the daemon", func() bool {
		_, _, code := p.look("status")
		return code == 0
	})
	p.agent().shake().call("health_snapshot", map[string]any{})
	if _, errs, code := p.run("", "reload"); code != 0 {
		t.Errorf("reload exits %d: %s", code, errs)
	}
	if _, errs, code := p.run("", "stop"); code != 0 {
		t.Errorf("stop exits %d: %s", code, errs)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	case <-time.After(waitLimit):
		t.Error("the daemon did not end")
	}
}
