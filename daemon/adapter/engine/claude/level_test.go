package claude_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/programtest"
)

// on returns a Claude whose program is the test binary, on a machine with this Landlock ABI
// and this result of the bubblewrap trial.
func on(t *testing.T, kind string, abi int, bwrap error, env ...string) *claude.Claude {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return claude.New(claude.Options{
		Bin: exe, Env: append([]string{"PATH=/usr/bin:/bin"}, env...), Timeout: time.Minute,
		Extra:    []string{claudetest.FakeEnv + "=" + kind, "GORACE=atexit_sleep_ms=0", "MY_OWN=f"},
		Landlock: func() int { return abi },
		Bubblewrap: func(_ context.Context, env []string) error {
			if !slices.Contains(env, "PATH=/usr/bin:/bin") {
				t.Errorf("bubblewrap is looked for with %v", env)
			}
			return bwrap
		},
	})
}

// TestLevels checks by what each level is enforced, depending on what the machine and the
// program offer.
func TestLevels(t *testing.T) {
	missing := errors.New("no bubblewrap")
	for _, tt := range []struct {
		name       string
		kind       string
		abi        int
		bwrap      error
		env        []string
		read       string // what enforces level read, "" if it is refused
		note       string // part of the notes of level read, or of why it is refused
		shellLacks string // why level shell is refused, "" if the sandbox holds it
		dirs       []string
	}{
		{
			name: "all", kind: "ok", abi: 7, env: []string{"HOME=/h"}, read: "landlock", note: "Landlock ABI 7",
			dirs: []string{"/h/.claude/projects/-p"},
		},
		{
			name: "first Landlock", kind: "ok", abi: 1, env: []string{"HOME=/h"}, read: "landlock", note: "truncated",
			dirs: []string{"/h/.claude/projects/-p"},
		},
		{
			name: "directory of its own", kind: "ok", abi: 7, env: []string{"HOME=/h", "CLAUDE_CONFIG_DIR=/c/"},
			read: "landlock", note: "ABI", dirs: []string{"/c/projects/-p"},
		},
		{name: "no Landlock", kind: "ok", env: []string{"HOME=/h"}, read: "tools", note: "no Landlock on this machine"},
		{
			name: "no home", kind: "ok", abi: 7, read: "tools", note: "where Claude Code keeps its login is not known",
			shellLacks: "not known",
		},
		{
			name: "relative directory", kind: "ok", abi: 7, env: []string{"HOME=/h", "CLAUDE_CONFIG_DIR=c"},
			read: "tools", note: "not known", shellLacks: "not known",
		},
		{
			name: "no bubblewrap", kind: "ok", abi: 7, bwrap: missing, env: []string{"HOME=/h"}, read: "landlock",
			shellLacks: "no bubblewrap", dirs: []string{"/h/.claude/projects/-p"},
		},
		{
			name: "old program", kind: "plain", abi: 7, env: []string{"HOME=/h"}, read: "landlock",
			note: "has no --restricted", shellLacks: "has no --restricted", dirs: []string{"/h/.claude/projects/-p"},
		},
		{name: "old program, no Landlock", kind: "plain", env: []string{"HOME=/h"}, note: "has no --restricted"},
		{name: "old program, old kernel", kind: "plain", abi: 2, env: []string{"HOME=/h"}, note: "Linux 6.2"},
		{name: "old program, no home", kind: "plain", abi: 7, note: "has no --restricted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := on(t, tt.kind, tt.abi, tt.bwrap, tt.env...)
			info, err := c.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			read, shell := info.Level("read"), info.Level("shell")
			if tt.read == "" {
				if !strings.Contains(read.Lacks, tt.note) || !strings.Contains(read.Lacks, "claude update") {
					t.Errorf("read: %+v", read)
				}
				return
			}
			if read.EnforcedBy != tt.read || read.Lacks != "" ||
				!strings.Contains(strings.Join(read.Notes, "\n"), tt.note) {
				t.Errorf("read: %+v", read)
			}
			if tt.shellLacks == "" && (shell.EnforcedBy != "sandbox" || shell.Lacks != "") ||
				!strings.Contains(shell.Lacks, tt.shellLacks) {
				t.Errorf("shell: %+v", shell)
			}
			if other := info.Level("write"); other.Lacks == "" {
				t.Errorf("a level that nobody knows: %+v", other)
			}
			cmd := c.Command(engine.Request{Level: "read", Cwd: "/p", TempDir: "/t"}, info)
			if tt.dirs == nil {
				if cmd.Writable != nil {
					t.Errorf("writable %+v", cmd.Writable)
				}
				return
			}
			if want := append(tt.dirs, "/t"); cmd.Writable == nil || !slices.Equal(cmd.Writable.Dirs, want) ||
				len(cmd.Writable.Files) != 0 {
				t.Errorf("writable %+v, want %v", cmd.Writable, want)
			}
		})
	}
}

