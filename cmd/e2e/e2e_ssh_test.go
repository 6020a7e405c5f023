package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/protocol/control"
	"holdline/protocol/farwire"
	"holdline/protocol/programtest"
)

// sshd starts a real OpenSSH server, with keys of its own, for the host build-box: what it runs has
// another home and runtime directory, and none of the caller's environment. The program ssh of the
// place is the real one with another file of settings. The server is in a network namespace of its
// own, behind a link that can be cut, or on loopback if this user cannot make one. The test is
// skipped if there is no OpenSSH.
func (p *place) sshd() (home string, server *exec.Cmd, cut func(down bool)) {
	p.t.Helper()
	if os.Getenv("HOLDLINE_E2E") == "" {
		p.t.Skip("HOLDLINE_E2E=1 is not set: it runs for minutes")
	}
	const program = "/usr/sbin/sshd" // it wants its whole path
	for _, name := range []string{program, "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(name); err != nil {
			p.t.Skipf("needs the OpenSSH client and server: %v", err)
		}
	}
	home = filepath.Join(p.dir, "far")
	dir := filepath.Join(p.dir, "ssh")
	must := func(err error) {
		p.t.Helper()
		if err != nil {
			p.t.Fatal(err)
		}
	}
	if os.Getuid() == 0 {
		must(os.MkdirAll("/run/sshd", 0o755)) // sshd of Debian makes it when it is started as a service
	}
	for _, d := range []string{dir, filepath.Join(home, "run")} {
		must(os.MkdirAll(d, 0o700))
	}
	for _, key := range []string{"host", "user"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput()
		if err != nil {
			p.t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	address, port, enter, cut := p.netspace()
	ssh, err := exec.LookPath("ssh")
	must(err)
	hostKey, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	must(err)
	var variables strings.Builder
	fmt.Fprintf(&variables, "HOME=%s XDG_RUNTIME_DIR=%s/run %q", home, home, races(p.dir))
	for _, kv := range p.farVariables() {
		fmt.Fprintf(&variables, " %q", kv)
	}
	for name, text := range map[string]string{
		"sshd_config": fmt.Sprintf("Port %s\nListenAddress %s\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\n"+
			"UsePAM no\nStrictModes no\nPidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"+
			"PermitRootLogin prohibit-password\nMaxStartups 100\nSetEnv %s\n", port, address, dir, dir, variables.String()),
		"config": fmt.Sprintf("Host build-box\n  HostName %s\n  Port %s\n  IdentityFile %s/user\n  IdentitiesOnly yes\n"+
			"  UserKnownHostsFile %s/known\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n", address, port, dir, dir),
		"known": fmt.Sprintf("[%s]:%s %s", address, port, hostKey),
		"ssh":   fmt.Sprintf("#!/bin/sh\nexec %s -F %s/config \"$@\"\n", ssh, dir),
	} {
		programtest.Write(p.t, filepath.Join(dir, name), text)
	}
	// A daemon that a proxy starts has the PATH of the login shell.
	for _, name := range []string{".profile", ".bash_profile"} {
		p.putHome(p.t.(*testing.T), map[string]string{name: "PATH=" + dir + ":$PATH\n"})
	}
	p.env = append(p.env, "PATH="+dir+":"+programs+":"+os.Getenv("PATH"))
	log, err := os.Create(filepath.Join(dir, "log"))
	must(err)
	defer func() { _ = log.Close() }()
	argv := append(enter, program, "-D", "-e", "-f", filepath.Join(dir, "sshd_config")) // it becomes sshd
	server = exec.Command(argv[0], argv[1:]...)
	server.Stderr = log
	must(server.Start())
	p.t.Cleanup(func() {
		if p.t.Failed() {
			b, _ := os.ReadFile(filepath.Join(dir, "log"))
			p.t.Logf("the log of sshd:\n%s", b[max(0, len(b)-4000):])
		}
		p.nothingLeft() // while the host can be reached
		for _, pid := range append(p.sessions(server.Process.Pid), p.farProcesses(home)...) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	waitFor(p.t.(*testing.T), "sshd to listen", func() bool {
		nc, err := net.Dial("tcp", net.JoinHostPort(address, port))
		if err == nil {
			_ = nc.Close()
		}
		return err == nil
	})
	if cut == nil { // stopped processes neither answer nor hang up, as if a cable were cut
		var stopped []int
		cut = func(down bool) {
			sig := syscall.SIGCONT
			if down {
				sig, stopped = syscall.SIGSTOP, append(p.sessions(server.Process.Pid), server.Process.Pid)
			}
			for _, pid := range stopped {
				_ = syscall.Kill(pid, sig)
			}
		}
	}
	return home, server, cut
}

// netspace makes a network namespace that a link joins with this one. It returns the address there, a
// port, the command with which a program is started there, and what cuts the link and mends it. If
// it cannot make one, the address is that of loopback, and the last two are nil.
func (p *place) netspace() (address, port string, enter []string, cut func(down bool)) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	address, port, _ = net.SplitHostPort(ln.Addr().String())
	number, _ := strconv.Atoi(port) // no other test has it now
	name := "hl" + port
	ip := func(args string) error { return exec.Command("ip", strings.Fields(args)...).Run() }
	if ip("netns add "+name) != nil {
		p.t.Logf("no network namespace can be made here: the host is on loopback, and cut by stopping its processes")
		return address, port, nil, nil
	}
	p.t.Cleanup(func() { _ = ip("netns del " + name) }) // with both ends of the link
	near := fmt.Sprintf("10.213.%d.%d", number>>8, number&0xfc|1)
	address = fmt.Sprintf("10.213.%d.%d", number>>8, number&0xfc|2)
	for _, args := range []string{
		"link add " + name + " type veth peer name eth0 netns " + name,
		"address add " + near + "/30 dev " + name, "link set " + name + " up",
		"-n " + name + " address add " + address + "/30 dev eth0", "-n " + name + " link set eth0 up", "-n " + name + " link set lo up",
	} {
		if err := ip(args); err != nil {
			p.t.Fatalf("ip %s: %v", args, err)
		}
	}
	p.t.Logf("the host is in a network namespace, at %s", address)
	return address, port, []string{"ip", "netns", "exec", name}, func(down bool) {
		state := "up"
		if down {
			state = "down"
		}
		if err := ip("-n " + name + " link set eth0 " + state); err != nil {
			p.t.Errorf("cut the link: %v", err)
		}
	}
}

// sessions returns the pids of the processes of sshd that have a connection: the children of server,
// and what these have started, as far as it is sshd.
func (p *place) sessions(server int) (pids []int) {
	parents := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, _ := os.ReadFile(path)
		var pid, parent int
		var state string
		if n := strings.LastIndexByte(string(b), ')'); n > 0 && strings.Contains(string(b[:n]), "(sshd") {
			if _, err := fmt.Sscan(string(b[n+1:]), &state, &parent); err == nil {
				pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
				parents[parent] = append(parents[parent], pid)
			}
		}
	}
	for next := []int{server}; len(next) > 0; next = next[1:] {
		pids, next = append(pids, parents[next[0]]...), append(next, parents[next[0]]...)
	}
	return pids
}

// clients returns the pids of the ssh processes of this place.
func (p *place) clients() (pids []int) { return p.farProcesses(p.dir + "/ssh/config") }

// TestE2EFarSSH runs a server on another machine over a real ssh and sshd. `hosts add` copies
// holdline there. While calls are in flight, processes are killed forty times, or with HOLDLINE_LONG
// a hundred times, chosen at random: ssh, its session of sshd, the far end of a connection, the
// daemon, the far worker and the far child. Between them the daemon is upgraded, back and forth, and
// the link is cut: for 3 s, or with HOLDLINE_LONG for 60 s. Each call is answered once, and has its
// effect once, or its outcome is unknown because the far worker or child was killed, or it was
// refused and has no effect because the host could not be reached to start a process. In the end
// nothing of it is left there.
func TestE2EFarSSH(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home, server, cut := p.sshd()
	p.installVersion(t, older)
	p.configure(map[string]any{"tools": p.elsewhere(hosting{
		"scope": "shared", "max_restarts": 1000, "circuit_threshold": 1000, "timeout": "5m",
	})})
	p.exe = p.bin()
	out := p.must("hosts", "add", "build-box")
	for _, want := range []string{"build-box answers", "holdline 9.1.0 was copied to", "build-box is ready"} {
		if !strings.Contains(out, want) {
			t.Errorf("hosts add says no %q:\n%s", want, out)
		}
	}
	if out := p.must("hosts", "add", "build-box"); !strings.Contains(out, "is there, and fits") {
		t.Errorf("the second hosts add says\n%s", out)
	}
	p.daemonAt(p.bin())
	a := p.agentAt(p.bin(), "mcp-stdio").shake() // so it starts the next daemon from there, too
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	one := func(pids []int) func() []int {
		return func() []int { return pids[random.IntN(len(pids)):][:1] }
	}

	// round makes three calls and has disturb do something while they are under way.
	unknown, rounds, answered := 0, map[string]int{}, 0
	var refused []string
	round := func(name string, loses bool, disturb func()) {
		t.Helper()
		var ids []int
		tokens := map[int]string{}
		for i := range 3 {
			token := fmt.Sprintf("%s-%d-%d", name, rounds[name], i)
			id := a.effect(token, 20+random.IntN(300))
			ids, tokens[id] = append(ids, id), token
		}
		rounds[name]++
		if random.IntN(3) > 0 { // in flight, unless it is refused
			for limit := time.Now().Add(10 * time.Second); p.effectsOf("begin "+tokens[ids[0]]) == 0; {
				if time.Now().After(limit) {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		disturb()
		for id, x := range a.waitAll(ids...) {
			token := tokens[id]
			begun, ended := p.effectsOf("begin "+token), p.effectsOf("end "+token)
			switch {
			case x.Error == nil && x.text() == token:
				answered++
				if begun != 1 || ended != 1 {
					t.Errorf("%s was answered, and begun %d times and ended %d times", token, begun, ended)
				}
			case x.code() == "outcome_unknown" && loses:
				unknown++
				if begun > 1 || ended > 1 {
					t.Errorf("%s was begun %d times and ended %d times", token, begun, ended)
				}
			case begun > 0:
				t.Errorf("%s has begun, and is answered by %s", token, x.raw)
			case x.code() == "transport_failure" && strings.Contains(x.raw, `"reason":"unreachable"`):
				refused = append(refused, token) // while a process was started there
			default:
				t.Errorf("%s, which has not begun: %s", token, x.raw)
			}
		}
	}
	kill := func(find func() []int) func() {
		return func() {
			for _, pid := range find() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	round("first", false, func() {})
	victims := []struct {
		name  string
		loses bool
		pids  func() []int
	}{
		{"ssh", false, func() []int { return someOf(p.clients(), one) }},
		{"sshd", false, func() []int { return someOf(p.sessions(server.Process.Pid), one) }},
		{"link", false, func() []int { return someOf(p.links(), one) }},
		{"daemon", false, func() []int { return []int{p.status().Daemon.PID} }},
		{"worker", true, func() []int { worker, _ := p.farChild(); return []int{worker} }},
		{"child", true, func() []int { _, child := p.farChild(); return []int{child} }},
	}
	kills, cutFor := 40, 3*time.Second
	if os.Getenv("HOLDLINE_LONG") != "" {
		kills, cutFor = 100, time.Minute
	}
	versions := []string{older, newer}
	begun := time.Now()
	for i := range kills {
		v := victims[random.IntN(len(victims))]
		if round(v.name, v.loses, kill(v.pids)); t.Failed() {
			t.Fatalf("that was kill %d", i+1)
		}
		switch i % 25 {
		case 10:
			round("upgrade", false, func() {
				versions[0], versions[1] = versions[1], versions[0]
				p.installVersion(t, versions[0])
				p.must("upgrade")
				if v := p.status().Daemon.Version; v != versions[0] {
					t.Errorf("after the upgrade to %s the daemon is %s", versions[0], v)
				}
			})
		case 20:
			round("cut", false, func() {
				cut(true)
				time.Sleep(cutFor)
				cut(false)
			})
		}
	}
	t.Logf("in %v: %v; %d calls were answered, of %d the outcome is unknown, and %d were refused",
		time.Since(begun).Round(time.Second), rounds, answered, unknown, len(refused))
	if len(refused) > 30 {
		t.Errorf("%d calls were refused: is a host tried too seldom?", len(refused))
	}
	for _, token := range refused {
		if begun := p.effectsOf("begin " + token); begun != 0 {
			t.Errorf("%s was refused, and has begun %d times", token, begun)
		}
	}

	p.until("one worker", func(s control.StatusAnswer) bool {
		w := s.Workers
		return len(w) == 1 && w[0].Attached && w[0].Unreachable == "" && w[0].RTTUS > 0
	})
	a.leave()
	p.must("stop", "--all")
	p.nothingFar(home)
	if left := p.clients(); len(left) > 0 {
		t.Errorf("ssh runs still: %v", left)
	}
	if out := p.must("hosts", "list"); out != "build-box: tools\n" {
		t.Errorf("hosts list = %q", out)
	}
	if _, errs, code := p.run("", "hosts", "remove", "build-box"); code == 0 || !strings.Contains(errs, "tools runs there") {
		t.Errorf("hosts remove of a host in use: exit %d, %s", code, errs)
	}
	p.configure(map[string]any{})
	p.must("hosts", "remove", "build-box")
	if _, err := os.Stat(filepath.Join(home, ".local/share/holdline/far")); !os.IsNotExist(err) {
		t.Errorf("after hosts remove: %v", err)
	}
}

// someOf returns what one, made for the pids, returns; nil if there are none.
func someOf(pids []int, one func([]int) func() []int) []int {
	if len(pids) == 0 {
		return nil
	}
	slices.Sort(pids)
	return one(pids)()
}

// TestE2EFarUpgrade upgrades the daemon while a call is in flight on another machine: the link is
// made anew, and the call is answered once.
func TestE2EFarUpgrade(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home, _, _ := p.sshd()
	p.installVersion(t, older)
	p.configure(map[string]any{"tools": p.elsewhere(hosting{"scope": "shared"})})
	p.exe = p.bin()
	p.must("hosts", "add", "build-box")
	p.daemonAt(p.bin())
	a := p.agent().shake()
	id := a.effect("long", 3000)
	p.untilEffect("begin long")
	worker, child := p.farChild()
	p.installVersion(t, newer)
	p.upgrade(newer + " has taken over")
	p.once("long", a.wait(id))
	if w, c := p.farChild(); w != worker || c != child {
		t.Errorf("the far worker and child were %d, %d and are %d, %d", worker, child, w, c)
	}
	a.leave()
	p.must("stop", "--all")
	p.nothingFar(home)
}

// TestE2EFarWindow kills the daemon for good: the far worker ends its child and itself after
// host_window. A later daemon then knows that it is dead, and leaves nothing there.
func TestE2EFarWindow(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home, _, _ := p.sshd()
	p.configure(map[string]any{"tools": p.elsewhere(hosting{"scope": "shared", "host_window": "1m"})})
	p.must("hosts", "add", "build-box")
	daemon := p.daemon()
	a := p.agent().shake()
	a.wait(a.effect("first", 1))
	worker, child := p.farChild()
	_ = a.cmd.Process.Kill()
	_ = daemon.Process.Kill()
	begun := time.Now()
	for alive(worker) || alive(child) {
		if time.Since(begun) > 2*time.Minute {
			t.Fatal("the far worker lives on")
		}
		time.Sleep(100 * time.Millisecond)
	}
	if lived := time.Since(begun); lived < 50*time.Second {
		t.Errorf("the far worker lived for %v only", lived)
	}
	p.daemon()
	b := p.agent().shake()
	if x := b.wait(b.effect("second", 1)); x.text() != "second" {
		t.Errorf("a call after that: %s", x.raw)
	}
	p.until("the dead worker to be forgotten", func(s control.StatusAnswer) bool { return len(s.Workers) == 1 })
	b.leave()
	p.must("stop", "--all")
	p.nothingFar(home)
}

// TestE2EFarShared reaches a host as a user's configuration of ssh may say: through another host, by a connection
// that ssh shares. When that is killed during a call, the call is answered once.
func TestE2EFarShared(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home, _, _ := p.sshd()
	file, shared := filepath.Join(p.dir, "ssh/config"), filepath.Join(p.dir, "ssh/shared")
	b, err := os.ReadFile(file)
	if err == nil {
		text := strings.Replace(string(b), "Host build-box\n", "Host build-box inner\n", 1) + "Host inner\n" +
			"  ProxyJump build-box\n  ControlMaster auto\n  ControlPersist 60\n  ControlPath " + shared + "\n"
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "host": "inner"})})
	p.must("hosts", "add", "inner")
	p.daemon()
	a := p.agent().shake()
	masters := func() (pids []int) { // ssh writes over its arguments and its environment
		found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range found {
			if b, _ := os.ReadFile(path); strings.HasPrefix(string(b), "ssh: "+shared+" [mux]") {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				pids = append(pids, pid)
			}
		}
		return pids
	}
	end := func() {
		for _, pid := range masters() {
			kill9(t, pid)
		}
	}
	t.Cleanup(end) // ssh keeps one for a minute
	for round, disturb := range []func(){func() {}, end} {
		if n := len(masters()); n != 1 {
			t.Errorf("round %d: there are %d shared connections", round, n)
		}
		token := fmt.Sprint("call", round)
		id := a.effect(token, 1000)
		p.untilEffect("begin " + token)
		disturb()
		p.once(token, a.wait(id))
	}
	a.leave()
	p.must("stop", "--all")
	end()
	p.nothingFar(home)
}

// TestE2EFarAgent reaches a host with a key that only an agent of ssh has. The daemon, which a proxy starts, learns
// of that agent from the environment of the proxy, or from the user's profile alone.
func TestE2EFarAgent(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home, _, _ := p.sshd()
	dir := filepath.Join(p.dir, "ssh")
	here := "SSH_AUTH_SOCK=" + filepath.Join(dir, "agent")
	keys := exec.Command("ssh-agent", "-D", "-a", "agent")
	keys.Dir = dir
	if err := keys.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keys.Process.Kill(); _ = keys.Wait() })
	waitFor(t, "the agent", func() bool {
		add := exec.Command("ssh-add", filepath.Join(dir, "user"))
		add.Env = append(os.Environ(), here)
		return add.Run() == nil
	})
	if err := os.Remove(filepath.Join(dir, "user")); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := p.run("", "hosts", "add", "build-box"); code != 1 || !strings.Contains(errs, "Permission denied") {
		t.Errorf("hosts add without the agent: exit %d, %s", code, errs)
	}
	p.configure(map[string]any{"tools": p.elsewhere(hosting{"scope": "shared"})})
	without := p.env
	p.env = append(slices.Clone(without), here)
	p.must("hosts", "add", "build-box")
	for _, from := range []string{"proxy", "profile"} {
		if from == "profile" {
			p.env = without
			for _, name := range []string{".profile", ".bash_profile"} {
				p.putHome(t, map[string]string{name: "PATH=" + dir + ":$PATH\nexport " + here + "\n"})
			}
		}
		a := p.agent().shake()
		if x := a.wait(a.effect(from, 1)); x.text() != from {
			t.Errorf("the agent of the %s: %s", from, x.raw)
		}
		a.leave()
		p.stopForNow("--all")
	}
	p.nothingFar(home)
}

// TestE2EFarSleep stops the daemon and ssh during a call until the far machine has given up the connection, as if
// this machine slept. Awake, the daemon dials again, and the call is answered once.
func TestE2EFarSleep(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home, _, _ := p.sshd()
	p.configure(map[string]any{"tools": p.elsewhere(hosting{"scope": "shared"})})
	p.must("hosts", "add", "build-box")
	p.daemon()
	a := p.agent().shake()
	id := a.effect("slept", 2000)
	p.untilEffect("begin slept")
	worker, child := p.farChild()
	asleep := append(p.clients(), p.status().Daemon.PID)
	signal := func(sig syscall.Signal) {
		for _, pid := range asleep {
			_ = syscall.Kill(pid, sig)
		}
	}
	t.Cleanup(func() { signal(syscall.SIGCONT) })
	signal(syscall.SIGSTOP)
	for begun := time.Now(); len(p.links()) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Since(begun) > 2*farwire.Silence {
			t.Fatal("the far machine still waits for this one")
		}
	}
	signal(syscall.SIGCONT)
	p.once("slept", a.wait(id))
	if w, c := p.farChild(); w != worker || c != child {
		t.Errorf("the far worker and child were %d, %d and are %d, %d", worker, child, w, c)
	}
	a.leave()
	p.must("stop", "--all")
	p.nothingFar(home)
}

