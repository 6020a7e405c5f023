package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol/control"
)

// sshMain plays ssh. The other machine is this one: it runs a command in the shell, and forwards
// REMOTE:LOCAL of -R until it is killed. As sshd does, it leaves the socket behind. It fails while
// there is a file of the name in $NOSSH, and writes its pid to the file in $SSHPID.
func sshMain(args []string) int {
	if _, err := os.Stat(os.Getenv("NOSSH")); err == nil {
		fmt.Fprintln(os.Stderr, "box: Permission denied (publickey).")
		return 255
	}
	i := slices.Index(args, "-R")
	line := strings.Join(args[slices.Index(args, "--")+2:], " ") // for the shell of the user there
	if i < 0 {
		cmd := exec.Command("sh", "-c", line)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if cmd.Run() != nil {
			return 1
		}
		return 0
	}
	remote, local, _ := strings.Cut(args[i+1], ":")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: remote, Net: "unix"})
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error: remote port forwarding failed for listen path", remote)
		return 255
	}
	ln.SetUnlinkOnClose(false)
	if err := os.WriteFile(os.Getenv("SSHPID"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return 255
	}
	go func() { // ends with the process
		cmd := exec.Command("sh", "-c", line)
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
		_ = cmd.Run()
		os.Exit(255)
	}()
	for {
		there, err := ln.AcceptUnix()
		if err != nil {
			return 255
		}
		here, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: local, Net: "unix"})
		if err != nil {
			there.Close()
			continue
		}
		for _, pair := range [][2]*net.UnixConn{{there, here}, {here, there}} {
			go func() { // ends with the connection
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].CloseWrite()
			}()
		}
	}
}

// TestConnect checks `holdline connect`: it prints the entry for the agents there, is in the status,
// and makes the connection again when ssh is killed. The calls of the agents there survive that, and
// the death of the daemon.
func TestConnect(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	bin := filepath.Join(p.dir, "bin")
	p.makeDir(bin)
	if err := os.Symlink(filepath.Join(programs, "echoserver"), filepath.Join(bin, "ssh")); err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "PATH="+bin+":"+os.Getenv("PATH"),
		"NOSSH="+filepath.Join(p.dir, "nossh"), "SSHPID="+filepath.Join(p.dir, "sshpid"))
	servers := map[string]any{"docs": p.toolsEntry(hosting{"scope": "shared"})}
	box := map[string]any{"servers": []string{"docs"}, "allow": []string{"docs__*"}}
	p.configure(servers)
	if _, errs, code := p.run("", "connect", "far"); code == 0 || !strings.Contains(errs, "no socket for guests") {
		t.Errorf("without a socket: exit %d, %s", code, errs)
	}
	p.configure(servers, "sockets", map[string]any{"box": box})
	p.until("the socket", func(s control.StatusAnswer) bool { return len(s.Sockets) == 1 })
	if err := os.WriteFile(filepath.Join(p.dir, "nossh"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := p.run("", "connect", "far"); code == 0 ||
		!strings.Contains(errs, "ssh far: box: Permission denied (publickey)") {
		t.Errorf("with an ssh that is refused: exit %d, %s", code, errs)
	}
	if err := os.Remove(filepath.Join(p.dir, "nossh")); err != nil {
		t.Fatal(err)
	}

	cmd := p.command("connect", "far")
	out, errs := new(words), new(words)
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	forwarded := func(s control.StatusAnswer) bool {
		return len(s.Sockets) == 1 && slices.Equal(s.Sockets[0].Hosts, []string{"far"})
	}
	p.until("the forwarding", forwarded)
	waitFor(t, "the entry", func() bool { return strings.Contains(out.String(), "Interrupt this command") })
	_, entry, _ := strings.Cut(out.String(), `"--guest", "`)
	remote, _, _ := strings.Cut(entry, `"`)
	if !strings.HasPrefix(remote, filepath.Join(p.dir, "home/.local/state/holdline-guest")) {
		t.Fatalf("connect printed %s", out)
	}
	a := p.agent("--guest", remote).shake()
	ssh := func() int {
		b, err := os.ReadFile(filepath.Join(p.dir, "sshpid"))
		pid, _ := strconv.Atoi(string(b))
		if err != nil || pid == 0 {
			t.Fatalf("pid of ssh: %q, %v", b, err)
		}
		return pid
	}
	daemon := p.pid(0)
	for i, kill := range []func(){
		func() { kill9(t, ssh()) },
		func() { kill9(t, daemon); daemon = p.pid(daemon) },
		func() { kill9(t, ssh()); kill9(t, daemon); daemon = p.pid(daemon) },
	} {
		token := fmt.Sprint("held", i)
		held := a.call("docs__effect", map[string]any{"token": token, "ms": 1500})
		p.untilEffect("begin " + token)
		kill()
		if x := a.wait(held); x.Result.IsError || x.Error != nil {
			t.Errorf("round %d: the call that was in flight: %s; connect said %s", i, x.raw, errs)
		}
		if n := p.effectsOf("begin " + token); n != 1 {
			t.Errorf("round %d: the call ran %d times", i, n)
		}
	}
	p.until("the forwarding", forwarded)
	if text := p.must("status"); !strings.Contains(text, "FORWARDED TO") || !strings.Contains(text, "far") {
		t.Errorf("status:\n%s", text)
	}
	if !strings.Contains(errs.String(), "the connection to far has ended") {
		t.Errorf("connect said %q", errs)
	}
	a.rest()
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("connect ended with %v: %s", err, errs)
	}
	if err := syscall.Kill(ssh(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("ssh is left: %v", err)
	}
}
