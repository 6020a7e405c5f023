package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// TestConfigEdited checks that an edited configuration is soon in force, in whichever way
// the editor writes it. A bad one is named once by status, doctor and the log, and the one
// before stays in force until it is fixed.
func TestConfigEdited(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared")
	path := filepath.Join(p.dir, "home/.config/holdline/config.json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	named := func(name string) string { return strings.ReplaceAll(string(good), `"tools"`, `"`+name+`"`) }
	serves := func(name string) {
		t.Helper()
		s := p.until(name+" is configured", func(s control.StatusAnswer) bool {
			return len(s.Servers) == 1 && s.Servers[0].Name == name && s.Daemon.ConfigRefused == ""
		})
		if s.Daemon.PID == 0 {
			t.Errorf("status %+v", s)
		}
	}
	p.daemon()
	a := p.agent().shake()
	p.untilReady("tools")

	text := named("inplace") // written in two steps
	write(path, text[:len(text)/2])
	time.Sleep(10 * time.Millisecond) // as an editor may take; the test does not depend on it
	write(path, text)
	serves("inplace")

	write(path+".new", named("renamed"))
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	serves("renamed")

	for what, bad := range map[string]func() error{
		"torn":                  func() error { return os.WriteFile(path, good[:len(good)/2], 0o600) },
		"of others":             func() error { write(path, named("others")); return os.Chmod(path, 0o622) },
		"with a key of no kind": func() error { return os.WriteFile(path, []byte(`{"surely_no_key": 1}`), 0o600) },
		"gone":                  func() error { return os.Remove(path) },
	} {
		if err := bad(); err != nil {
			t.Fatal(err)
		}
		s := p.until("the refusal of a file "+what,
			func(s control.StatusAnswer) bool { return s.Daemon.ConfigRefused != "" })
		if len(s.Servers) != 1 || s.Servers[0].Name != "renamed" {
			t.Errorf("%s: servers %+v", what, s.Servers)
		}
		out := p.must("status")
		why := s.Daemon.ConfigRefused
		if !strings.Contains(out, "configuration file is refused") || !strings.Contains(out, why[:min(len(why), 100)]) {
			t.Errorf("%s: status says\n%s", what, out)
		}
		if out, _, code := p.run("", "doctor", "-v"); code == exitOK ||
			strings.Count(out, "problem  configuration") != 1 || !strings.Contains(out, path) {
			t.Errorf("%s: doctor, exit %d:\n%s", what, code, out)
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		write(path, named("renamed"))
		serves("renamed")
	}
	log, err := os.ReadFile(filepath.Join(p.dir, "daemon.log"))
	// On a slow machine a half written file may be refused, too.
	if n := strings.Count(string(log), "the old one stays in force"); err != nil || n < 4 || n > 6 {
		t.Errorf("%d refusals in the log, want about 4, %v:\n%s", n, err, log)
	}
	if got := a.ask("tools/call", map[string]any{"name": "health_snapshot"}).text(); !strings.HasPrefix(got, "Ready.") {
		t.Errorf("the session: %s", got)
	}
}
