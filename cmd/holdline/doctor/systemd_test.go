package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/contrib"
	"holdline/daemon/service"
)

// TestUnitFiles checks the finding for missing, changed and unusable unit files.
func TestUnitFiles(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".config/systemd/user")
	bin := filepath.Join(home, "holdline")
	u := service.FindUnits(func(name string) string {
		return map[string]string{"HOME": home, "XDG_RUNTIME_DIR": filepath.Join(home, "run")}[name]
	})
	units, err := contrib.SystemdUnits(bin)
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), mode)
		}
		if err == nil {
			err = os.Chmod(path, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(state State, what string) {
		t.Helper()
		f := checkUnitFiles(u, u.File(contrib.SystemdSocket))
		if f.State != state || !strings.Contains(f.What, what) || state != OK && (f.Why == "" || f.Fix == "") {
			t.Errorf("files = %+v, want %s: %s", f, state, what)
		}
	}
	write(filepath.Join(dir, contrib.SystemdSocket), units[0].Text, 0o600)
	want(Problem, "holdline.service is not")
	write(filepath.Join(dir, contrib.SystemdService), units[1].Text, 0o600)
	want(Problem, bin) // there is no unit
	write(bin, "", 0o600)
	want(Problem, "is no program")
	write(bin, "", 0o700)
	want(OK, contrib.SystemdSocket)
	write(filepath.Join(dir, contrib.SystemdService), units[1].Text+"# mine\n", 0o600)
	want(Note, contrib.SystemdService)
	write(filepath.Join(dir, contrib.SystemdService), "[Service]\nType=notify\n", 0o600)
	want(Problem, "no ExecStart=")
}

// TestUnitStates checks the finding and the fix for each state of socket and service.
func TestUnitStates(t *testing.T) {
	active, inactive := service.UnitState{Load: "loaded", Active: "active"},
		service.UnitState{Load: "loaded", Active: "inactive"}
	failed := func(result string) service.UnitState { return service.UnitState{Active: "failed", Result: result} }
	for _, c := range []struct {
		enabled         bool
		socket, service service.UnitState
		state           State
		fix             string
	}{
		{true, active, inactive, OK, ""},
		{true, active, active, OK, ""},
		{true, failed(service.StartLimit), failed("exit-code"), Problem, "reset-failed"},
		{true, failed("resources"), inactive, Problem, "reset-failed"},
		{true, inactive, inactive, Problem, "systemctl --user start holdline.socket"},
		{false, inactive, inactive, Note, "enable --now"},
		{false, active, active, Note, "enable holdline.socket"},
		{true, active, service.UnitState{Active: "active", NeedReload: true}, Note, "daemon-reload"},
		{true, active, service.UnitState{Active: "active", Restarts: 2}, Note, "holdline logs"},
	} {
		f := checkUnitStates(c.enabled, c.socket, c.service)
		if f.State != c.state || !strings.Contains(f.Fix, c.fix) {
			t.Errorf("enabled %v, socket %+v, service %+v: %+v", c.enabled, c.socket, c.service, f)
		}
	}
}

// TestLinger checks that disabled lingering is noted.
func TestLinger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "u")
	if f := checkLinger(path); f.State != Note || f.Fix != "loginctl enable-linger" {
		t.Errorf("off: %+v", f)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := checkLinger(path); f.State != OK {
		t.Errorf("on: %+v", f)
	}
}
