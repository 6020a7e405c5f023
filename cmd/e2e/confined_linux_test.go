package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdline/daemon/sandbox"
	"holdline/daemon/sandbox/writetest"
	"holdline/protocol/control"
	"holdline/protocol/process"
)

// shellEntry is the entry of a server that is played by [shellServerMain].
func shellEntry(h hosting) map[string]any {
	return map[string]any{"command": filepath.Join(programs, "shellserver"), "holdline": h}
}

// needConfinement skips the test where no server can be confined.
func needConfinement(t *testing.T) {
	t.Helper()
	if err := sandbox.Refusal(true); err != nil {
		t.Skip(err)
	}
}

// tree is a directory that a confined server must not change.
func tree(t *testing.T, dir string) (unchanged func()) {
	t.Helper()
	before, err := writetest.Listing(dir)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if after, err := writetest.Listing(dir); err != nil || after != before {
			t.Errorf("err %v; %s was\n%sand is\n%s", err, dir, before, after)
		}
	}
}

// TestConfinedServer_ChangesOnlyWhatItMay checks that a confined server, and what it starts, can
// write to its project (at level project), its cache and the directories named, and nowhere
// else, in whichever way it tries.
func TestConfinedServer_ChangesOnlyWhatItMay(t *testing.T) {
	needConfinement(t)
	t.Parallel()
	p := newPlace(t)
	at := func(name string) string { return filepath.Join(p.dir, name) }
	named := at("named")
	cache := func(server string) string { // it has one of its own for this project
		dirs, err := filepath.Glob(at("home/.cache/holdline/" + server + "/*/tmp"))
		if err != nil || len(dirs) != 1 {
			t.Fatalf("caches of %s: %q, %v", server, dirs, err)
		}
		return filepath.Join(dirs[0], "own")
	}
	outside := []string{at("outside"), at("home/outside"), at("home/.config/holdline/outside"), at("run/outside")}
	inside := filepath.Join(p.project, "inside")
	for _, dir := range append(slices.Clone(outside), named, inside) {
		if err := writetest.Prepare(dir); err != nil {
			t.Fatal(err)
		}
	}
	p.configure(map[string]any{
		"read":    shellEntry(hosting{"confine": "read"}),
		"project": shellEntry(hosting{"confine": "project", "write": []string{named}}),
	}).daemon()
	a := p.agent("--no-autostart").shake()
	for _, server := range []string{"read", "project"} {
		a.wait(a.call(server+"__run", map[string]any{"command": "true"})) // its cache is there from here on
		tries := 0
		attempt := func(dir string) []string {
			tries++
			mine := cache(server) + strconv.Itoa(tries)
			if err := writetest.Prepare(mine); err != nil {
				t.Fatal(err)
			}
			x := a.wait(a.call(server+"__attempt", map[string]any{"dir": dir, "mine": mine}))
			if x.Error != nil || x.Result.IsError {
				t.Fatal(x.raw)
			}
			return strings.FieldsFunc(x.text(), func(r rune) bool { return r == '\n' })
		}
		may := []string{}
		for _, dir := range outside {
			unchanged := tree(t, dir)
			if could := attempt(dir); len(could) > 0 {
				t.Errorf("%s: in %s it could %q", server, dir, could)
			}
			unchanged()
		}
		if server == "project" {
			may = []string{inside, named}
		} else {
			unchanged := tree(t, inside)
			if could := attempt(inside); len(could) > 0 {
				t.Errorf("%s: in the project it could %q", server, could)
			}
			unchanged()
		}
		for _, dir := range may {
			if could := attempt(dir); len(could) < 19 { // fewer would prove nothing; it may bind no socket
				t.Errorf("%s: in %s it could only %q", server, dir, could)
			}
		}
	}
}

