package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"holdline/contrib"
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
