package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/cmd/holdline/pair"
	"holdline/contrib"
	"holdline/daemon/configfile"
	"holdline/protocol/control"
)

// TestSystemd has a real systemd manage the daemon. It runs in a system that is booted for
// it alone: make e2e-systemd.
func TestSystemd(t *testing.T) {
	dir := os.Getenv("HOLDLINE_LAB")
	if dir == "" {
		t.Skip("runs beside a systemd of its own: make e2e-systemd")
	}
	for _, c := range []struct {
		name string
		run  func(*managed)
	}{
		{"verify", verified},
		{"activation", activated},
		{"killed", killedUnderSystemd},
		{"restart", restarted},
		{"stop", stoppedBySystemd},
		{"stop by command", stoppedByCommand},
		{"watchdog", watched},
		{"upgrade", upgradedUnderSystemd},
		{"start limit", startLimit},
		{"burst of kills", burstOfKills},
		{"takeover", takenOver},
		{"logout", loggedOut},
		{"limits", limitedUnderSystemd},
		{"install", installedUnderSystemd},
		{"setup", setUpUnderSystemd},
		{"uninstall", uninstalledWithoutUnits},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newManaged(t, dir)) })
	}
}

// managed is a place whose user has a systemd, with the units installed.
type managed struct {
	*place
	t     *testing.T
	start string // the program that the units start
}

// newManaged makes a new home. All tests use the same directory: it is the manager's.
func newManaged(t *testing.T, dir string) *managed {
	t.Helper()
	m := &managed{
		t: t, place: &place{t: t, dir: dir, project: filepath.Join(dir, "p")},
		start: filepath.Join(programs, "holdline"),
	}
	m.env = []string{
		"HOME=" + filepath.Join(dir, "home"), "XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR"),
		"PATH=" + programs + ":" + os.Getenv("PATH"), "ANTHROPIC_API_KEY=stand-in", "LANG=C.UTF-8",
	}
	m.wipe()
	for _, d := range []string{m.programs(), m.project + "/.git"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.configure(map[string]any{"tools": m.toolsEntry(hosting{"scope": "shared"})})
	m.units()
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("journalctl", "--user-unit", contrib.SystemdService, "-n", "200",
				"--no-pager").CombinedOutput()
			t.Logf("the journal:\n%s", out)
		}
		_, _ = m.try("disable", "--now", contrib.SystemdSocket)
		_, _ = m.try("stop", contrib.SystemdSocket, contrib.SystemdService)
		_, _ = m.try("reset-failed")
		_, _, _ = m.run("", "stop", "--all")
		m.noneLeft(waitLimit / 2)
	})
	return m
}

// wipe removes what an earlier test has left.
func (m *managed) wipe() {
	m.t.Helper()
	latches, _ := filepath.Glob(m.latch("*"))
	for _, name := range []string{"home", "p", "effects", "bin", testVariablesFile} {
		latches = append(latches, filepath.Join(m.dir, name))
	}
	for _, path := range latches {
		if err := os.RemoveAll(path); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Dir(m.socket())); err != nil {
		m.t.Fatal(err)
	}
}

func (m *managed) socket() string {
	return filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "holdline/daemon.sock")
}

// windows makes the windows of recovery shorter, also for the managed daemon.
func (m *managed) windows(by int) {
	m.place.windows(by)
	m.dropIn("windows", fmt.Sprintf("[Service]\nEnvironment=HOLDLINE_TEST_WINDOWS=%d\n", by))
}

// units installs the units, with the variables that the daemon needs to find the programs.
func (m *managed) units() {
	m.t.Helper()
	units, err := contrib.SystemdUnits(m.start)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, unit := range units {
		m.write(unit.Name, unit.Text)
	}
	var env strings.Builder
	for _, v := range m.env {
		fmt.Fprintf(&env, "Environment=%q\n", v)
	}
	m.dropIn("environment", "[Service]\n"+env.String())
}