// reaches are ways out of a confined server. Each tries to reach what is at an address.
var reaches = map[string]func(at string) error{
	"TCP":                 func(at string) error { return dial("tcp", at) },
	"a unix socket":       func(at string) error { return dial("unix", at) },
	"a pair":              func(string) error { return makePair(unix.SOCK_STREAM) },
	"a pair of packets":   func(string) error { return makePair(unix.SOCK_SEQPACKET) },
	"a pair of datagrams": func(string) error { return makePair(unix.SOCK_DGRAM) },
	"netlink": func(string) error {
		return withSocket(unix.AF_NETLINK, unix.SOCK_RAW, 0, func(int) error { return nil })
	},
	"TCP by a flag of send": func(at string) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error {
			return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, inet(at))
		})
	},
	"MPTCP": func(at string) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, func(fd int) error {
			return unix.Connect(fd, inet(at))
		})
	},
	"UDP": func(at string) error {
		return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) error {
			return unix.Sendto(fd, []byte("x"), 0, inet(at))
		})
	},
	"bind": func(string) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error {
			return unix.Bind(fd, &unix.SockaddrInet4{})
		})
	},
	"listen": func(string) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Listen(fd, 1) })
	},
	"a ring of requests": func(string) error {
		var params [120]byte
		fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
		if errno != 0 {
			return errno
		}
		return unix.Close(int(fd))
	},
	"a signal": func(at string) error {
		pid, err := strconv.Atoi(at)
		if err != nil {
			return err
		}
		return unix.Kill(pid, 0)
	},
	"limits of another process": func(at string) error {
		return ofProcess(at, func(pid int) error {
			var limit unix.Rlimit
			if err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &limit); err != nil {
				return fmt.Errorf("they cannot be read: %w", err)
			}
			return unix.Prlimit(pid, unix.RLIMIT_CORE, &limit, nil)
		})
	},
	"priority of another process": func(at string) error {
		return ofProcess(at, func(pid int) error { return raw(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, uintptr(pid), 19) })
	},
	"I/O priority of another process": func(at string) error {
		return ofProcess(at, func(pid int) error { return raw(unix.SYS_IOPRIO_SET, 1, uintptr(pid), 2<<13|4) })
	},
	"processors of another process": func(at string) error {
		return ofProcess(at, func(pid int) error {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(pid, &set); err != nil {
				return fmt.Errorf("they cannot be read: %w", err)
			}
			return unix.SchedSetaffinity(pid, &set)
		})
	},
	"scheduler of another process": func(at string) error {
		return ofProcess(at, func(pid int) error {
			var param int32
			return raw(unix.SYS_SCHED_SETSCHEDULER, uintptr(pid), 0, uintptr(unsafe.Pointer(&param)))
		})
	},
	"a queued signal": func(at string) error {
		return ofProcess(at, func(pid int) error {
			info := [128]byte{8: 0xff, 9: 0xff, 10: 0xff, 11: 0xff} // SI_QUEUE
			return raw(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(unix.SIGURG), uintptr(unsafe.Pointer(&info)))
		})
	},
	"a signal by a descriptor": func(at string) error {
		return ofProcess(at, func(pid int) error {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return fmt.Errorf("it cannot be opened: %w", err)
			}
			return errors.Join(unix.PidfdSendSignal(fd, 0, nil, 0), unix.Close(fd))
		})
	},
	"a file of another process": func(at string) error {
		return ofProcess(at, func(pid int) error {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return fmt.Errorf("it cannot be opened: %w", err)
			}
			got, err := unix.PidfdGetfd(fd, 0, 0)
			if err == nil {
				err = unix.Close(got)
			}
			return errors.Join(err, unix.Close(fd))
		})
	},
	"reading another process": func(at string) error {
		return ofProcess(at, func(pid int) error {
			b := []byte{0}
			local, far := []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 1, Len: 1}}
			if _, err := unix.ProcessVMReadv(pid, local, far, 0); !errors.Is(err, unix.EFAULT) { // nothing is there
				return err
			}
			return nil
		})
	},
	"pages of another process": func(at string) error {
		return ofProcess(at, func(pid int) error { return raw(unix.SYS_MOVE_PAGES, uintptr(pid), 0, 0, 0, 0, 0) })
	},
	"a lease": func(string) error {
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		f, err := os.Open(exe)
		if err != nil {
			return err
		}
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		return errors.Join(err, f.Close())
	},
	"its own limits": func(string) error {
		return unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
	},
	"its own mark": func(string) error { // by which it is found when its worker is killed
		return unix.Prlimit(0, unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: 1 << 40, Max: 1 << 40}, nil)
	},
	"the mark of another process": func(at string) error {
		return ofProcess(at, func(pid int) error {
			var limit unix.Rlimit
			if err := unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &limit); err != nil {
				return fmt.Errorf("it cannot be read: %w", err)
			}
			return unix.Prlimit(pid, unix.RLIMIT_RTTIME, &limit, nil)
		})
	},
	"its own priority": func(string) error { return raw(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, 19) },
	"memory of another process": func(at string) error {
		f, err := os.Open("/proc/" + at + "/mem")
		if err != nil {
			return err
		}
		return f.Close()
	},
	"a server that is not confined": func(string) error {
		out, err := exec.Command(filepath.Join(programs, "holdline"), "servers", "call", "free", "run",
			`{"command":"echo $((6*7))"}`).CombinedOutput()
		if err == nil && strings.Contains(string(out), "42") {
			return nil
		}
		return fmt.Errorf("%w: %s", err, out)
	},
}

