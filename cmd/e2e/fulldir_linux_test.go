package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// inNamespace runs the test again in a mount namespace of its own, and reports whether it
// already runs in one. It skips the test if that is not permitted.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const env = "HOLDLINE_TEST_NAMESPACE"
	if os.Getenv(env) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("a mount namespace needs root")
	}
	if err != nil {
		t.Fatalf("in a mount namespace: %v\n%s", err, out)
	}
	return false
}

// fill writes to a file in dir until no room is left.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "filler"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{4 << 10, 1} {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("filling %s: %v", dir, err)
		}
		err = nil
	}
}

// TestFullRuntimeDirRoot checks that a daemon starts in a runtime directory without a free
// byte, however the daemon before it ended, and that a session continues.
func TestFullRuntimeDirRoot(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	p := newPlace(t)
	run := filepath.Join(p.dir, "run")
	if err := syscall.Mount("holdline-test", run, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Fatalf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(run, syscall.MNT_DETACH) })
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})

	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	p.untilReady("tools")
	kill9(t, d.Process.Pid)
	fill(t, run)
	d = p.daemon()
	if x := a.ask("tools/call", map[string]any{"name": "health_snapshot"}); x.Error != nil || x.Result.IsError {
		t.Errorf("after a kill: %s", x.raw)
	}
	a.rest()

	p.must("stop")
	waitFor(t, "the daemon's end", func() bool { return !alive(d.Process.Pid) })
	fill(t, run)
	d = p.daemon()
	p.agent("--no-autostart").shake().rest()

	// Take the room that these files had. What a dead worker left remains, and only a
	// daemon may remove that.
	cut := func() {
		for _, name := range []string{"epoch", "store", "daemon.lock"} {
			if err := os.Truncate(filepath.Join(run, "holdline", name), 0); err != nil {
				t.Fatal(err)
			}
		}
		fill(t, run)
	}
	server := p.untilReady("tools")
	worker := p.workerOf(server)
	kill9(t, d.Process.Pid)
	kill9(t, worker)
	waitFor(t, "the server's end", func() bool { return !alive(server) })
	cut()
	d = p.daemon()
	if left, err := filepath.Glob(filepath.Join(run, "holdline/w/*/calls.jsonl")); err != nil || len(left) != 0 {
		t.Errorf("what dead workers left: %q, %v", left, err)
	}

	// Now no file can be removed.
	kill9(t, d.Process.Pid)
	cut()
	if log := p.failsToStart(t); !strings.Contains(log, "the runtime directory is full: free some room") {
		t.Errorf("a start without any room says: %s", log)
	}
	if err := os.Remove(filepath.Join(run, "filler")); err != nil {
		t.Fatal(err)
	}
	p.daemon()
	p.agent("--no-autostart").shake().rest()
}

// TestSmallRuntimeDirRoot checks that long requests and results need no files: a runtime directory
// with little room has none of them.
func TestSmallRuntimeDirRoot(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	p := newPlace(t)
	run := filepath.Join(p.dir, "run")
	if err := syscall.Mount("holdline-test", run, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Fatalf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(run, syscall.MNT_DETACH) })
	p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"})}).daemon()
	a := p.agent().shake()
	result := longResult()
	for range 3 {
		id := a.call("odd__say", map[string]any{"text": result})
		if x := a.wait(id); x.result(t, id) != result {
			t.Errorf("the answer has %d bytes: %.300s", len(x.raw), x.raw)
		}
		if files := p.longFiles(); len(files) > 0 && !strings.Contains(files[0], "/a/") {
			t.Errorf("files: %q", files)
		}
	}
	a.rest()
	p.must("stop", "--all")
}