func (m *managed) dropIn(name, text string) {
	m.t.Helper()
	m.write(filepath.Join(contrib.SystemdService+".d", name+".conf"), text)
	m.systemctl("daemon-reload")
}

// write writes a unit file of the user.
func (m *managed) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.dir, "home/.config/systemd/user", name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// try runs systemctl for the user.
func (m *managed) try(args ...string) (string, error) {
	cmd := exec.Command("systemctl", append([]string{"--user"}, args...)...)
	cmd.Env = m.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// systemctl runs systemctl, which must succeed, and returns its output.
func (m *managed) systemctl(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Fatalf("systemctl --user %v: %v\n%s", args, err, out)
	}
	return out
}

// show returns one property of a unit.
func (m *managed) show(unit, property string) string {
	m.t.Helper()
	return strings.TrimSpace(m.systemctl("show", "--value", "-p", property, unit))
}

// main returns the pid of the daemon that systemd manages.
func (m *managed) main() int {
	m.t.Helper()
	pid, err := strconv.Atoi(m.show(contrib.SystemdService, "MainPID"))
	if err != nil {
		m.t.Fatal(err)
	}
	return pid
}

// untilMain waits until the service is active with another pid than before, and returns it.
func (m *managed) untilMain(before int) int {
	m.t.Helper()
	waitFor(m.t, "the service with another process", func() bool {
		pid := m.main()
		return pid != 0 && pid != before && m.show(contrib.SystemdService, "ActiveState") == "active"
	})
	return m.main()
}

// enable enables the socket.
func (m *managed) enable() *managed {
	m.t.Helper()
	m.systemctl("enable", "--now", contrib.SystemdSocket)
	return m
}

// ours returns the processes of holdline in this place, without proxies.
func (m *managed) ours() map[int]string {
	found := m.processes()
	maps.DeleteFunc(found, func(_ int, cmd string) bool {
		args := strings.Fields(cmd)
		proxy := filepath.Base(args[0]) == pair.Small && role(args[1:]) == pair.Command
		return proxy || strings.Contains(cmd, pair.Command) ||
			!strings.Contains(cmd, "holdline ") && !strings.Contains(cmd, programs)
	})
	return found
}

// noneLeft checks that within this time no process of holdline is left.
func (m *managed) noneLeft(within time.Duration) {
	m.t.Helper()
	for deadline := time.Now().Add(within); len(m.ours()) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Errorf("processes are left: %v", m.ours())
			return
		}
	}
}

// logged counts the lines with these words in the journal of the daemons of all tests.
func (m *managed) logged(words string) int {
	m.t.Helper()
	return strings.Count(m.must("logs", "-n", "20000"), words)
}

// untilLogged waits until the journal has these words in more than n lines: the journal takes its time.
func (m *managed) untilLogged(words string, n int) {
	m.t.Helper()
	for deadline := time.Now().Add(waitLimit); m.logged(words) <= n; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("the journal has %q in %d lines, want more", words, n)
		}
	}
}