// ofProcess runs f with the number that at is.
func ofProcess(at string, f func(pid int) error) error {
	pid, err := strconv.Atoi(at)
	if err != nil {
		return err
	}
	return f(pid)
}

// raw makes a system call.
func raw(number uintptr, args ...uintptr) error {
	var all [6]uintptr
	copy(all[:], args)
	if _, _, errno := unix.Syscall6(number, all[0], all[1], all[2], all[3], all[4], all[5]); errno != 0 {
		return errno
	}
	return nil
}

// dial connects once.
func dial(network, at string) error {
	c, err := net.Dial(network, at)
	if err != nil {
		return err
	}
	return c.Close()
}

// withSocket runs f with a socket.
func withSocket(domain, kind, protocol int, f func(fd int) error) error {
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	return errors.Join(f(fd), unix.Close(fd))
}

// makePair makes a pair of sockets and sends a byte through it.
func makePair(kind int) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fds[0], []byte("x"))
	return errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
}

// inet returns the address of a port of this machine.
func inet(at string) unix.Sockaddr {
	addr := netip.MustParseAddrPort(at)
	return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
}

// TestConfinedServer_ReachesNoSocket checks that a confined server cannot have other processes
// do what it may not: it reaches no unix socket, so neither the daemon nor an unconfined server
// behind it, and cannot end processes that are not its own. Nor can it use more of the network
// than it may.
func TestConfinedServer_ReachesNoSocket(t *testing.T) {
	needConfinement(t)
	t.Parallel()
	p := newPlace(t)
	open := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(open.Close)
	tcp := open.Listener.Addr().String()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = udp.Close() })
	abstract, err := net.Listen("unix", "@"+p.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = abstract.Close() })
	p.configure(map[string]any{
		"off":   shellEntry(hosting{}),
		"free":  shellEntry(hosting{}),
		"any":   shellEntry(hosting{"confine": "read"}),
		"none":  shellEntry(hosting{"confine": "read", "network": "none"}),
		"port":  shellEntry(hosting{"confine": "read", "network": []int{open.Listener.Addr().(*net.TCPAddr).Port}}),
		"other": shellEntry(hosting{"confine": "read", "network": []int{1}}),
	})
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	pid := strconv.Itoa(d.Process.Pid)
	sleep := exec.CommandContext(t.Context(), "sleep", "300")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
	victim := strconv.Itoa(sleep.Process.Pid)
	for _, c := range []struct {
		how, at string
		by      string // servers that can do it
	}{
		{"TCP", tcp, "off any port"},
		{"TCP by a flag of send", tcp, "off any"},
		{"MPTCP", tcp, "off any"},
		{"UDP", udp.LocalAddr().String(), "off any"},
		{"bind", "", "off any"},
		{"listen", "", "off any"},
		{"netlink", "", "off any"},
		{"a unix socket", filepath.Join(p.dir, "run/holdline/daemon.sock"), "off"},
		{"a unix socket", "@" + p.dir, "off"},
		{"a pair of datagrams", "", "off"},
		{"a pair of packets", "", "off any none port other"},
		{"a pair", "", "off any none port other"},
		{"a ring of requests", "", "off"},
		{"a signal", pid, "off"},
		{"memory of another process", pid, "off"},
		{"limits of another process", pid, "off"},
		{"priority of another process", victim, "off"},
		{"I/O priority of another process", victim, "off"},
		{"processors of another process", victim, "off"},
		{"scheduler of another process", victim, "off"},
		{"a queued signal", pid, "off"},
		{"a signal by a descriptor", pid, "off"},
		{"a file of another process", pid, "off"},
		{"reading another process", pid, "off"},
		{"pages of another process", pid, "off"},
		{"a lease", "", "off"},
		{"its own limits", "", "off any none port other"},
		{"its own priority", "", "off any none port other"},
		{"its own mark", "", "off"},
		{"the mark of another process", victim, "off"},
		{"a server that is not confined", "", "off"},
	} {
		for _, server := range []string{"off", "any", "none", "port", "other"} {
			x := a.wait(a.call(server+"__reach", map[string]any{"how": c.how, "at": c.at}))
			if x.Error != nil {
				t.Fatal(x.raw)
			}
			reached, may := x.text() == "<nil>", slices.Contains(strings.Fields(c.by), server)
			if server == "off" && !reached && slices.Contains(lackedBySome, c.how) {
				t.Logf("this machine has it not: %s: %s", c.how, x.text())
				break
			}
			if reached != may {
				t.Errorf("%s: %s: %q, want it to be reached: %v", server, c.how, x.text(), may)
			}
		}
	}
	port := open.Listener.Addr().(*net.TCPAddr).Port
	for server, holds := range map[string]string{
		"any": sandbox.Holds(process.SocketsNet, nil), "none": sandbox.Holds(process.SocketsNone, nil),
		"port": sandbox.Holds(process.SocketsTCP, []int{port}), "other": sandbox.Holds(process.SocketsTCP, []int{1}),
	} {
		row := fmt.Sprintf("confined (read): %s (%s)", server, holds)
		for command, want := range map[string]string{"servers": row, "status": row, "servers get " + server: holds} {
			out := strings.Join(strings.Fields(p.must(strings.Fields(command)...)), " ")
			if !strings.Contains(out, want) {
				t.Errorf("%s does not say %q:\n%s", command, want, out)
			}
		}
	}
}

