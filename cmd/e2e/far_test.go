package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	machines "holdline/daemon/supervisor/far"
	"holdline/protocol/control"
	"holdline/protocol/farwire"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/programtest"
)

// farHome makes a home for the far machine, and a program ssh that runs what it is given there, on
// this machine: without the environment of its caller, and by the user's shell, as sshd does. While
// the file "cut" is there ssh cannot connect. The file "asked" gets its arguments.
func (p *place) farHome() (home string) {
	p.t.Helper()
	home = filepath.Join(p.dir, "far")
	bin := filepath.Join(p.dir, "bin")
	script := fmt.Sprintf(`#!/bin/sh
echo "$@" >>%[1]s/asked
[ -e %[1]s/cut ] && { echo "ssh: connect to host build-box port 22: Network is unreachable" >&2; exit 255; }
while [ "$1" != -- ]; do shift; done
shift 2
exec env -i HOME=%[1]s/far PATH=%[2]s:/usr/bin:/bin SHELL=/bin/sh %[3]s %[4]s sh -c "$*"
`, p.dir, programs, races(p.dir), strings.Join(p.farVariables(), " "))
	if err := os.MkdirAll(home, 0o700); err != nil {
		p.t.Fatal(err)
	}
	programtest.Write(p.t, filepath.Join(bin, "ssh"), script)
	// A daemon that a proxy starts has the PATH of the login shell.
	for _, name := range []string{".profile", ".bash_profile"} {
		p.putHome(p.t.(*testing.T), map[string]string{name: "PATH=" + bin + ":$PATH\n"})
	}
	p.env = append(p.env, "PATH="+bin+":"+programs+":"+os.Getenv("PATH"))
	return home
}

// farVariables are variables of tests that the far machine has, too.
func (p *place) farVariables() (all []string) {
	for _, kv := range p.env {
		if strings.HasPrefix(kv, "HOLDLINE_TEST_") || strings.HasPrefix(kv, "GOCOVERDIR=") {
			all = append(all, kv)
		}
	}
	return all
}

