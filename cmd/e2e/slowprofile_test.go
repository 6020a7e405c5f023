package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
	"holdline/protocol/programtest"
)

// profile writes a profile of the place's user for a shell of this machine.
func (p *place) profile(shell, file, text string) {
	p.t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		p.t.Skipf("%s is not installed", shell)
	}
	file = filepath.Join(p.dir, "home", file)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.env = append(without(p.env, "SHELL"), "SHELL="+path)
}

// loginTimeout sets how long the login shell may take, for tests in which it hangs.
func (p *place) loginTimeout(limit string) {
	p.env = append(p.env, "HOLDLINE_TEST_LOGIN="+limit)
	p.testVariable("HOLDLINE_TEST_LOGIN=" + limit)
}

// linked makes a directory that has the tool server under another name. It is on no PATH
// but one that a test sets.
func (p *place) linked(name string) (dir string) {
	p.t.Helper()
	dir = filepath.Join(p.dir, "dir-of-"+name)
	programtest.Write(p.t, filepath.Join(dir, name), fmt.Sprintf("#!/bin/sh\nexec %s/toolserver \"$@\"\n", programs))
	return dir
}

// TestSlowProfile checks that while the user's profile still runs, the first agent gets its
// first answer and all tools of holdline, and that a hosted server waits for the variables
// that the profile exports.
func TestSlowProfile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ shell, file, wait, export string }{
		{
			"bash", ".bash_profile", "while [ ! -e %s ]; do sleep 0.02; done",
			"export TOKEN=of-the-profile PATH=%s:$PATH",
		},
		{"zsh", ".zprofile", "while [ ! -e %s ]; do sleep 0.02; done", "export TOKEN=of-the-profile PATH=%s:$PATH"},
		{
			"fish", ".config/fish/config.fish", "while not test -e %s; sleep 0.02; end",
			"set -gx TOKEN of-the-profile; set -gx PATH %s $PATH",
		},
		{"tcsh", ".login", "while (! -e %s)\nsleep 0.02\nend", "setenv TOKEN of-the-profile; setenv PATH %s:$PATH"},
	} {
		t.Run(tt.shell, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			release := filepath.Join(p.dir, "release")
			p.profile(tt.shell, tt.file,
				fmt.Sprintf(tt.wait, release)+"\n"+fmt.Sprintf(tt.export, p.linked("slowtool"))+"\n")
			entry := p.toolsEntry(hosting{"scope": "shared"})
			entry["command"], entry["env"] = "slowtool", map[string]any{"TOKEN": "${TOKEN}"}
			p.configure(map[string]any{"tools": entry})
			a := p.agent().shake()
			if got := a.ask("tools/call",
				map[string]any{"name": "health_snapshot"}).text(); !strings.HasPrefix(got, "Ready.") {
				t.Errorf("health_snapshot: %s", got)
			}
			if s := p.server("tools"); s.LastFault != nil {
				t.Errorf("before the profile has ended: %+v", s)
			}
			if err := os.WriteFile(release, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			p.untilReady("tools")
			if list := a.ask("tools/list", map[string]any{}).raw; !strings.Contains(list, "tools__") {
				t.Errorf("the tools: %s", list)
			}
		})
	}
}

// TestBadProfile checks that whatever is wrong with the user's shell, the first agent gets
// its answers, and a hosted server that needs nothing from the shell runs.
func TestBadProfile(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ shell, file, text string }{
		"hangs":               {"bash", ".bash_profile", "sleep 6789"},
		"is another program":  {"bash", ".bash_profile", "exec true"},
		"hangs as another":    {"bash", ".bash_profile", "exec sleep 6789"},
		"prints":              {"zsh", ".zprofile", "printf 'hello\\0PATH=/nonsense\\0'; echo oops >&2"},
		"fails":               {"fish", ".config/fish/config.fish", "surely-no-command; exit 7"},
		"ignores the request": {"tcsh", ".tcshrc", "exec true"},
		"nologin":             {"nologin", ".profile", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).serve("shared")
			p.loginTimeout("8s")
			p.profile(tt.shell, tt.file, tt.text+"\n")
			a := p.agent().shake()
			if got := a.ask("tools/call",
				map[string]any{"name": "health_snapshot"}).text(); !strings.HasPrefix(got, "Ready.") {
				t.Errorf("health_snapshot: %s", got)
			}
			p.untilReady("tools")
			a.leave()
		})
	}
}

// TestKeptEnvironment checks that a daemon whose shell hangs uses the PATH of the last
// time, and that no other variable was kept.
func TestKeptEnvironment(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	profile := "export TOKEN=exported-secret LANG=de_DE.UTF-8 PATH=" + p.linked("kepttool") + ":$PATH\n"
	p.profile("bash", ".bash_profile", profile)
	entry := p.toolsEntry(hosting{"scope": "shared"})
	entry["command"] = "kepttool"
	p.configure(map[string]any{"tools": entry})
	a := p.agent().shake()
	p.untilReady("tools")
	kept := filepath.Join(p.dir, "home/.local/state/holdline/environ")
	waitFor(t, "the PATH is kept", func() bool { _, err := os.Stat(kept); return err == nil })
	if b, err := os.ReadFile(kept); err != nil || strings.Contains(string(b), "secret") ||
		!strings.Contains(string(b), "LANG=de_DE.UTF-8\n") {
		t.Errorf("kept: %s, %v", b, err)
	}
	a.leave()
	p.stopForNow("--all")
	p.profile("bash", ".bash_profile", "exec true\n")
	p.agent().shake()
	p.untilReady("tools")
	p.until("the failure is known", func(control.StatusAnswer) bool {
		log, _, _ := p.run("", "logs")
		return strings.Contains(log, "the login shell does not say its environment")
	})
}

// TestConfigOfProfile checks that a configuration file that only the profile names is used
// by a daemon that an agent without that variable starts, as Codex does.
func TestConfigOfProfile(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared")
	old := filepath.Join(p.dir, "home/.config/holdline/config.json")
	mine := filepath.Join(p.dir, "home/mine.json")
	if err := os.Rename(old, mine); err != nil {
		t.Fatal(err)
	}
	p.profile("bash", ".bash_profile", "export HOLDLINE_CONFIG="+mine+"\n")
	p.agent().shake()
	p.untilReady("tools")
	if got := p.status().Daemon.Config; got != mine {
		t.Errorf("the daemon uses %s", got)
	}
}