// TestConfinedServer_RefusedWithoutLandlock checks that a server which the kernel cannot confine is not
// started, by whatever starts servers, and that all say why; other servers are.
func TestConfinedServer_RefusedWithoutLandlock(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	program, started := filepath.Join(programs, withoutLandlock), filepath.Join(p.dir, "started")
	script := `echo >>"$1"; exec "$2"`
	held := map[string]any{
		"command": "sh", "args": []string{"-c", script, "sh", started, filepath.Join(programs, "shellserver")},
		"holdline": hosting{"confine": "read"},
	}
	p.configure(map[string]any{"held": held, "free": shellEntry(hosting{})}).daemonAt(program)
	a := p.agent("--no-autostart").shake()
	const why = "this system has no Landlock"
	run := func(server string) answer {
		return a.wait(a.call(server+"__run", map[string]any{"command": "echo free"}))
	}
	if x := run("held"); x.code() == "" || !strings.Contains(x.raw, why) {
		t.Errorf("a call of a server that cannot be confined: %s", x.raw)
	}
	if x := run("free"); !strings.Contains(x.text(), "free") {
		t.Errorf("a call of another server: %s", x.raw)
	}
	p.exe = program
	for _, command := range []string{
		"doctor", "servers", "status", "servers get held", "servers test held", "mcp-stdio --direct held",
	} {
		out, errs, _ := p.run("", strings.Fields(command)...)
		if !strings.Contains(strings.Join(strings.Fields(out+errs), " "), why) {
			t.Errorf("%s does not say why the server is refused:\n%s%s", command, out, errs)
		}
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("the server was started, unconfined")
	}
}