// farProcesses returns the pids of processes whose command line has one of these texts.
func (p *place) farProcesses(texts ...string) (pids []int) {
	p.t.Helper()
	for pid, cmd := range p.processes() {
		for _, text := range texts {
			if strings.Contains(cmd, text) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// links returns the pids of the far ends of connections.
func (p *place) links() (pids []int) { return p.there("\x00far\x00") }

// there returns the pids of what runs on the far machine with the text in its command line. Workers are not
// among them: they have no environment.
func (p *place) there(text string) (pids []int) {
	p.t.Helper()
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cmd, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(d, "environ"))
		if bytes.Contains(cmd, []byte(text)) && bytes.Contains(env, []byte("HOME="+p.dir+"/far\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(d))
			pids = append(pids, pid)
		}
	}
	return pids
}

// nothingFar waits until nothing of the far machine runs, and fails the test if a directory of a worker is left there.
func (p *place) nothingFar(home string) {
	p.t.Helper()
	waitFor(p.t, "the end of all processes there", func() bool { return len(p.farProcesses(home))+len(p.there("")) == 0 })
	if found, _ := filepath.Glob(filepath.Join(home, ".local/state/holdline/far/*/*")); len(found) > 0 {
		p.t.Errorf("directories are left there: %v", found)
	}
}

// farChild returns the pid of the far worker and of its child, as the file there has them.
func (p *place) farChild() (worker, child int) {
	p.t.Helper()
	deadline := time.Now().Add(waitLimit)
	for time.Now().Before(deadline) {
		found, _ := filepath.Glob(filepath.Join(p.dir, "far/.local/state/holdline/far/*/*/state.json"))
		for _, path := range found {
			var st struct {
				PID      int    `json:"pid"`
				ChildPID int    `json:"child_pid"`
				Phase    string `json:"phase"`
			}
			b, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			decode(p.t, string(b), &st)
			if st.ChildPID > 0 && alive(st.PID) && st.Phase == "running" {
				return st.PID, st.ChildPID
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.t.Fatal("no far worker has a child")
	return 0, 0
}

// elsewhere is the entry of a tool server on build-box.
func (p *place) elsewhere(h hosting) map[string]any {
	h["host"] = "build-box"
	return p.toolsEntry(h)
}

// once checks that a call of that token was answered, and has had its effect once.
func (p *place) once(token string, x answer) {
	p.t.Helper()
	if x.Error != nil || x.text() != token {
		p.t.Errorf("%s: %s", token, x.raw)
	}
	if begun, ended := p.effectsOf("begin "+token), p.effectsOf("end "+token); begun != 1 || ended != 1 {
		p.t.Errorf("%s was begun %d times and ended %d times, want one", token, begun, ended)
	}
}

// TestFarServer runs a server on another machine, whose ssh runs what it is given here, with another
// home and PATH, which the server has. While calls are in flight the link is killed, and cut, and the daemon is killed: each call
// is answered once, and has its effect once. When the far worker or its child is killed the call's
// outcome is unknown, and a later call has another process. In the end nothing of it is left there.
func TestFarServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home := p.farHome()
	if err := os.WriteFile(filepath.Join(home, ".profile"), []byte("PATH=$HOME/bin:$PATH\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	entry := p.elsewhere(hosting{"scope": "shared"})
	entry["env"] = map[string]string{"API_TOKEN": "sesame-open-wide", "WHERE": "${HOME}"}
	p.configure(map[string]any{"tools": entry}).daemon()
	a := p.agent().shake()

	call := func(token string, disturb func()) answer {
		t.Helper()
		ms := 700
		if token == "worker" || token == "child" { // whose call never ends
			ms = 600_000
		}
		id := a.call("tools__effect", map[string]any{"token": token, "ms": ms})
		p.untilEffect("begin " + token)
		disturb()
		return a.wait(id)
	}
	kill := func(pids ...int) func() {
		return func() {
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	p.once("first", call("first", func() {}))
	worker, child := p.farChild()
	if s := p.status(); len(s.Workers) != 1 || s.Workers[0].Host != "build-box" || s.Workers[0].RTTUS == 0 ||
		s.Workers[0].ChildPID != 0 {
		t.Errorf("the status has the workers %+v", s.Workers)
	}
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", child))
	if !bytes.Contains(env, []byte("API_TOKEN=sesame-open-wide\x00")) || !bytes.Contains(env, []byte("WHERE="+home+"\x00")) ||
		!bytes.Contains(env, []byte("\x00PATH="+home+"/bin:")) || bytes.Contains(env, []byte(p.dir+"/bin")) {
		t.Errorf("the environment of the server is %q", env)
	}
	asked, err := os.ReadFile(filepath.Join(p.dir, "asked"))
	if err != nil || !bytes.Contains(asked, []byte(" far ")) || bytes.Contains(asked, []byte("sesame")) {
		t.Errorf("the arguments of ssh, %v: %s", err, asked)
	}
	err = filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if b, _ := os.ReadFile(path); bytes.Contains(b, []byte("sesame")) {
				t.Errorf("a value of env is in %s", path)
			}
		}
		return nil // files go while the tree is walked
	})
	if err != nil {
		t.Error(err)
	}
	p.once("link", call("link", func() { kill(p.links()...)() }))
	p.once("cut", call("cut", func() {
		mend := p.cut()
		p.until("the loss to be noticed",
			func(s control.StatusAnswer) bool { return len(s.Workers) == 1 && !s.Workers[0].Attached })
		time.AfterFunc(time.Second, mend)
	}))
	p.once("daemon", call("daemon", kill(p.status().Daemon.PID)))
	if now, _ := p.farChild(); now != worker {
		t.Errorf("the far worker was %d and is %d, though only links and the daemon were killed", worker, now)
	}
	if x := call("worker", kill(worker)); x.code() != "outcome_unknown" {
		t.Errorf("the far worker was killed: %s", x.raw)
	}
	p.once("after", call("after", func() {}))
	_, child = p.farChild()
	if x := call("child", kill(child)); x.code() != "outcome_unknown" {
		t.Errorf("the far child was killed: %s", x.raw)
	}
	if x := a.wait(a.call("tools__big", map[string]any{"bytes": 300_000})); len(x.text()) < 300_000 {
		t.Errorf("a long answer has %d bytes", len(x.text()))
	}
	for _, token := range []string{"worker", "child"} {
		if begun, ended := p.effectsOf("begin "+token), p.effectsOf("end "+token); begun != 1 || ended != 0 {
			t.Errorf("%s was begun %d times and ended %d times, want one and none", token, begun, ended)
		}
	}
	a.leave()
	p.must("stop", "--all")
	p.nothingFar(home)
}

// TestFarWorkerLeaves kills the link when the daemon has received the end of a far child, and has not
// acknowledged it, and stops the daemon. That connects once more: the worker leaves, and nothing of it is
// left there.
func TestFarWorkerLeaves(t *testing.T) {
	t.Parallel()
	p := newPlace(t).faults()
	home := p.farHome()
	p.configure(map[string]any{"tools": p.elsewhere(hosting{"scope": "shared"})}).daemon()
	a := p.agent().shake()
	if x := a.wait(a.effect("before", 1)); x.text() != "before" {
		t.Fatalf("the first call: %s", x.raw)
	}
	const point = "hosted.dead"
	p.dieAs(point, death{held: true})
	_, child := p.farChild()
	_ = syscall.Kill(child, syscall.SIGKILL)
	waitFor(t, "the end of the child", func() bool { return p.died(point) })
	links := p.links()
	for _, pid := range links {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	waitFor(t, "the end of the link", func() bool { return !slices.ContainsFunc(links, alive) })
	p.letGo(point)
	if x := a.wait(a.effect("after", 1)); x.text() != "after" {
		t.Errorf("a call of the next process: %s", x.raw)
	}
	a.leave()
	p.must("stop", "--all")
	p.nothingFar(home)
}

// cut has ssh fail to connect from now on, and kills the connections there are. mend ends that.
func (p *place) cut() (mend func()) {
	p.t.Helper()
	path := filepath.Join(p.dir, "cut")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
	for _, pid := range p.links() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return func() { _ = os.Remove(path) }
}

// TestFarHostDown starts the daemon while the host of a server is down. A call fails at once with
// the words of ssh and was not made, the status says so, and a call works once the host is up. Then
// the host goes down with a call in flight, and the daemon is killed: the next one refuses other calls
// at once, and the call in flight is answered once when the host is back.
func TestFarHostDown(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home := p.farHome()
	mend := p.cut()
	p.configure(map[string]any{"tools": p.elsewhere(hosting{"scope": "shared"})}).daemon()
	a := p.agent().shake()
	wantRefused := func(token string) {
		t.Helper()
		begun := time.Now()
		x := a.wait(a.effect(token, 1))
		if x.code() != "transport_failure" || !strings.Contains(x.raw, "Network is unreachable") ||
			!strings.Contains(x.raw, `"reason":"unreachable"`) {
			t.Errorf("a call while the host is down: %s", x.raw)
		}
		if took := time.Since(begun); took > endBound || p.effectsOf("begin "+token) != 0 {
			t.Errorf("it was refused after %v, and begun %d times", took, p.effectsOf("begin "+token))
		}
	}
	wantRefused("down")
	if out := p.must("status"); !strings.Contains(out, "holdline hosts doctor build-box") ||
		!strings.Contains(out, "Network is unreachable") {
		t.Errorf("the status says\n%s", out)
	}
	out, errs, code := p.run("", "doctor", "-v")
	said := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"host build-box: cannot be reached from this shell: ssh: connect to host build-box port 22: Network is unreachable",
		"its servers cannot be used: tools", "holdline hosts doctor build-box",
	} {
		if code == 0 || !strings.Contains(said, want) || strings.Contains(said, "servers: tools") {
			t.Errorf("doctor ends with %d, and does not say %q:\n%s%s", code, want, out, errs)
		}
	}
	mend()
	if out, errs, _ := p.run("", "doctor", "-v"); !strings.Contains(out, "host build-box: answers after") {
		t.Errorf("doctor with the host up says\n%s%s", out, errs)
	}
	var up answer
	waitFor(t, "the host to be tried again", func() bool {
		up = a.wait(a.effect("up", 1))
		return up.Error == nil && up.text() == "up"
	})
	if n := p.effectsOf("end up"); n != 1 {
		t.Errorf("the call has ended %d times", n)
	}
	if out := p.must("status"); !strings.Contains(out, "tools runs on build-box") || !strings.Contains(out, " away") {
		t.Errorf("the status says\n%s", out)
	}

	id := a.effect("flight", 500)
	p.untilEffect("begin flight")
	mend = p.cut()
	p.until("the loss to be noticed",
		func(s control.StatusAnswer) bool { return len(s.Workers) == 1 && s.Workers[0].Unreachable != "" })
	if out := p.must("status"); !strings.Contains(out, "which cannot be reached; calls in flight wait") {
		t.Errorf("the status says\n%s", out)
	}
	_ = syscall.Kill(p.status().Daemon.PID, syscall.SIGKILL)
	b := p.agent().shake()
	if x := b.wait(b.effect("other", 1)); x.code() != "transport_failure" || p.effectsOf("begin other") != 0 {
		t.Errorf("a call to the next daemon while the host is down: %s", x.raw)
	}
	if out := p.must("status"); !strings.Contains(out, "holdline hosts doctor build-box") {
		t.Errorf("the status of the next daemon says\n%s", out)
	}
	p.untilEffect("end flight")
	mend()
	if x := a.wait(id); x.text() != "flight" || p.effectsOf("begin flight") != 1 {
		t.Errorf("the call in flight: %s", x.raw)
	}
	a.leave()
	b.leave()
	p.must("stop", "--all")
	p.nothingFar(home)
}

// TestFarGivenUp keeps a host down for longer than host_window: the call in flight has an unknown
// outcome. What runs there still is ended as soon as the host is back, before another process.
func TestFarGivenUp(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home := p.farHome()
	p.configure(map[string]any{"tools": p.elsewhere(hosting{"scope": "shared", "host_window": "1h"})}).daemon()
	a := p.agent().shake()
	id := a.effect("flight", 60_000)
	p.untilEffect("begin flight")
	worker, child := p.farChild()
	mend := p.cut()
	p.until("the loss to be noticed",
		func(s control.StatusAnswer) bool { return len(s.Workers) == 1 && s.Workers[0].Unreachable != "" })
	dirs, _ := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*/contact"))
	if len(dirs) != 1 {
		t.Fatalf("the workers here: %v", dirs)
	}
	long := time.Now().Add(-2 * time.Hour) // since it was heard from
	if err := os.Chtimes(dirs[0], long, long); err != nil {
		t.Fatal(err)
	}
	if x := a.wait(id); x.code() != "outcome_unknown" {
		t.Errorf("the call in flight: %s", x.raw)
	}
	mend()
	waitFor(t, "what was given up to be ended", func() bool { return !alive(worker) && !alive(child) })
	waitFor(t, "the host to be tried again", func() bool { return a.wait(a.effect("after", 1)).text() == "after" })
	if n := p.effectsOf("end flight"); n != 0 {
		t.Errorf("the call that was given up has ended %d times", n)
	}
	a.leave()
	p.must("stop", "--all")
	p.nothingFar(home)
}

// TestFarOrphans kills the far worker, alone and with the daemon, of a server that has started a process in a session
// of its own. Nothing of the server is left there once another process of it has answered.
func TestFarOrphans(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.farHome()
	entry := p.elsewhere(hosting{"scope": "shared"})
	entry["args"] = append(entry["args"].([]string), "-grandchild")
	p.configure(map[string]any{"tools": entry}).daemon()
	a := p.agent().shake()
	for i, kill := range []func(worker int){
		func(worker int) { kill9(t, worker) },
		func(worker int) { kill9(t, p.status().Daemon.PID); kill9(t, worker) },
	} {
		if x := a.wait(a.effect(fmt.Sprint("before", i), 1)); x.Error != nil || x.Result.IsError {
			t.Fatal(x.raw)
		}
		worker, child := p.farChild()
		var grandchildren []int // the server may have forked it without having executed it yet
		waitFor(t, "what the server has started there", func() bool {
			grandchildren = p.there("sleep\x00600")
			return len(grandchildren) == 1
		})
		kill(worker)
		waitFor(t, "another process", func() bool { return a.wait(a.effect(fmt.Sprint("after", i), 1)).Error == nil })
		_, next := p.farChild()
		if alive(child) || alive(grandchildren[0]) || next == child {
			t.Errorf("the far child was %d and is %d; the first lives: %v, what it started: %v",
				child, next, alive(child), alive(grandchildren[0]))
		}
	}
	a.leave()
	p.must("stop", "--all")
	p.nothingFar(filepath.Join(p.dir, "far"))
}

// TestHostsAdd_AnotherProtocol checks that hosts add replaces a holdline there that speaks another protocol, and
// that a server runs by the new one.
func TestHostsAdd_AnotherProtocol(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home := p.farHome()
	hello := farwire.Hello{Version: farwire.Version, Workers: process.Newest() - 1, Node: "n", Program: "0.0.9"}
	old := filepath.Join(home, machines.Dir, machines.Program())
	script := fmt.Sprintf("#!/bin/sh\necho 'holdline-far %s'\ncat >/dev/null\n", jsonrpc.Encode(hello))
	programtest.Write(t, old, script)
	p.configure(map[string]any{"tools": p.elsewhere(hosting{"scope": "shared"})}).daemon()
	a := p.agent().shake()
	x := a.wait(a.effect("old", 1))
	if x.code() != "transport_failure" || !strings.Contains(x.raw, "holdline hosts add build-box") {
		t.Errorf("a call before that: %s", x.raw)
	}
	out := p.must("hosts", "add", "build-box")
	for _, want := range []string{
		"its holdline (0.0.9) speaks another protocol", "was copied to", "holdline doctor there: 5 checks passed",
		"build-box is ready",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("hosts add says no %q:\n%s", want, out)
		}
	}
	waitFor(t, "the host to be tried again", func() bool { return a.wait(a.effect("new", 1)).text() == "new" })
	a.leave()
	p.must("stop", "--all")
}