// daemons returns the pids of all running daemons, managed or not. A process that a proxy starts only
// to ask why there is no daemon is none.
func (m *managed) daemons() []int {
	var pids []int
	for pid, cmd := range m.ours() {
		if args := strings.Fields(cmd); len(args) > 1 && args[1] == "daemon" && !slices.Contains(args, "--why") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// noDaemon waits until no daemon runs. A process that was started to become one may need a moment to see
// that it must not.
func (m *managed) noDaemon() {
	m.t.Helper()
	waitFor(m.t, "no daemon", func() bool { return len(m.daemons()) == 0 })
}

// working is an agent with a consult and a call of a hosted server in flight.
type working struct {
	*agent
	consult, call int
	children      []int  // the processes of both
	open          func() // lets the consult end
}

// atWork has an agent make a consult and a call that end once [managed.answered] lets them.
func (m *managed) atWork(args ...string) *working {
	m.t.Helper()
	prompt, open := m.slowUntil(m.t)
	a := &working{agent: m.agent(args...).shake(), open: open}
	a.call = a.agent.call("tools__effect", map[string]any{"token": "t1", "until": m.latch("t1")})
	a.consult = a.agent.call("consult", prompt)
	m.untilSteps(1)
	m.untilEffect("begin t1")
	for _, w := range m.status().Workers {
		a.children = append(a.children, w.PID, w.ChildPID)
	}
	if len(a.children) != 4 {
		m.t.Fatalf("workers and children: %v", a.children)
	}
	return a
}

// answered lets both end, and checks that they have their answers, once and from one run.
func (m *managed) answered(a *working) {
	m.t.Helper()
	m.letThrough("t1")
	a.open()
	got := a.waitAll(a.consult, a.call)
	if x := got[a.consult]; x.Error != nil || x.Result.IsError || !strings.Contains(x.text(), "the one answer") {
		m.t.Errorf("the consult's answer: %s", x.raw)
	}
	if x := got[a.call]; x.Error != nil || x.Result.IsError || x.text() != "t1" {
		m.t.Errorf("the call's answer: %s", x.raw)
	}
	a.rest(a.consult, a.call)
	if n := m.effectsOf("begin t1"); n != 1 || m.effectsOf("end t1") != 1 || m.steps() != 2 {
		m.t.Errorf("the server began the call %d times, the consult took %d steps: each runs once", n, m.steps())
	}
}

// exits checks that a proxy exits with that code.
func (m *managed) exits(a *agent, code int) {
	m.t.Helper()
	waitFor(m.t, "the proxy's end", func() bool { return !alive(a.cmd.Process.Pid) })
	_ = a.cmd.Wait()
	if got := a.cmd.ProcessState.ExitCode(); got != code {
		m.t.Errorf("the proxy exits %d, want %d: %s", got, code, a.errs)
	}
}

// survived checks that the processes of the calls are the same as before.
func (m *managed) survived(a *working) {
	m.t.Helper()
	for _, pid := range a.children {
		if !alive(pid) {
			m.t.Errorf("process %d, a worker or its child, is gone", pid)
		}
	}
}

// verified checks that systemd finds nothing wrong with the units.
func verified(m *managed) {
	args := []string{"--user", "verify"}
	for _, name := range []string{contrib.SystemdSocket, contrib.SystemdService} {
		args = append(args, filepath.Join(m.dir, "home/.config/systemd/user", name))
	}
	cmd := exec.Command("systemd-analyze", args...)
	cmd.Env = m.env
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		m.t.Errorf("systemd-analyze --user verify: %v\n%s", err, out)
	}
	cmd = exec.Command("systemd-analyze", "--user", "--no-pager", "security", contrib.SystemdService)
	cmd.Env = m.env
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	m.t.Logf("systemd-analyze --user security: %s (%v)", lines[len(lines)-1], err)
}

// activated checks that the first connection starts the daemon, and that the daemon reports
// its status to systemd.
func activated(m *managed) {
	m.enable()
	if pid := m.main(); pid != 0 {
		m.t.Fatalf("daemon %d runs before anybody connected", pid)
	}
	before, err := os.Stat(m.socket())
	if err != nil {
		m.t.Fatal(err)
	}
	if dir, err := os.Stat(filepath.Dir(m.socket())); err != nil || dir.Mode().Perm() != 0o700 ||
		before.Mode().Perm() != 0o600 {
		m.t.Errorf("the socket is %v in %v, %v", before.Mode(), dir.Mode(), err)
	}
	m.agent().shake().rest()
	pid := m.untilMain(0)
	if s := m.status(); s.Daemon.PID != pid || s.Daemon.StartedBy != "systemd" {
		m.t.Errorf("daemon %+v, and systemd's is %d", s.Daemon, pid)
	}
	waitFor(m.t, "the service's status", func() bool {
		return strings.HasPrefix(m.show(contrib.SystemdService, "StatusText"), "serving at "+m.socket())
	})
	m.untilLogged("daemon ready", 0)
	log := m.must("logs", "-n", "20000")
	line := lineWith(log, "daemon ready")
	if !strings.Contains(line, "started_by=systemd") || strings.Contains(line, "level=") ||
		strings.Contains(line, "<6>") {
		m.t.Errorf("the journal's line is %q of\n%s", line, log)
	}
	out, _, _ := m.run("", "doctor", "-v")
	for line := range strings.SplitSeq(out, "\n") {
		if strings.HasPrefix(line, "problem  systemd") || strings.HasPrefix(line, "note     systemd") ||
			strings.Contains(line, "two daemons") {
			m.t.Errorf("doctor: %s", line)
		}
	}
	// An orderly stop leaves the socket in place, and the next connection starts the next
	// daemon.
	m.systemctl("stop", contrib.SystemdService)
	if after, err := os.Stat(m.socket()); err != nil || !os.SameFile(before, after) {
		m.t.Errorf("the socket is another one, or gone: %v", err)
	}
	m.agent().shake().rest()
}

func lineWith(text, what string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, what) {
			return line
		}
	}
	return ""
}