// withoutLandlockMain becomes holdline in a system that has no Landlock, for it and all that it starts.
func withoutLandlockMain() int {
	runtime.LockOSThread() // it becomes holdline
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_LANDLOCK_CREATE_RULESET},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	}
	exe, xerr := os.Executable()
	if err = errors.Join(err, xerr); err == nil {
		args := append([]string{filepath.Join(filepath.Dir(exe), "holdline")}, os.Args[1:]...)
		err = unix.Exec(args[0], args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// lackedBySome are ways that some machines refuse everybody, or all but root.
var lackedBySome = []string{
	"MPTCP", "a ring of requests", "memory of another process", "a file of another process", "reading another process",
	"pages of another process", "a lease",
}

// TestConfinedServer_RefusedRatherThanWeaker checks that a server which could change Holdline's
// own files or the whole home directory does not start, and says what would help.
func TestConfinedServer_RefusedRatherThanWeaker(t *testing.T) {
	needConfinement(t)
	t.Parallel()
	p := newPlace(t)
	home := filepath.Join(p.dir, "home")
	if err := os.MkdirAll(filepath.Join(home, ".cache/holdline/other"), 0o700); err != nil {
		t.Fatal(err)
	}
	entries := map[string]any{}
	for name, dir := range map[string]string{
		"all": "/", "home": home, "config": filepath.Join(home, ".config/holdline"), "run": filepath.Join(p.dir, "run"),
		"program": programs, "caches": filepath.Join(home, ".cache/holdline/other"), "gone": filepath.Join(p.dir, "gone"),
	} {
		entries[name] = shellEntry(hosting{"confine": "read", "write": []string{dir}})
	}
	p.configure(entries).daemon()
	p.agent("--no-autostart").shake()
	s := p.until("all to be refused", func(s control.StatusAnswer) bool {
		return !slices.ContainsFunc(s.Servers, func(one control.Server) bool { return one.LastFault == nil })
	})
	for _, one := range s.Servers {
		want := "could write to"
		if one.Name == "gone" {
			want = "is not there"
		}
		if got := one.LastFault.Fault.Detail; !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", one.Name, got, want)
		}
	}
}

// TestConfinedServer_SameWithoutTheDaemon checks that a server which is only tried, and one that a
// client has instead of the daemon, are confined, too.
func TestConfinedServer_SameWithoutTheDaemon(t *testing.T) {
	needConfinement(t)
	t.Parallel()
	p := newPlace(t)
	if err := os.MkdirAll(filepath.Join(p.dir, "home/named"), 0o700); err != nil {
		t.Fatal(err)
	}
	made, named := filepath.Join(p.dir, "made"), filepath.Join(p.dir, "home/named/made")
	entry := func(h hosting) map[string]any {
		script := `echo >"$1"; echo >"$2"; exec "$3"`
		args := []string{"-c", script, "sh", made, named, filepath.Join(programs, "shellserver")}
		return map[string]any{"command": "sh", "args": args, "holdline": h}
	}
	p.configure(map[string]any{
		"off": entry(hosting{}), "read": entry(hosting{"confine": "read", "write": []string{"~/named"}}),
		"gone": map[string]any{"command": "/no/program", "holdline": hosting{"confine": "read"}},
	})
	for _, server := range []string{"off", "read"} {
		for _, command := range [][]string{{"servers", "test", server}, {"mcp-stdio", "--direct", server}} {
			out, errs, code := p.run("", command...)
			if code != 0 {
				t.Errorf("%v: exit code %d: %s%s", command, code, out, errs)
			}
			if err := os.Remove(named); err != nil {
				t.Errorf("%v: it could not write where it may: %v", command, err)
			}
			if err := os.Remove(made); (err == nil) != (server == "off") {
				t.Errorf("%v: the file elsewhere: %v", command, err)
			}
		}
	}
	if _, errs, _ := p.run("", "servers", "test", "gone"); !strings.Contains(errs, "/no/program") {
		t.Errorf("a program that is not there: %s", errs)
	}
}

// TestE2EConfinedCommands runs the commands with which consults are tried in confined servers:
// nothing outside differs in content, name or place.
func TestE2EConfinedCommands(t *testing.T) {
	t.Parallel()
	needConfinement(t)
	if os.Getenv("HOLDLINE_E2E") == "" {
		t.Skip("HOLDLINE_E2E=1 is not set: it runs many real programs")
	}
	commands, err := os.ReadFile("testdata/commands.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"off", "read", "project"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			outside := filepath.Join(p.dir, "outside")
			if err := writetest.Prepare(outside); err != nil {
				t.Fatal(err)
			}
			script := "rm -rf .git && git init -q . && echo hi > f.txt && git add f.txt && " +
				"git -c user.name=a -c user.email=a@b commit -qm one"
			cmd := exec.Command("sh", "-c", script)
			cmd.Dir, cmd.Env = p.project, p.env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			p.configure(map[string]any{"shell": shellEntry(hosting{"confine": level})}).daemon()
			a := p.agent("--no-autostart").shake()
			run := func(command, within string) answer {
				return a.wait(a.call("shell__run", map[string]any{"command": command, "within": within}))
			}
			run("true", "") // the cache is there from here on
			before := p.others(t, level)
			for line := range strings.Lines(string(commands)) {
				line = strings.TrimSpace(line)
				if level == "off" && !strings.Contains(line, "OUTSIDE") ||
					strings.HasPrefix(line, "kill ") && sandbox.Landlock() < sandbox.Signals {
					continue
				}
				// Some wait for input that does not come. Those that are to have an effect are quick, but for a busy machine.
				within := "3"
				if level == "off" {
					within = "20"
				}
				if x := run(strings.ReplaceAll(line, "OUTSIDE", outside), within); x.Error != nil {
					t.Errorf("%s: %s", line, x.raw)
				}
			}
			after := p.others(t, level)
			if level == "off" { // the commands change what they can
				if n := strings.Count(after, "/m_") - strings.Count(before, "/m_"); n < 15 {
					t.Errorf("an unconfined server made %d files outside, want 15 or more: %s", n, after)
				}
				return
			}
			if after != before {
				t.Errorf("there was\n%s\nand is\n%s", before, after)
			}
			if x := run("echo x > made; ls", ""); strings.Contains(x.text(), "made\n") != (level == "project") {
				t.Errorf("in the project: %s", x.raw)
			}
		})
	}
}