// TestE2EFarWords checks that the words of ssh reach people, when it has no key that the host takes
// and when the key of the host is another one.
func TestE2EFarWords(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.sshd()
	dir := filepath.Join(p.dir, "ssh")
	if _, errs, code := p.run("", "hosts", "doctor", "build-box"); code != 1 ||
		!strings.Contains(errs, "holdline was not found there") || !strings.Contains(errs, "holdline hosts add build-box") {
		t.Errorf("hosts doctor before hosts add: exit %d, %s", code, errs)
	}
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, "other")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	move("user", "kept")
	move("other", "user")
	if _, errs, code := p.run("", "hosts", "add", "build-box"); code != 1 || !strings.Contains(errs, "Permission denied") {
		t.Errorf("hosts add with another key: exit %d, %s", code, errs)
	}
	move("kept", "user")
	known, err := os.ReadFile(filepath.Join(dir, "known"))
	if err != nil {
		t.Fatal(err)
	}
	port, _, _ := strings.Cut(string(known), " ")
	other, err := os.ReadFile(filepath.Join(dir, "other.pub"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "known"), []byte(port+" "+string(other)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, errs, code := p.run("", "hosts", "add", "build-box"); code != 1 ||
		!strings.Contains(errs, "Host key verification failed") {
		t.Errorf("hosts add with another host key: exit %d, %s", code, errs)
	}
}

// TestE2EConnect forwards a socket over a real ssh and sshd. A call of an agent there survives the
// death of ssh, and nothing of the command is left when it is interrupted.
func TestE2EConnect(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home, server, _ := p.sshd()
	p.configure(map[string]any{"docs": p.toolsEntry(hosting{"scope": "shared"})}, "sockets",
		map[string]any{"box": map[string]any{"servers": []string{"docs"}, "allow": []string{"docs__*"}}}).daemon()
	cmd := p.command("connect", "build-box")
	out, errs := new(words), new(words)
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	waitFor(t, "the entry", func() bool { return strings.Contains(out.String(), "Interrupt this command") })
	found, _ := filepath.Glob(filepath.Join(home, ".local/state/holdline-guest/box-*.sock"))
	if len(found) != 1 || !strings.Contains(out.String(), found[0]) {
		t.Fatalf("the sockets there are %q, and connect printed %s", found, out)
	}
	a := p.agent("--guest", found[0]).shake()
	id := a.call("docs__effect", map[string]any{"token": "held", "ms": 1500})
	p.untilEffect("begin held")
	for _, pid := range p.clients() {
		kill9(t, pid)
	}
	if x := a.wait(id); x.text() != "held" || p.effectsOf("begin held") != 1 {
		t.Errorf("the call in flight: %s; connect said %s", x.raw, errs)
	}
	a.rest()
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("connect ended with %v: %s", err, errs)
	}
	waitFor(t, "the end of ssh", func() bool { return len(p.clients())+len(p.sessions(server.Process.Pid)) == 0 })
}
