package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestBadConfigAtStart_LastGoodServes writes a bad configuration and kills the daemon. The
// next daemon uses the copy of the last good state, and status, doctor and the log say so.
// Once the file is corrected, it is in force.
func TestBadConfigAtStart_LastGoodServes(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared")
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	p.untilReady("tools")
	path := filepath.Join(p.dir, "home/.config/holdline/config.json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const bad = `{"surely_no_key": 1}`
	if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	kill9(t, d.Process.Pid)
	p.daemon()
	if x := a.wait(a.effect("after", 0)); x.Error != nil || x.Result.IsError {
		t.Errorf("a call after the restart: %s", x.raw)
	}
	s := p.until("the refusal", func(s control.StatusAnswer) bool { return s.Daemon.ConfigRefused != "" })
	if len(s.Servers) != 1 || s.Servers[0].Name != "tools" ||
		!strings.Contains(s.Daemon.ConfigRefused, "surely_no_key") {
		t.Errorf("status %+v", s)
	}
	info, err := os.Stat(s.Daemon.ConfigCopy)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy %s: %v, %v, want mode 0600", s.Daemon.ConfigCopy, info, err)
	}
	if out := p.must("status"); !strings.Contains(out, s.Daemon.ConfigCopy) || !strings.Contains(out, "correct "+path) {
		t.Errorf("status says\n%s", out)
	}
	if out, _, code := p.run("", "doctor"); code == exitOK || !strings.Contains(out, s.Daemon.ConfigCopy) {
		t.Errorf("doctor, exit %d:\n%s", code, out)
	}
	log, err := os.ReadFile(filepath.Join(p.dir, "daemon.log"))
	if err != nil || !strings.Contains(string(log), "serving by the copy of its last good state") {
		t.Errorf("%v, the log:\n%s", err, log)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	p.until("the corrected file in force", func(s control.StatusAnswer) bool {
		return s.Daemon.ConfigRefused == "" && s.Daemon.ConfigCopy == ""
	})
	a.rest()
}

// TestBadConfigAtStart_NoCopy starts a daemon with a bad file, once where no daemon has
// ever served, and once where one has served with another file. Both fail and name the
// mistake.
func TestBadConfigAtStart_NoCopy(t *testing.T) {
	t.Parallel()
	p := newPlace(t).configure(map[string]any{})
	bad := filepath.Join(p.dir, "bad.json")
	if err := os.WriteFile(bad, []byte(`{"surely_no_key": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	fails := func(when string) {
		t.Helper()
		if _, errs, code := p.run("", "daemon", "--config", bad); code == exitOK ||
			!strings.Contains(errs, "bad.json:1:2: unknown key") {
			t.Errorf("%s: exit %d: %s", when, code, errs)
		}
	}
	fails("at the first start")
	p.daemon()
	p.must("stop")
	fails("beside the copy of another file")
}
