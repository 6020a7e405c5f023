package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"holdline/protocol/control"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// speaking returns the name of the program that speaks only these versions of the workers'
// protocol.
func speaking(from, to int) string { return fmt.Sprintf("holdline-speaks-%d-%d", from, to) }

// speak makes this process, if it is a program of that name, and its workers speak the
// versions in the name. It reports whether it is one.
func speak() bool {
	exe, err := os.Executable()
	if err != nil {
		return false
	}
	var from, to int
	if _, err := fmt.Sscanf(filepath.Base(exe), "holdline-speaks-%d-%d", &from, &to); err != nil {
		return false
	}
	process.Speak(from, to)
	return true
}

var copying sync.Mutex

// speaker returns the path of a program that speaks these versions. It is a separate file,
// so that a daemon sees another program in it, and has no holdline-stdio beside it, so that
// it is also the program of the workers.
func speaker(t *testing.T, from, to int) string {
	t.Helper()
	copying.Lock()
	defer copying.Unlock()
	dir := filepath.Join(programs, "speakers")
	path := filepath.Join(dir, speaking(from, to))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := errors.Join(os.MkdirAll(dir, 0o700), copyFile(filepath.Join(programs, "holdline"), path)); err != nil {
		t.Fatal(err)
	}
	return path
}

// point makes the installed program a link to the program at path.
func (p *place) point(path string) {
	p.t.Helper()
	next := p.bin() + ".new"
	if err := errors.Join(os.MkdirAll(filepath.Dir(p.bin()), 0o700), os.Symlink(path, next),
		os.Rename(next, p.bin())); err != nil {
		p.t.Fatal(err)
	}
}

// offer returns the error with which a worker answers a daemon of this version.
func offer(t *testing.T, id string, p *place, version int) error {
	t.Helper()
	nc, err := net.Dial("unix", filepath.Join(p.dir, "run/holdline/w", id, process.FileSocket))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	f := workerwire.Frame{
		Kind: workerwire.Initialize, ID: 1, Body: jsonrpc.Encode(workerwire.InitializeParams{Version: version}),
	}
	if err := workerwire.WriteFrames(nc, f); err != nil {
		t.Fatal(err)
	}
	if f, err = workerwire.ReadFrame(nc); err != nil {
		t.Fatal(err)
	}
	return f.Err()
}

// refusesVersion reports whether err is the answer of a worker that does not speak the
// version.
func refusesVersion(err error) bool {
	e, ok := errors.AsType[*workerwire.Error](err)
	return ok && e.Code == workerwire.CodeVersion
}

// onOldWorker begins a consult with a daemon and a worker that speak only the oldest
// version, and returns its id and the worker.
func (p *place) onOldWorker(t *testing.T, a *agent, args map[string]any) (id int, w control.Worker) {
	t.Helper()
	id = a.call("consult", args)
	p.untilSteps(1)
	w = p.status().Workers[0]
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", w.PID))
	if err == nil && filepath.Base(exe) != speaking(process.Version, process.Version) {
		t.Fatalf("the worker is %s", exe)
	}
	if err := offer(t, w.ID, p, process.Version+1); !refusesVersion(err) {
		t.Fatalf("an old worker answers a newer version with %v, want it refused", err)
	}
	if err := offer(t, w.ID, p, process.Version); err != nil {
		t.Fatalf("an old worker refuses its version: %v", err)
	}
	return id, w
}

// TestOldWorker replaces the daemon by one that makes workers of a newer version, while a
// consult runs on a worker of the older version.
func TestOldWorker(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"killed", "handed over"} {
		t.Run(how, func(t *testing.T) {
			p := newPlace(t)
			p.point(speaker(t, process.Version, process.Version))
			d := p.daemonAt(p.bin())
			a := p.agent("--no-autostart").shake()
			args, open := p.slowUntil(t)
			id, w := p.onOldWorker(t, a, args)
			p.point(speaker(t, process.Version, process.Version+1))
			if how == "killed" {
				kill9(t, d.Process.Pid)
				p.daemonAt(p.bin())
			} else if out, errs, code := p.run("", "upgrade"); code != 0 {
				t.Fatalf("upgrade: exit %d, %s%s", code, out, errs)
			}
			s := p.until("the worker to be adopted",
				func(s control.StatusAnswer) bool { return len(s.Workers) == 1 && s.Workers[0].Attached })
			if now := s.Workers[0]; now.PID != w.PID || now.ChildPID != w.ChildPID || s.Daemon.Epoch != 2 {
				t.Errorf("daemon %+v has %+v, want %+v", s.Daemon, now, w)
			}
			open()
			if x := a.wait(id); x.Error != nil || x.Result.IsError || !strings.Contains(x.text(), "the one answer") {
				t.Errorf("the consult's answer: %s", x.raw)
			}
			if n := p.steps(); n != 2 {
				t.Errorf("the program took %d steps, want 2: it ran once", n)
			}
			// The next consult has a worker of the present version, which speaks both.
			again := a.call("consult", p.hangs())
			p.untilSteps(3)
			now := p.until("the next worker alone",
				func(s control.StatusAnswer) bool { return len(s.Workers) == 1 && s.Workers[0].PID != w.PID }).Workers[0]
			for v := process.Version; v <= process.Version+1; v++ {
				if err := offer(t, now.ID, p, v); err != nil {
					t.Errorf("version %d: %v", v, err)
				}
			}
			if err := offer(t, now.ID, p, process.Version+2); !refusesVersion(err) {
				t.Errorf("version %d: %v, want it refused", process.Version+2, err)
			}
			a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, again))
			a.rest(id, again)
		})
	}
}

