package socket

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// homeOf makes a home with a runtime directory of its own, and returns its variables.
func homeOf(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"HOME": shortDir(t), "XDG_RUNTIME_DIR": shortDir(t)}
}

// without returns the environment less a variable.
func without(vars map[string]string, name string) map[string]string {
	rest := map[string]string{}
	for k, v := range vars {
		if k != name {
			rest[k] = v
		}
	}
	return rest
}

// resolved returns the paths of an environment.
func resolved(t *testing.T, vars map[string]string) Paths {
	t.Helper()
	p, err := Resolve("", env(vars))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serves makes what a daemon of that environment makes at path: its directory, the socket and the
// notes whose they are.
func serves(t *testing.T, vars map[string]string, path string) *Listener {
	t.Helper()
	p, ln := resolved(t, vars), listen(t, path)
	if err := errors.Join(os.WriteFile(filepath.Join(filepath.Dir(path), HomeFile), p.HomeText(), 0o600),
		p.WritePointer(path), p.WritePlace(path, env(vars))); err != nil {
		t.Fatal(err)
	}
	return ln
}

// TestDial_DaemonOfAnotherHomeAtAFallBack_IsPassedOver checks the choice between two candidates: a
// daemon of another home, at a place where this home's daemon may be, is none for this home, neither
// alone nor before the own one.
func TestDial_DaemonOfAnotherHomeAtAFallBack_IsPassedOver(t *testing.T) {
	mine, other := homeOf(t), homeOf(t)
	foreign := filepath.Join(other["XDG_RUNTIME_DIR"], dirName, socketName)
	own := filepath.Join(shortDir(t), dirName, socketName)
	serves(t, other, foreign)
	p := resolved(t, mine)
	p.fallback = []Candidate{{foreign, "fall-back"}, {own, "fall-back"}}
	if _, _, err := p.Dial(t.Context()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("with the foreign one alone: %v, want %v", err, ErrNoDaemon)
	}
	listen(t, own)
	conn, at, err := p.Dial(t.Context())
	if err != nil || at != own {
		t.Fatalf("dialled %q, %v, want %q", at, err, own)
	}
	conn.Close()
	p = resolved(t, other)
	p.fallback = []Candidate{{own, "fall-back"}}
	conn, at, err = p.Dial(t.Context())
	if err != nil || at != foreign {
		t.Fatalf("its own home dialled %q, %v, want %q", at, err, foreign)
	}
	conn.Close()
}

// TestCheckHome_RuntimeDirectoryOfAnotherHome_NamesBoth checks that a command learns whose directory its
// variables lead to, whether or not a daemon runs there.
func TestCheckHome_RuntimeDirectoryOfAnotherHome_NamesBoth(t *testing.T) {
	other := homeOf(t)
	path := filepath.Join(other["XDG_RUNTIME_DIR"], dirName, socketName)
	serves(t, other, path).Close()
	mine := map[string]string{"HOME": shortDir(t), "XDG_RUNTIME_DIR": other["XDG_RUNTIME_DIR"]}
	err := resolved(t, mine).CheckHome()
	if !errors.Is(err, ErrOtherHome) || !strings.Contains(err.Error(), other["HOME"]) ||
		!strings.Contains(err.Error(), mine["HOME"]) {
		t.Errorf("the other home's place: %v", err)
	}
	// A process that has only HOME belongs to the home whose daemon has XDG_STATE_HOME, too.
	full := without(other, "")
	full["XDG_STATE_HOME"] = shortDir(t)
	serves(t, full, path).Close()
	for name, vars := range map[string]map[string]string{
		"all": full, "HOME alone": {"HOME": other["HOME"]}, "none": {},
	} {
		vars = without(vars, "")
		vars["XDG_RUNTIME_DIR"] = other["XDG_RUNTIME_DIR"]
		if err := resolved(t, vars).CheckHome(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	full["XDG_STATE_HOME"] = shortDir(t)
	if err := resolved(t, full).CheckHome(); !errors.Is(err, ErrOtherHome) {
		t.Errorf("another XDG_STATE_HOME in the same HOME: %v", err)
	}
}

// TestEarlier_AgentWithoutRuntimeDirectory_StartsWhereTheDaemonWas checks where the next daemon of a home
// starts: where the one before was, whatever the environment says, unless that place is gone, is not its
// own any more, or is one of another boot.
func TestEarlier_AgentWithoutRuntimeDirectory_StartsWhereTheDaemonWas(t *testing.T) {
	full := homeOf(t)
	place := filepath.Join(full["XDG_RUNTIME_DIR"], dirName, socketName)
	note := filepath.Join(full["HOME"], ".local/state/holdline", placeFile)
	bare := map[string]string{"HOME": full["HOME"]}
	elsewhere := map[string]string{"HOME": full["HOME"], "XDG_RUNTIME_DIR": shortDir(t)}
	own := resolved(t, elsewhere).Start()
	for _, tt := range []struct {
		name   string
		change func() error
		want   string // in the error
	}{
		{"as it was", func() error { return nil }, ""},
		{"another boot", func() error {
			text, _ := readSealed(note)
			return os.WriteFile(note, sealed("x"+text), 0o600)
		}, ""},
		{"directory gone", func() error { return os.RemoveAll(filepath.Dir(place)) }, "is gone"},
		{"open to others", func() error { return os.Chmod(filepath.Dir(place), 0o755) }, "not yours alone"},
		{"of another home", func() error {
			return os.WriteFile(filepath.Join(filepath.Dir(place), HomeFile), sealed("/other\n"), 0o600)
		}, "another home"},
		{"note whose it is gone", func() error { return os.Remove(filepath.Join(filepath.Dir(place), HomeFile)) }, ""},
		{"that note damaged", func() error {
			return replaceIn(filepath.Join(filepath.Dir(place), HomeFile), "/h", "/x")
		}, ""},
		{"no note", func() error { return os.Remove(note) }, ""},
		{"note of another path", func() error {
			return replaceIn(note, place, filepath.Dir(place)+"."+socketName)
		}, ""},
		{"damaged note", func() error { return os.WriteFile(note, []byte(`{"boot":`), 0o600) }, ""},
	} {
		if err := os.RemoveAll(filepath.Dir(place)); err != nil {
			t.Fatal(err)
		}
		serves(t, full, place).Close()
		if err := tt.change(); err != nil {
			t.Fatal(err)
		}
		at, err := resolved(t, bare).Earlier()
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		want := own
		if tt.name == "as it was" || strings.Contains(tt.name, "that note") || strings.Contains(tt.name, "whose it is") {
			want = place
			if at != place || resolved(t, bare).Start() != place {
				t.Errorf("%s: without the variable %q, %q", tt.name, at, resolved(t, bare).Start())
			}
		}
		if got := resolved(t, elsewhere).Start(); got != want {
			t.Errorf("%s: start at %q, want %q", tt.name, got, want)
		}
	}
	explicit, err := Resolve("/named/s", env(full))
	if err != nil || explicit.Start() != "/named/s" {
		t.Errorf("a path that the user named: %q, %v", explicit.Start(), err)
	}
}

// replaceIn replaces a text in a file.
func replaceIn(path, old, text string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.ReplaceAll(string(b), old, text)), 0o600)
}

// TestLost_DaemonKilled_NextOneGetsItsVariables checks that a process without the home's variables starts
// the next daemon with them if the one before was killed, and not if it stopped.
func TestLost_DaemonKilled_NextOneGetsItsVariables(t *testing.T) {
	full := homeOf(t)
	full["XDG_STATE_HOME"], full["HOLDLINE_CONFIG"], full["HOLDLINE_TOKEN"] = shortDir(t), "/c.json", "secret"
	place := resolved(t, full).Start()
	serves(t, full, place).Close()
	bare := resolved(t, map[string]string{"HOME": full["HOME"]})
	want := []string{
		"XDG_RUNTIME_DIR=" + full["XDG_RUNTIME_DIR"], "XDG_STATE_HOME=" + full["XDG_STATE_HOME"], "HOLDLINE_CONFIG=/c.json",
	}
	if got := bare.Lost(); !slices.Equal(got, want) {
		t.Errorf("after a kill %q, want %q", got, want)
	}
	if err := resolved(t, full).RemovePointer(place); err != nil {
		t.Fatal(err)
	}
	if got := bare.Lost(); len(got) > 0 {
		t.Errorf("after a stop %q", got)
	}
}
