package service

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"holdline/contrib"
)

// unitsIn returns the units of a user with this home.
func unitsIn(home string) Units {
	vars := map[string]string{"HOME": home, "XDG_RUNTIME_DIR": filepath.Join(home, "run")}
	return FindUnits(func(name string) string { return vars[name] })
}

// TestUnits checks where a unit is found, whether it counts as enabled, and whether a user
// manager runs.
func TestUnits(t *testing.T) {
	home, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	u := unitsIn(home)
	dir := filepath.Join(home, ".config/systemd/user")
	path := filepath.Join(dir, contrib.SystemdSocket)
	link := filepath.Join(dir, "sockets.target.wants", contrib.SystemdSocket)
	want := func(when, file string, enabled, running bool) {
		t.Helper()
		if got := u.File(contrib.SystemdSocket); got != file || u.Enabled() != enabled || u.Running() != running {
			t.Errorf("%s: File = %q, Enabled = %v, Running = %v", when, got, u.Enabled(), u.Running())
		}
	}
	must := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	want("at first", "", false, false)
	must(os.MkdirAll(filepath.Dir(link), 0o700), os.WriteFile(path, nil, 0o600))
	want("installed", path, false, false)
	must(os.Symlink(path, link))
	want("enabled", path, true, false)
	must(os.MkdirAll(filepath.Join(home, "run/systemd"), 0o700))
	ln, err := net.Listen("unix", filepath.Join(home, "run/systemd/private"))
	must(err)
	defer ln.Close()
	want("with a manager", path, true, true)
	must(os.Remove(path), os.Symlink(os.DevNull, path))
	want("masked", path, false, true)
	must(os.Remove(path))
	want("a link that was left", "", false, true)
}

// TestParseState parses the output of systemctl show.
func TestParseState(t *testing.T) {
	got, id := parseState("Id=holdline.service\nLoadState=loaded\nActiveState=failed\nResult=exit-code\nNeedDaemonReload=yes\nNRestarts=8\n")
	want := UnitState{Load: "loaded", Active: "failed", Result: "exit-code", NeedReload: true, Restarts: 8}
	if got != want || id != contrib.SystemdService {
		t.Errorf("parseState = %+v of %q", got, id)
	}
}

// TestAbsence checks the reason why systemd starts no daemon, for each state of its units.
func TestAbsence(t *testing.T) {
	for _, c := range []struct {
		socket UnitState
		why    string // "" for none
	}{
		{UnitState{Load: "loaded", Active: "active"}, ""},
		{UnitState{Load: "loaded", Active: "activating"}, ""},
		{UnitState{Load: "loaded", Active: "inactive"}, "holdline.socket is stopped"},
		{UnitState{Load: "not-found", Active: "inactive"}, "holdline.socket is not-found"},
		{UnitState{Load: "loaded", Active: "failed", Result: "resources"}, "holdline.socket has failed (resources)"},
		{
			UnitState{Load: "loaded", Active: "failed", Result: StartLimit},
			"holdline.service has failed too often in a row (start limit hit), and systemd does not start it any more",
		},
	} {
		got := AbsenceOf(c.socket)
		if (got == nil) != (c.why == "") || got != nil && (got.Why != c.why || got.Hint == "") {
			t.Errorf("AbsenceOf(%+v) = %+v, want %q", c.socket, got, c.why)
		}
	}
}
