package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"holdline/daemon/worker/workertest"
)

// TestStopHung checks that commands say that the daemon hangs, and that stop --all ends it
// with all that it runs.
func TestStopHung(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	d := p.daemon()
	a := p.agent("--reconnect-timeout", "1s").shake()
	a.call("consult", p.hangs())
	p.untilSteps(1)
	s := p.status()
	workertest.Freeze(t, d.Process.Pid)
	t.Cleanup(func() { _ = syscall.Kill(d.Process.Pid, syscall.SIGCONT) })
	stop, doctor := p.asking(t, "stop"), p.asking(t, "doctor")
	stop.want(exitFailure, "", fmt.Sprintf("daemon %d in ", d.Process.Pid))
	for what, text := range map[string]string{"stop": stop.errs.String(), "doctor": doctor.end(exitFailure)} {
		for _, want := range []string{fmt.Sprintf("kill -9 %d", d.Process.Pid), "holdline stop --all"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q: %s", what, want, text)
			}
		}
	}
	want := fmt.Sprintf("daemon %d did not answer and was killed, 1 of its workers ended\n", d.Process.Pid)
	p.asking(t, "stop", "--all").want(0, want, "")
	if alive(s.Workers[0].PID) || alive(s.Workers[0].ChildPID) {
		t.Error("stop --all left a worker")
	}
	waitFor(t, "the proxy's end", func() bool { return !alive(a.cmd.Process.Pid) })
	if _, _, code := p.run("", "status"); code != exitNoDaemon {
		t.Errorf("a daemon was started: status exits %d", code)
	}
	p.must("start")
	p.agent().shake().rest()
}