// TestE2EConfinedReferences checks that real servers work at level project: they write to the project and to caches
// of their own, that of npm among them, and are refused elsewhere. With HOLDLINE_LONG npx downloads them into it.
func TestE2EConfinedReferences(t *testing.T) {
	t.Parallel()
	needConfinement(t)
	p := newPlace(t)
	cache := filepath.Join(p.dir, "home/.cache/holdline")
	file, inside, outside := filepath.Join(p.project, "new"), filepath.Join(p.project, "memory"), filepath.Join(p.dir, "new")
	long := os.Getenv("HOLDLINE_LONG") != ""
	entry := func(of, memory string, argv ...string) map[string]any {
		r := reference{name: of, scope: "project", argv: argv, env: map[string]string{"MEMORY_FILE_PATH": memory}}
		e := r.entry(t)
		e["holdline"].(hosting)["confine"] = "project"
		if long && memory != outside {
			e["command"] = "npx"
			e["args"] = append([]string{"-y", "@modelcontextprotocol/server-" + of + "@" + referenceVersion}, argv...)
		}
		return e
	}
	p.configure(map[string]any{
		"everything": entry("everything", ""), "filesystem": entry("filesystem", "", p.project),
		"memory": entry("memory", inside), "outside": entry("memory", outside),
	})
	for _, name := range []string{"everything", "filesystem", "memory"} {
		if long {
			p.must("servers", "test", name)
		}
	}
	p.daemon()
	a := p.agent().shake()
	ann := map[string]any{"entities": []any{
		map[string]any{"name": "Ann", "entityType": "person", "observations": []string{}},
	}}
	for _, c := range []struct {
		tool string
		args map[string]any
		want string
	}{
		{"everything__get-env", map[string]any{}, `"npm_config_cache": "` + filepath.Join(cache, "everything") + "/"},
		{"filesystem__write_file", map[string]any{"path": file, "content": "Ann"}, "Successfully wrote"},
		{"memory__create_entities", ann, `"Ann"`},
		{"outside__create_entities", ann, "EACCES"},
	} {
		p.untilReady(c.tool[:strings.Index(c.tool, "__")])
		if x := a.wait(a.call(c.tool, c.args)); !strings.Contains(x.text(), c.want) {
			t.Errorf("%s: %s, want %s", c.tool, x.raw, c.want)
		}
	}
	for path, there := range map[string]bool{file: true, inside: true, outside: false} {
		if b, err := os.ReadFile(path); strings.Contains(string(b), "Ann") != there {
			t.Errorf("%s has %q, %v", path, b, err)
		}
	}
	a.rest()
}