// killedUnderSystemd kills the daemon with SIGKILL. No call is lost, and all workers live
// on.
func killedUnderSystemd(m *managed) {
	m.enable()
	a := m.atWork()
	pid := m.main()
	for _, child := range a.children {
		if oomScore(m.t, child) <= oomScore(m.t, pid) {
			m.t.Errorf("when memory is short daemon %d goes before process %d, a worker or its child", pid, child)
		}
	}
	kill9(m.t, pid)
	m.untilMain(pid)
	m.survived(a)
	m.answered(a)
	if n := m.show(contrib.SystemdService, "NRestarts"); n != "1" {
		m.t.Errorf("systemd restarted it %s times", n)
	}
}

// oomScore returns how likely the kernel kills a process when memory is short.
func oomScore(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// restarted checks that nothing is lost by what systemctl does to a service.
func restarted(m *managed) {
	m.enable()
	a := m.atWork()
	pid, read := m.main(), m.logged("configuration read")
	m.configure(map[string]any{"tools": m.toolsEntry(hosting{"scope": "shared"})}, "consult",
		map[string]any{"max_concurrent": 3})
	m.systemctl("reload", contrib.SystemdService)
	m.systemctl("daemon-reload")
	if now := m.main(); now != pid {
		m.t.Errorf("a reload made daemon %d of %d", now, pid)
	}
	m.untilLogged("configuration read", read)
	m.systemctl("restart", contrib.SystemdService)
	if now := m.untilMain(pid); now == pid {
		m.t.Error("a restart did nothing")
	}
	m.survived(a)
	m.systemctl("restart", contrib.SystemdSocket) // restarts the service with it
	m.survived(a)
	m.answered(a)
	// A file with an error is refused, and the daemon continues.
	if err := os.WriteFile(filepath.Join(m.dir, "home/.config/holdline/config.json"), []byte("{"), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if out, err := m.try("reload", contrib.SystemdService); err == nil {
		m.t.Errorf("the reload of a bad file succeeded: %s", out)
	}
	m.must("status")
}

// stoppedBySystemd checks that after a plain stop no daemon is started besides systemd,
// that the proxies say what they wait for, and that nothing is left after the windows have
// passed.
func stoppedBySystemd(m *managed) {
	m.windows(5)
	m.enable()
	m.agent("--reconnect-timeout", "10m").shake().rest() // the start of a daemon may take longer than the windows
	a := m.agent().shake()
	call := a.call("tools__hang", map[string]any{"token": "h"})
	args := m.slow(0.5)
	args["wait_s"] = 0
	if x := a.wait(a.call("consult", args)); x.Result.IsError {
		m.t.Fatalf("the consult: %s", x.raw)
	}
	m.untilSteps(1)
	m.untilEffect("begin h")
	m.systemctl("stop", contrib.SystemdSocket, contrib.SystemdService)
	if state := m.show(contrib.SystemdService, "ActiveState"); state != "inactive" {
		m.t.Errorf("the stopped service is %s", state)
	}
	waitFor(m.t, "the proxy to say what it waits for", func() bool {
		return strings.Contains(a.errs.String(), "holdline.socket is stopped") &&
			strings.Contains(a.errs.String(), "systemctl --user start holdline.socket")
	})
	// A new proxy says the same, at once.
	b := m.agent()
	b.begin("initialize", map[string]any{})
	if x := b.wait(1); x.Error == nil || !strings.Contains(x.Error.Message, "holdline.socket is stopped") {
		m.t.Errorf("a new agent: %s", x.raw)
	}
	m.exits(b, exitNoDaemon)
	if _, errs, code := m.run("", "consult", "x"); code == 0 ||
		!strings.Contains(errs, "systemctl --user start holdline.socket") {
		m.t.Errorf("consult: exit %d, %s", code, errs)
	}
	if x := a.wait(call); x.code() != "outcome_unknown" && !strings.Contains(x.raw, "outcome_unknown") {
		m.t.Errorf("the call's answer: %s", x.raw)
	}
	m.exits(a, exitLost)
	m.noDaemon()
	m.noneLeft(waitLimit)
	if m.steps() != 2 {
		m.t.Errorf("the consult in the background took %d steps, want 2", m.steps())
	}
	m.systemctl("start", contrib.SystemdSocket)
	// The daemon may answer before it has read what the run has left.
	waitFor(m.t, "the consult's answer to be kept", func() bool {
		return strings.Contains(m.must("consult", "list"), " done ")
	})
}

// stoppedByCommand checks that holdline stop ends the daemon, that systemd listens for it no more, and that
// holdline start starts both.
func stoppedByCommand(m *managed) {
	m.enable()
	a := m.agent().shake()
	pid := m.main()
	_, errs, code := m.run("", "stop", "--all")
	if code != 0 || !strings.Contains(errs, "holdline start") {
		m.t.Errorf("stop: exit %d, %s", code, errs)
	}
	m.exits(a, exitLost)
	stays := func() {
		m.t.Helper()
		for _, unit := range []string{contrib.SystemdService, contrib.SystemdSocket} {
			if state := m.show(unit, "ActiveState"); state != "inactive" {
				m.t.Errorf("%s is %s", unit, state)
			}
		}
	}
	if stays(); alive(pid) {
		m.t.Error("the daemon lives")
	}
	// A second stop does not start a daemon only to stop it.
	if out := m.must("stop"); out != "Holdline is not running\n" || m.main() != 0 {
		m.t.Errorf("a second stop says %q, and the daemon is %d", out, m.main())
	}
	m.refusedAgent()
	if out := m.must("doctor"); !strings.Contains(out, "holdline start") || strings.Contains(out, "problem") {
		m.t.Errorf("doctor says\n%s", out)
	}
	stays()
	m.must("start")
	if state := m.show(contrib.SystemdSocket, "ActiveState"); state != "active" || m.main() == 0 {
		m.t.Errorf("after the start the socket is %s, and systemd's daemon is %d", state, m.main())
	}
	m.agent().shake().rest()
	// One that hangs is killed, and systemd does not start the next one.
	pid = m.main()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		m.t.Fatal(err)
	}
	m.must("stop", "--all")
	waitFor(m.t, "the service's end", func() bool { // systemd's signal may wake it, and it ends before it is killed
		return slices.Contains([]string{"failed", "inactive"}, m.show(contrib.SystemdService, "ActiveState"))
	})
	if state := m.show(contrib.SystemdSocket, "ActiveState"); state != "inactive" || alive(pid) {
		m.t.Errorf("the socket is %s; the daemon that hung lives: %v", state, alive(pid))
	}
	m.refusedAgent()
	m.must("start")
	m.agent().shake().rest()
}

// watched checks that a daemon that hangs is ended with its stacks logged, and that the
// next one takes over.
func watched(m *managed) {
	m.dropIn("watchdog", "[Service]\nWatchdogSec=12\n") // a busy machine may keep the daemon from its pings for seconds
	m.enable()
	a := m.atWork()
	const ended = "Watchdog timeout"
	pid, before := m.main(), m.logged(ended)
	pinged := func() string { return m.show(contrib.SystemdService, "WatchdogTimestampMonotonic") }
	for range 2 { // periods in which it works
		last := pinged()
		waitFor(m.t, "a ping", func() bool { return pinged() != last })
		if now := m.main(); now != pid {
			m.t.Fatalf("daemon %d has become %d though it is well", pid, now)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		m.t.Fatal(err)
	}
	m.untilMain(pid)
	m.survived(a)
	m.answered(a)
	m.untilLogged(ended, before)
	m.untilLogged("goroutine ", 0)
}

// upgradedUnderSystemd checks that a newer program takes over in the same process, so that
// for systemd it is the same service.
func upgradedUnderSystemd(m *managed) {
	t := m.t
	m.installVersion(t, older)
	m.start = m.bin()
	m.units()
	m.enable()
	a := m.atWork()
	pid := m.main()
	m.installVersion(t, newer)
	m.upgrade(newer + " has taken over")
	if now := m.main(); now != pid {
		t.Errorf("MainPID was %d and is %d", pid, now)
	}
	waitFor(t, "the service to be active",
		func() bool { return m.show(contrib.SystemdService, "ActiveState") == "active" })
	if n := m.show(contrib.SystemdService, "NRestarts"); n != "0" {
		t.Errorf("systemd restarted it %s times", n)
	}
	m.survived(a)
	m.answered(a)
	m.agent().shake().rest()
	if s := m.status().Daemon; s.PID != pid || s.Version != newer || s.StartedBy != "systemd" {
		t.Errorf("daemon %+v", s)
	}
	// The daemon is still managed.
	kill9(t, pid)
	m.untilMain(pid)
	m.agent().shake().rest()
}

// burstOfKills checks that a daemon that is killed many times, and serves in between, is
// started each time.
func burstOfKills(m *managed) {
	m.enable()
	a := m.agent().shake()
	const served = "systemd has forgotten the starts before" // the daemon logs it once it has served for a while
	for n := range 10 {                                      // the limit is eight in a minute
		pid, before := m.main(), m.logged(served)
		m.t.Logf("daemon %d: %d", n, pid)
		kill9(m.t, pid)
		if x := a.ask("ping", map[string]any{}); x.Error != nil {
			m.t.Fatalf("after %d kills: %s", n+1, x.raw)
		}
		m.untilLogged(served, before)
	}
	if state := m.show(contrib.SystemdSocket, "ActiveState"); state != "active" {
		m.t.Errorf("the socket is %s", state)
	}
}

// startLimit checks that systemd gives up a daemon that cannot start, that proxies say so
// and how to continue, and that waiting proxies continue once it is fixed.
func startLimit(m *managed) {
	m.dropIn("limit", "[Unit]\nStartLimitIntervalSec=600\n") // a busy machine may need minutes for eight starts
	m.enable()
	a := m.agent("--reconnect-timeout", "10m").shake()
	const reason = "config.json:1:"
	pid, before := m.main(), m.logged(reason)
	path := filepath.Join(m.dir, "home/.config/holdline/config.json")
	good, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte("{ typo"), 0o600)
	}
	if err == nil { // otherwise the next daemon would use it
		err = os.Remove(configfile.CopyPath(filepath.Join(m.dir, "home/.local/state/holdline"), path))
	}
	if err != nil {
		m.t.Fatal(err)
	}
	kill9(m.t, pid)
	waitFor(m.t, "the socket to fail", func() bool { return m.show(contrib.SystemdSocket, "ActiveState") == "failed" })
	const words = "failed too often in a row"
	waitFor(m.t, "the proxy to say so", func() bool {
		return strings.Contains(a.errs.String(), words) && strings.Contains(a.errs.String(), "reset-failed")
	})
	b := m.agent()
	b.begin("initialize", map[string]any{})
	if x := b.wait(1); x.Error == nil || !strings.Contains(x.Error.Message, words) {
		m.t.Errorf("a new agent: %s", x.raw)
	}
	m.exits(b, exitNoDaemon)
	out, _, code := m.run("", "doctor")
	if line := lineWith(out, words); code != exitFailure || !strings.HasPrefix(line, "problem") ||
		!strings.Contains(out, "reset-failed") {
		m.t.Errorf("doctor: exit %d\n%s", code, out)
	}
	m.untilLogged(reason, before)
	m.noDaemon()
	if err := os.WriteFile(path, good, 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.systemctl("reset-failed", contrib.SystemdService, contrib.SystemdSocket)
	m.systemctl("start", contrib.SystemdSocket)
	if x := a.ask("ping", map[string]any{}); x.Error != nil {
		m.t.Errorf("after it was fixed: %s", x.raw)
	}
	a.rest()
}

// takenOver enables the socket while a daemon started by a proxy serves two sessions.
// Afterwards there is one daemon, systemd's.
func takenOver(m *managed) {
	m.login()
	a := m.atWork()
	b := m.agent().shake()
	old := m.status().Daemon
	if old.StartedBy != "proxy" {
		m.t.Fatalf("the daemon before: %+v", old)
	}
	m.enable()
	waitFor(m.t, "the old daemon's end", func() bool { return !alive(old.PID) })
	if x := b.ask("ping", map[string]any{}); x.Error != nil {
		m.t.Errorf("the second session: %s", x.raw)
	}
	s := m.until("both sessions", func(s control.StatusAnswer) bool { return len(s.Sessions) == 2 })
	if s.Daemon.PID != m.main() || s.Daemon.StartedBy != "systemd" {
		m.t.Errorf("daemon %+v, and systemd's is %d", s.Daemon, m.main())
	}
	waitFor(m.t, "one daemon, that of systemd", func() bool { return slices.Equal(m.daemons(), []int{m.main()}) })
	m.survived(a)
	m.answered(a)
	b.rest()
}

// loggedOut checks that without lingering the last logout ends everything, as doctor has
// warned, and that the next login brings the socket back.
func loggedOut(m *managed) {
	m.enable()
	a := m.atWork("--drain", "0s")
	out, _, _ := m.run("", "doctor", "-v")
	if line := lineWith(out, "lingering"); !strings.HasPrefix(line, "note") ||
		!strings.Contains(out, "loginctl enable-linger") {
		m.t.Errorf("doctor:\n%s", out)
	}
	system := func(args ...string) {
		m.t.Helper()
		if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
			m.t.Fatalf("systemctl %v: %v\n%s", args, err, out)
		}
	}
	system("stop", "user@0.service")
	m.noneLeft(waitLimit)
	system("start", "user@0.service")
	waitFor(m.t, "the socket", func() bool { return m.show(contrib.SystemdSocket, "ActiveState") == "active" })
	for id, x := range a.waitAll(a.consult, a.call) {
		if !strings.Contains(x.raw, "outcome_unknown") {
			m.t.Errorf("the answer to %d: %s", id, x.raw)
		}
	}
	a.rest(a.consult, a.call)
	if n := m.effectsOf("begin t1"); n != 1 || m.steps() != 1 {
		m.t.Errorf("the call was begun %d times, the consult %d times", n, m.steps())
	}
}