// TestLinkedDirectory checks that a run may write to the real path of a configuration
// directory that is a symbolic link or is below one: bubblewrap cannot mount on a link.
func TestLinkedDirectory(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(names ...string) string { return filepath.Join(append([]string{root}, names...)...) }
	if err := errors.Join(
		os.MkdirAll(at("dotfiles", "claude"), 0o700), os.MkdirAll(at("home"), 0o700), os.MkdirAll(at("state"), 0o700),
		os.Symlink(at("dotfiles", "claude"), at("home", ".claude")), os.Symlink(at("state"), at("home", "state")),
	); err != nil {
		t.Fatal(err)
	}
	c := on(t, "ok", 7, nil, "HOME="+at("home"))
	info, err := c.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{at("dotfiles", "claude", "projects", "-p"), at("state", "job", "tmp")} // they do not exist yet
	for _, level := range []string{"read", "shell"} {
		cmd := c.Command(engine.Request{Level: level, Cwd: "/p", TempDir: at("home", "state", "job", "tmp")}, info)
		got := cmd.Makes
		if level == "read" {
			got = cmd.Writable.Dirs
		} else if line := strings.Join(cmd.Argv, " "); strings.Contains(line, "--bind "+at("home")) ||
			!strings.Contains(line, "--bind "+want[0]+" "+want[0]) ||
			!strings.Contains(line, at("dotfiles", "claude", "debug")) {
			t.Errorf("command line %s", line)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", level, got, want)
		}
		if !slices.Contains(cmd.Env, "TMPDIR="+at("home", "state", "job", "tmp")) {
			t.Errorf("environment %q", cmd.Env)
		}
	}
}

// TestShellCommand checks that at level shell commands run in the program's own sandbox or
// not at all, and that the run's directory stays read-only. Landlock is not used: it would
// forbid the mounts of the sandbox.
func TestShellCommand(t *testing.T) {
	c := on(t, "ok", 7, nil, "HOME=/h")
	info, err := c.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	programtest.Write(t, filepath.Join(bin, "bwrap"), "")
	c = on(t, "ok", 7, nil, "HOME=/h", "PATH="+bin, "ANTHROPIC_API_KEY=a", "AWS_SECRET_ACCESS_KEY=b", "HTTPS_PROXY=http://c:d@e")
	cmd := c.Command(engine.Request{Level: "shell", Cwd: filepath.Join("/p", `a"b`), Web: true, TempDir: "/t"}, info)
	if cmd.Level != "shell" || cmd.EnforcedBy != "sandbox" || cmd.Writable != nil {
		t.Errorf("level %q by %q, writable %+v", cmd.Level, cmd.EnforcedBy, cmd.Writable)
	}
	const transcripts = "/h/.claude/projects/-p-a-b"
	wrap := []string{
		filepath.Join(bin, "bwrap"), "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc",
		"--bind", transcripts, transcripts, "--bind", "/t", "/t", "--die-with-parent", "--", info.Path, "-p",
	}
	if !slices.Equal(cmd.Makes, []string{transcripts, "/t"}) {
		t.Errorf("makes %q", cmd.Makes)
	}
	if len(cmd.Argv) < len(wrap) || !slices.Equal(cmd.Argv[:len(wrap)], wrap) {
		t.Errorf("command line %q", cmd.Argv)
	}
	i := slices.Index(cmd.Argv, "--settings")
	if i < 0 {
		t.Fatalf("no settings in %q", cmd.Argv)
	}
	for _, want := range []string{
		`"disableAllHooks":true`, `"enabled":true`, `"failIfUnavailable":true`, `"autoAllowBashIfSandboxed":true`,
		`"allowUnsandboxedCommands":false`, `"denyWrite":["/p/a\"b",`,
	} {
		if !strings.Contains(cmd.Argv[i+1], want) {
			t.Errorf("no %s in %s", want, cmd.Argv[i+1])
		}
	}
	var settings struct {
		Sandbox struct {
			Credentials struct {
				EnvVars, Files []struct{ Name, Path, Mode string }
			}
		}
	}
	if err := json.Unmarshal([]byte(cmd.Argv[i+1]), &settings); err != nil {
		t.Fatal(err)
	}
	denied := map[string]bool{}
	for _, key := range append(settings.Sandbox.Credentials.EnvVars, settings.Sandbox.Credentials.Files...) {
		denied[key.Name+key.Path] = key.Mode == "deny"
	}
	for _, key := range []string{
		"ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "MY_OWN", "/h/.claude/.credentials.json", "/h/.claude.json",
		"/t/claude/.credentials.json", "/t/claude/.claude.json",
	} {
		if !denied[key] {
			t.Errorf("commands may have %s: %s", key, cmd.Argv[i+1])
		}
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GIT_CONFIG_COUNT"} {
		if denied[name] {
			t.Errorf("commands do not have %s", name)
		}
	}
	if line := strings.Join(cmd.Argv, " "); !strings.Contains(line, "--tools Read,Grep,Glob,Bash,WebFetch,WebSearch") ||
		!strings.Contains(line, "--allowedTools WebFetch,WebSearch --") &&
			!strings.HasSuffix(line, "--allowedTools WebFetch,WebSearch") {
		t.Errorf("tools in %s", line)
	}
}
