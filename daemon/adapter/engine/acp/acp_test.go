package acp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
)

// TestLevels checks which levels an agent is refused, and why, by the kernel's Landlock and by
// whether the web is allowed.
func TestLevels(t *testing.T) {
	for name, tt := range map[string]struct {
		abi   int
		noWeb bool
		lacks string // part of what level read lacks
	}{
		"enforced":    {3, false, ""},
		"no Landlock": {0, false, "this one has Landlock ABI 0"},
		"an old one":  {2, false, "this one has Landlock ABI 2"},
		"no web":      {7, true, "consult.web is false"},
	} {
		a := New(Options{
			Agent: engine.Agent{Name: "x"}, Command: "/bin/sh", NoWeb: tt.noWeb, Landlock: func() int { return tt.abi },
		})
		info, err := a.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		read, shell := info.Level(engine.LevelRead), info.Level(engine.LevelShell)
		if (read.Lacks == "") != (tt.lacks == "") || !strings.Contains(read.Lacks, tt.lacks) ||
			(read.EnforcedBy == engine.ByLandlock) != (tt.lacks == "") {
			t.Errorf("%s: read %+v", name, read)
		}
		if !strings.Contains(shell.Lacks, "cannot be kept from the network") {
			t.Errorf("%s: shell %+v", name, shell)
		}
	}
}

// TestToolText checks that a title which is no more than the kind is not said twice.
func TestToolText(t *testing.T) {
	for title, want := range map[string]string{"queue.go": "read queue.go", "read": "read", "Read": "read", "": "read "} {
		if got := toolText("read", title); got != want {
			t.Errorf("titled %q it is %q, want %q", title, got, want)
		}
	}
}

// TestLoginStaysInHome checks that a link which an agent has left in its home, in the place of a
// directory, leads no login out of the next home.
func TestLoginStaysInHome(t *testing.T) {
	dir := t.TempDir()
	user, outside, temp := filepath.Join(dir, "user"), filepath.Join(dir, "outside"), filepath.Join(dir, "tmp")
	old, next := filepath.Join(dir, "0123456789ab"), filepath.Join(dir, "ba9876543210")
	for _, d := range []string{user, outside, temp, filepath.Join(old, dirHome), next} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(old, dirHome, ".config")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, fileSession), []byte(`{"agent":"x","session":"s"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := engine.Agent{Name: "x", Login: []string{filepath.Join(user, ".config/x/login")}}
	a := New(Options{Agent: agent, Command: "/bin/sh", Env: []string{"HOME=" + user}})
	info := engine.Info{Agent: &agent}
	if _, err := a.Furnish(t.Context(), engine.Request{TempDir: temp, Session: filepath.Base(old)}, info, next); err == nil {
		t.Error("the home was furnished through the link")
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside of the home there is %v, %v", left, err)
	}
	if err := os.RemoveAll(temp); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Furnish(t.Context(), engine.Request{TempDir: temp}, info, next); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(temp, dirHome, ".config/x/login")); err != nil || to != agent.Login[0] {
		t.Errorf("the login leads to %q, %v", to, err)
	}
}
