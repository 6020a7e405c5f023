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
	if out, _, code := p.run("", "doctor", "-v"); code == exitOK || !strings.Contains(out, s.Daemon.ConfigCopy) {
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

// TestEmptyConfig_ServersStayUntilTheUserMeansIt empties the configuration and removes it, each time
// with a daemon that runs and with the next one. The server's process stays, status and doctor
// name the file, and no command edits it. `reload --yes` takes it, and the next daemon has no
// servers, without a word.
func TestEmptyConfig_ServersStayUntilTheUserMeansIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared")
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	p.untilReady("tools")
	pid := func() int {
		t.Helper()
		return p.until("the server's process", func(s control.StatusAnswer) bool {
			return len(s.Servers) == 1 && len(s.Workers) == 1 && s.Workers[0].ChildPID != 0
		}).Workers[0].ChildPID
	}
	before := pid()
	path := filepath.Join(p.dir, "home/.config/holdline/config.json")
	for _, x := range []struct{ name, says string }{{"empty", "is empty"}, {"gone", "is not there any more"}} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if x.name == "gone" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		refused := func(s control.StatusAnswer) bool { return strings.Contains(s.Daemon.ConfigRefused, path+" "+x.says) }
		p.until("the refusal", refused)
		kill9(t, d.Process.Pid)
		d = p.daemon()
		s := p.until("the refusal by the next daemon", refused)
		if s.Daemon.ConfigCopy == "" || pid() != before {
			t.Errorf("%s: copy %q, process %d, want one, and %d", x.name, s.Daemon.ConfigCopy, pid(), before)
		}
		if y := a.wait(a.effect(x.name, 0)); y.Error != nil || y.Result.IsError {
			t.Errorf("%s: a call: %s", x.name, y.raw)
		}
		if out := p.must("status"); !strings.Contains(out, path) {
			t.Errorf("%s: status says\n%s", x.name, out)
		}
		if out, _, code := p.run("", "doctor", "-v"); code == exitOK || !strings.Contains(out, path+" "+x.says) ||
			!strings.Contains(out, "cp "+s.Daemon.ConfigCopy) {
			t.Errorf("%s: doctor, exit %d:\n%s", x.name, code, out)
		}
		for _, args := range [][]string{
			{"reload"},
			{"servers", "reload"},
			{"servers", "add", "more", "--", "true"},
			{"config", "set", "consult.timeout", "30m"},
			{"servers", "disable", "tools"},
		} {
			if _, errs, code := p.run("", args...); code != exitFailure || !strings.Contains(errs, x.says) {
				t.Errorf("%s: %q, exit %d: %s", x.name, args, code, errs)
			}
		}
	}
	if out := p.must("reload", "--yes"); !strings.Contains(out, "reloaded: it is not there, all defaults") {
		t.Errorf("reload --yes: %s", out)
	}
	kept, err := os.ReadDir(filepath.Join(p.dir, "home/.local/state/holdline/config"))
	if err != nil || len(kept) != 0 {
		t.Errorf("copies %v, %v, want none", kept, err)
	}
	for range 2 {
		s := p.status()
		if len(s.Servers) != 0 || s.Daemon.ConfigRefused != "" {
			t.Errorf("in force is %+v, refused %q", s.Servers, s.Daemon.ConfigRefused)
		}
		kill9(t, d.Process.Pid)
		d = p.daemon()
	}
	a.rest()
}
