package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoctor_WorkerThatTheDaemonDoesNotHave runs a process that says it is a worker of this user's daemon, in a
// directory of which the daemon knows nothing. doctor names it, with its directory, and stop --all ends it. The workers
// that the daemon has are not named.
func TestDoctor_WorkerThatTheDaemonDoesNotHave(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})}).daemon()
	a := p.agent().shake()
	if x := a.wait(a.effect("one", 1)); x.text() != "one" {
		t.Fatal(x.raw)
	}
	scripts := t.TempDir()
	if err := os.WriteFile(filepath.Join(scripts, "worker"), []byte("read never\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(p.dir, "run/holdline/w/slost-00000000")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lost := exec.Command("/bin/sh", "worker", "--run", dir)
	lost.Dir, lost.Env = scripts, p.env
	if _, err := lost.StdinPipe(); err != nil { // it stays open
		t.Fatal(err)
	}
	done := p.background(lost)
	waitFor(t, "the process", func() bool {
		return strings.Contains(p.processes()[lost.Process.Pid], "worker --run "+dir)
	})
	out, errs, code := p.run("", "doctor", "-v")
	want := fmt.Sprintf("process %d is a worker that the daemon can neither use nor end: %s", lost.Process.Pid, dir)
	if code == 0 || !strings.Contains(out, want) || strings.Count(out, "is a worker that the daemon") != 1 ||
		!strings.Contains(out, fmt.Sprintf("kill -9 %d", lost.Process.Pid)) {
		t.Errorf("doctor ends with %d, and does not say %q:\n%s%s", code, want, out, errs)
	}
	a.leave()
	p.must("stop", "--all")
	<-done
}
