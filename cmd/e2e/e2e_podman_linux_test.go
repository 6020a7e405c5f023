package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol/control"
	"holdline/protocol/programtest"
)

// cgroup2 is the type of the file system of control groups of version 2 (statfs(2)).
const cgroup2 = 0x63677270

// A container is one of podman, at whose end nothing is left of it.
type container struct {
	name   string
	podman string // path of a podman whose files are not the user's
}

// run runs podman, and returns what it prints.
func (c container) run(args ...string) (string, error) {
	out, err := exec.Command(c.podman, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// container starts a container with this machine's programs, those of the tests, volumes of its own
// (SOURCE:TARGET), and another home. The test is skipped if it cannot be had.
func (p *place) container(volumes ...string) container {
	p.t.Helper()
	if os.Getenv("HOLDLINE_E2E") == "" {
		p.t.Skip("HOLDLINE_E2E=1 is not set: it starts a container")
	}
	program, err := exec.LookPath("podman")
	if err != nil {
		p.t.Skipf("needs podman: %v", err)
	}
	must := func(err error) {
		p.t.Helper()
		if err != nil {
			p.t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "pod") // the processes of podman that stay are not the place's
	must(err)
	c := container{name: filepath.Base(dir), podman: filepath.Join(dir, "podman")}
	root := filepath.Join(dir, "root")
	for _, d := range []string{"usr", "proc", "sys", "dev", "etc", "tmp", "root", "run"} {
		must(os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		if _, err := os.Stat("/" + link); err == nil {
			must(os.Symlink("usr/"+link, filepath.Join(root, link)))
		}
	}
	command := fmt.Sprintf(`exec %s --root %s/images --runroot %s/run --cgroup-manager cgroupfs "$@"`, program, dir, dir)
	script := "#!/bin/sh\n" + command + "\n"
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/sys/fs/cgroup", &fs); err != nil || fs.Type != cgroup2 {
		// The runtimes want control groups of one version. Those of version 2 are mounted for it alone.
		script = fmt.Sprintf("#!/bin/sh\nexec unshare -m sh -c 'umount -R /sys/fs/cgroup; "+
			"mount -t cgroup2 none /sys/fs/cgroup; %s' podman \"$@\"\n", command)
	}
	programtest.Write(p.t, c.podman, script)
	p.env = append(p.env, "PATH="+dir+":"+programs+":"+os.Getenv("PATH"))
	p.t.Cleanup(func() {
		p.nothingLeft() // while the container can be reached
		_, _ = c.run("rm", "--force", "--time", "0", c.name)
		_ = os.RemoveAll(dir)
	})
	// The limits are some that this user may set, and what podman does by default needs more rights.
	args := []string{
		"run", "--detach", "--name", c.name, "--network", "none", "--cgroups", "disabled",
		"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4000:4000",
	}
	for _, v := range append(volumes, "/usr:/usr:ro", programs+":"+programs+":ro") {
		args = append(args, "--volume", v)
	}
	if out, err := c.run(append(args, "--rootfs", root, "sleep", "infinity")...); err != nil {
		p.t.Skipf("podman cannot start a container here: %s", out)
	}
	return c
}

// TestE2EFarPodman runs a server in a container of a real podman. `hosts add` copies holdline
// there. While calls are in flight the connection, the daemon, the worker, its child, and the
// container are killed: a call is answered once, and has its effect once, or its outcome is unknown
// because what ran it was killed. In the end nothing of it is left there.
func TestE2EFarPodman(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	c := p.container(p.dir + ":" + p.dir) // with the ledger of the calls
	host := "podman:" + c.name
	out := p.must("hosts", "add", host)
	for _, want := range []string{host + " answers", "was copied to", host + " is ready"} {
		if !strings.Contains(out, want) {
			t.Errorf("hosts add says no %q:\n%s", want, out)
		}
	}
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "host": host})}).daemon()
	a := p.agent("--no-autostart").shake()
	inside := func(pattern string) func() {
		return func() {
			if out, err := c.run("exec", c.name, "pkill", "-KILL", "-f", pattern); err != nil {
				t.Errorf("pkill %s: %v: %s", pattern, err, out)
			}
		}
	}
	call := func(token string, ms int, disturb func()) answer {
		t.Helper()
		id := a.effect(token, ms)
		p.untilEffect("begin " + token)
		disturb()
		return a.wait(id)
	}
	p.once("first", call("first", 1, func() {}))
	if s := p.status(); len(s.Workers) != 1 || s.Workers[0].Host != host || s.Workers[0].RTTUS == 0 {
		t.Errorf("the status has the workers %+v", s.Workers)
	}
	p.once("link", call("link", 1500, func() {
		links := p.farProcesses("exec -i " + c.name)
		if len(links) == 0 {
			t.Error("no podman holds a connection")
		}
		for _, pid := range links {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}))
	p.once("daemon", call("daemon", 1500, func() { kill9(t, p.status().Daemon.PID); p.daemon() }))
	for _, victim := range []string{"^holdline worker", "^" + programs + "/toolserver"} {
		if x := call(victim, 60_000, inside(victim)); x.code() != "outcome_unknown" || p.effectsOf("begin "+victim) != 1 {
			t.Errorf("%s was killed: %s", victim, x.raw)
		}
		p.once("after "+victim, call("after "+victim, 1, func() {}))
	}

	id := a.effect("container", 60_000)
	p.untilEffect("begin container")
	if out, err := c.run("kill", c.name); err != nil {
		t.Fatalf("podman kill: %s", out)
	}
	p.until("the loss to be noticed", func(s control.StatusAnswer) bool {
		return len(s.Workers) == 0 || s.Workers[0].Unreachable != ""
	})
	if out, err := c.run("start", c.name); err != nil {
		t.Fatalf("podman start: %s", out)
	}
	if x := a.wait(id); x.code() != "outcome_unknown" {
		t.Errorf("the container was killed: %s", x.raw)
	}
	waitFor(t, "the container to be tried again", func() bool { return a.wait(a.effect("back", 1)).text() == "back" })
	a.leave()
	p.must("stop", "--all")
	waitFor(t, "the end of all processes there", func() bool {
		left, _ := c.run("exec", c.name, "pgrep", "-f", "-l", "holdline|toolserver")
		return left == ""
	})
	if out, err := c.run("exec", c.name, "sh", "-c", "ls -d /root/.local/state/holdline/far/*/*"); err == nil {
		t.Errorf("directories are left there: %s", out)
	}
}

// TestE2EGuestPodman has an agent in a container of a real podman, with nothing of the user but its
// project and the directory of a socket, both mounted. It uses what the socket names, in that
// project too, and nothing else. The daemon is killed during its call, which is answered once.
func TestE2EGuestPodman(t *testing.T) {
	t.Parallel()
	p := newPlace(t).guestsAt("/workspace")
	c := p.container(filepath.Dir(p.guestPath())+":/run/holdline:ro", p.project+":/workspace")
	a := p.agentOf(exec.Command(c.podman, "exec", "-i", "--workdir", "/workspace", c.name,
		filepath.Join(programs, "holdline"), "mcp-stdio", "--guest", "/run/holdline/daemon.sock")).shake()
	p.useAsGuest(a)
	if out, err := c.run("exec", c.name, "cat", "/workspace/made"); err != nil || out != "made" {
		t.Errorf("in the container the file is %q, %v", out, err)
	}
	if out, err := c.run("exec", c.name, "ls", "/run/holdline"); err != nil || out != "daemon.sock" {
		t.Errorf("beside the socket the container has %q, %v", out, err)
	}
	p.must("disconnect", "box")
	for range a.lines {
	}
}