// others returns what is in the place, but for what the daemon changes and what a server that is
// confined at this level may change.
func (p *place) others(t *testing.T, level string) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"", "home", "home/.cache", "home/.cache/holdline", "home/.local"} {
		entries, err := os.ReadDir(filepath.Join(p.dir, dir))
		if err != nil && level != "off" { // which has no cache
			t.Fatal(err)
		}
		for _, e := range entries {
			fmt.Fprintln(&all, filepath.Join(dir, e.Name()))
		}
	}
	whole := []string{"outside", "home/.config", "home/.claude"}
	if level == "read" {
		whole = append(whole, "p")
	}
	for _, dir := range whole {
		listing, err := writetest.Listing(filepath.Join(p.dir, dir))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, dir, listing)
	}
	return all.String()
}

// TestAgentCameByLinkOfAConfinedServer_ServerIsNotStarted checks that a confined server cannot choose what the
// next one may change: an agent is started in a directory of its project that it has made a link. In the
// directory to which that leads it works, once the user has started an agent there.
func TestAgentCameByLinkOfAConfinedServer_ServerIsNotStarted(t *testing.T) {
	needConfinement(t)
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{"sh": shellEntry(hosting{"confine": "project"})})
	victim, link := filepath.Join(p.dir, "victim"), filepath.Join(p.project, "linked")
	if err := os.Mkdir(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	in := func(dir string) *agent {
		cmd := p.command("mcp-stdio")
		cmd.Dir, cmd.Env = dir, append(cmd.Env, "PWD="+dir)
		return p.agentOf(cmd).shake()
	}
	run := func(a *agent, command string) answer {
		return a.wait(a.call("sh__run", map[string]any{"command": command}))
	}
	first := in(p.project)
	if x := run(first, "ln -s "+victim+" "+link+" && echo made"); !strings.Contains(x.text(), "made") {
		t.Fatalf("the first server: %s", x.raw)
	}
	deceived := in(link)
	if x := run(deceived, "echo x >"+victim+"/written"); !strings.Contains(x.raw, "by a link that a confined server could change") {
		t.Errorf("an agent that came by the link: %s", x.raw)
	}
	if _, err := os.Stat(filepath.Join(victim, "written")); err == nil {
		t.Error("the server has written where the link leads")
	}
	if x := run(in(victim), "echo x >"+victim+"/written && echo done"); !strings.Contains(x.text(), "done") {
		t.Errorf("an agent that was started there: %s", x.raw)
	}
	if x := run(first, "echo still"); !strings.Contains(x.text(), "still") {
		t.Errorf("the first server afterwards: %s", x.raw)
	}
}
