package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"holdline/contrib"
	"holdline/protocol/control"
)

// installedUnderSystemd checks that install moves a running daemon's sessions to systemd,
// that a second install changes nothing, and that uninstall leaves nothing in systemd.
func installedUnderSystemd(m *managed) {
	units := filepath.Join(m.dir, "home/.config/systemd/user")
	m.removeUnits()
	m.systemctl("daemon-reload")
	m.login()
	a := m.agent().shake()
	by := m.status().Daemon
	m.must("install", "--bin", "--systemd")
	waitFor(m.t, "the managed daemon", func() bool {
		a.ask("ping", nil)
		s := m.status().Daemon
		return s.PID != by.PID && s.StartedBy == "systemd"
	})
	bin := filepath.Join(m.dir, "home/.local/bin/holdline")
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", m.main())); exe != bin {
		m.t.Errorf("systemd runs %s, %v, want %s", exe, err, bin)
	}
	if out := m.must("install", "--bin", "--systemd"); strings.Contains(out, "write ") ||
		strings.Contains(out, "run ") {
		m.t.Errorf("a second time:\n%s", out)
	}
	out, _, _ := m.run("", "doctor")
	for line := range strings.SplitSeq(out, "\n") {
		if strings.HasPrefix(line, "problem  systemd") || strings.HasPrefix(line, "problem  server") ||
			strings.HasPrefix(line, "note     PATH") {
			m.t.Errorf("doctor: %s", line)
		}
	}
	m.must("uninstall", "--purge")
	for range a.lines { // it gets the farewell, and ends
	}
	if err := a.cmd.Wait(); err == nil {
		m.t.Error("the proxy does not say that its daemon is gone")
	}
	m.noneLeft(waitLimit)
	if state := m.show(contrib.SystemdSocket, "LoadState"); state != "not-found" {
		m.t.Errorf("systemd still knows %s: %s", contrib.SystemdSocket, state)
	}
	for _, name := range []string{contrib.SystemdSocket, contrib.SystemdService} {
		left, _ := filepath.Glob(filepath.Join(units, "*", name))
		if _, err := os.Lstat(filepath.Join(units, name)); !errors.Is(err, os.ErrNotExist) || len(left) > 0 {
			m.t.Errorf("%s is left: %v, %v", name, err, left)
		}
	}
	for _, path := range []string{
		filepath.Dir(m.socket()), filepath.Dir(bin), m.stateRoot(), filepath.Join(m.dir, "home/.config/holdline"),
	} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			m.t.Errorf("%s is left: %v", path, err)
		}
	}
}

// setUpUnderSystemd checks that setup --systemd moves a client's server and has systemd start
// the daemon for it, that the client's entry and a session from before go on with that daemon,
// and that the client's file has its old bytes after the undo.
func setUpUnderSystemd(m *managed) {
	m.removeUnits()
	m.systemctl("daemon-reload")
	m.login()
	if err := os.Remove(filepath.Join(m.dir, "home/.config/holdline/config.json")); err != nil {
		m.t.Fatal(err)
	}
	own := m.toolsEntry(nil)
	delete(own, "holdline")
	const file = ".claude.json"
	m.putHome(m.t, map[string]string{
		file: mustJSON(m.t, map[string]any{"mcpServers": map[string]any{"tools": own}}),
	})
	text := m.read(m.t, file)
	before := m.agent("--server", "holdline").shake() // its proxy starts a daemon without systemd
	out := m.must("setup", "--yes", "--systemd")
	for _, want := range []string{
		"1 server (1 client): 1 starts.", "run systemctl --user enable --now " + contrib.SystemdSocket,
		"Done: 1 server moved",
	} {
		if !strings.Contains(out, want) {
			m.t.Errorf("setup says nothing of %q:\n%s", want, out)
		}
	}
	m.untilMain(0)
	a := m.agent("--server", "tools").shake()
	if x := a.wait(a.call("effect", map[string]any{"token": "t"})); x.text() != "t" {
		m.t.Errorf("effect: %s", x.raw)
	}
	if x := before.ask("ping", map[string]any{}); x.Error != nil {
		m.t.Errorf("the session from before: %s", x.raw)
	}
	s := m.until("both sessions", func(s control.StatusAnswer) bool { return len(s.Sessions) == 2 })
	if s.Daemon.StartedBy != "systemd" || s.Daemon.PID != m.main() {
		m.t.Errorf("daemon %+v, and systemd's is %d", s.Daemon, m.main())
	}
	waitFor(m.t, "one daemon", func() bool { return len(m.daemons()) == 1 })
	if out := m.must("setup", "--yes", "--systemd"); !strings.Contains(out, "Nothing to do: ") ||
		strings.Contains(out, "run systemctl") {
		m.t.Errorf("a second time:\n%s", out)
	}
	a.rest()
	before.rest()
	m.must("setup", "--undo")
	if got := m.read(m.t, file); got != text {
		m.t.Errorf("after the undo the file is\n%s\nwant\n%s", got, text)
	}
}

// removeUnits removes the unit files, as a user may do by hand.
func (m *managed) removeUnits() {
	m.t.Helper()
	for _, name := range []string{contrib.SystemdSocket, contrib.SystemdService} {
		if err := os.Remove(filepath.Join(m.dir, "home/.config/systemd/user", name)); err != nil {
			m.t.Fatal(err)
		}
	}
}

// uninstalledWithoutUnits removes the unit files by hand, which systemd does not notice.
// Uninstall still leaves nothing that runs.
func uninstalledWithoutUnits(m *managed) {
	m.removeUnits()
	m.systemctl("daemon-reload")
	m.login()
	m.must("install", "--bin", "--systemd")
	a := m.agent().shake()
	a.ask("ping", nil)
	if by := m.status().Daemon.StartedBy; by != "systemd" {
		m.t.Errorf("the daemon was started by %s", by)
	}
	a.rest()
	m.removeUnits()
	m.must("uninstall", "--purge")
	m.noneLeft(waitLimit)
	if state := m.show(contrib.SystemdSocket, "LoadState"); state != "not-found" {
		m.t.Errorf("systemd still knows %s: %s", contrib.SystemdSocket, state)
	}
	if left, _ := filepath.Glob(filepath.Join(m.dir, "home/.config/systemd/user/*.wants/holdline.*")); len(left) > 0 {
		m.t.Errorf("left: %q", left)
	}
}