// TestOldWorkerIsTold has the new daemon write to the old worker.
func TestOldWorkerIsTold(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.daemonAt(speaker(t, process.Version, process.Version))
	a := p.agent("--no-autostart").shake()
	id, w := p.onOldWorker(t, a, p.hangs())
	kill9(t, d.Process.Pid)
	p.daemonAt(speaker(t, process.Version, process.Version+1))
	p.until("the worker to be adopted",
		func(s control.StatusAnswer) bool { return len(s.Workers) == 1 && s.Workers[0].Attached })
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
	if list := p.ended(); !strings.Contains(list, "cancelled") {
		t.Errorf("consults: %s", list)
	}
	p.until("the worker to be gone", func(control.StatusAnswer) bool { return !alive(w.ChildPID) && !alive(w.PID) })
	a.rest(id)
}

// TestNewerWorker goes back to an older program, which does not speak the version of a
// worker. It says so once, and leaves nothing of the worker.
func TestNewerWorker(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.daemonAt(speaker(t, process.Version+1, process.Version+1))
	a := p.agent("--no-autostart").shake()
	id := a.call("consult", p.hangs())
	p.untilSteps(1)
	w := p.status().Workers[0]
	kill9(t, d.Process.Pid)
	p.daemon()
	x := a.wait(id)
	want := fmt.Sprintf("%d is of a newer program, this one takes %d to %d", process.Version+1, process.Oldest,
		process.Version)
	if !strings.Contains(x.raw, "outcome_unknown") || !strings.Contains(x.raw, want) {
		t.Errorf("the consult's answer: %s", x.raw)
	}
	if alive(w.PID) || alive(w.ChildPID) {
		t.Error("the worker of the newer program, or its child, is left")
	}
	a.rest(id)
}

// TestUpgradeNeedsVersionsInUse checks that a program that does not speak the version of a
// living worker is not used until that worker has ended.
func TestUpgradeNeedsVersionsInUse(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.point(speaker(t, process.Version, process.Version))
	p.daemonAt(p.bin())
	a := p.agent("--no-autostart").shake()
	id, w := p.onOldWorker(t, a, p.hangs())
	p.point(speaker(t, process.Version, process.Version+1))
	if out, errs, code := p.run("", "upgrade"); code != 0 {
		t.Fatalf("upgrade: exit %d, %s%s", code, out, errs)
	}
	p.until("the worker to be adopted",
		func(s control.StatusAnswer) bool { return len(s.Workers) == 1 && s.Workers[0].Attached })
	p.point(speaker(t, process.Version+1, process.Version+1))
	if out, errs, code := p.run("", "upgrade"); code == 0 ||
		!strings.Contains(out+errs,
			fmt.Sprintf("version %d of the workers' protocol, which is in use", process.Version)) {
		t.Errorf("upgrade: exit %d, %s%s, want it refused for the worker's sake", code, out, errs)
	}
	if !alive(w.ChildPID) {
		t.Error("the consult's program is gone")
	}
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
	p.until("the worker to be gone", func(s control.StatusAnswer) bool { return len(s.Workers) == 0 && !alive(w.PID) })
	if out, errs, code := p.run("", "upgrade"); code != 0 {
		t.Errorf("upgrade without the worker: exit %d, %s%s", code, out, errs)
	}
	_ = syscall.Kill(p.status().Daemon.PID, syscall.SIGTERM)
	a.rest(id)
}
