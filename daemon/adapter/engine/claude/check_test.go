package claude_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/sandbox"
	"holdline/protocol/fault"
	"holdline/protocol/programtest"
)

// fake returns a Claude whose program is the test binary; kind says how the program
// behaves, see [claudetest.FakeMain].
func fake(t *testing.T, kind string, more ...string) *claude.Claude {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return claude.New(claude.Options{
		Bin: exe, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()},
		Extra: append(more, claudetest.FakeEnv+"="+kind, "GORACE=atexit_sleep_ms=0"), Timeout: time.Minute,
	})
}

// TestCheck checks which versions and logins of Claude Code are accepted, and the fault
// code of each that is not.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		kind   string
		env    []string
		code   fault.Code
		reason fault.Reason
	}{
		{kind: "ok"},
		{kind: "plain"},
		{kind: "no-auth"},
		{kind: "logged-out", env: []string{"ANTHROPIC_API_KEY=k"}},
		{kind: "logged-out", code: fault.Unauthenticated, reason: fault.NotLoggedIn},
		{kind: "logged-out", env: []string{"CLAUDE_CODE_USE_BEDROCK=1"}},
		{
			kind: "logged-out", env: []string{"CLAUDE_CODE_USE_BEDROCK=0"}, code: fault.Unauthenticated,
			reason: fault.NotLoggedIn,
		},
		{kind: "old", code: fault.SpawnFailure, reason: fault.Version},
		{kind: "garbage", code: fault.SpawnFailure, reason: fault.Version},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			c := fake(t, tt.kind, tt.env...)
			info, err := c.Check(t.Context())
			if tt.code == "" {
				if err != nil || !info.LoggedIn || info.Version == "" || !filepath.IsAbs(info.Path) {
					t.Fatalf("info %+v, err %v", info, err)
				}
				if got, want := slices.Contains(info.Features, "--restricted"), tt.kind != "plain"; got != want {
					t.Errorf("restricted %t, want %t", got, want)
				}
				return
			}
			f, ok := errors.AsType[*fault.Record](err)
			if !ok || f.Fault.Code != tt.code || f.Reason() != tt.reason {
				t.Fatalf("err %s, want %s, %s", dump(err), tt.code, tt.reason)
			}
		})
	}
}

// TestWithout checks that Without returns the variables that would log the program in and
// that the daemon's environment lacks.
func TestWithout(t *testing.T) {
	c := claude.New(claude.Options{Env: []string{"CLAUDE_CONFIG_DIR=/c"}, Extra: []string{"ANTHROPIC_AUTH_TOKEN=x"}})
	got := c.Without([]string{
		"ANTHROPIC_API_KEY", "CODEX_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_USE_BEDROCK",
	})
	if want := []string{"ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestOwnLogin checks that a login in the user's settings.json, which a run does not read,
// reaches the check and the runs, and that nothing else of the settings does. A command
// that prints a key must not appear on a command line.
func TestOwnLogin(t *testing.T) {
	home := t.TempDir()
	put := func(settings string) {
		t.Helper()
		dir := filepath.Join(home, ".claude")
		if err := errors.Join(os.MkdirAll(dir, 0o700),
			os.WriteFile(filepath.Join(dir, "settings.json"), []byte(settings), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		settings string
		in       bool
		env      []string // in the environment of the run
		arg      string   // in its settings
	}{
		"none":   {settings: `{"permissions":{"allow":["Bash(*)"]}}`},
		"broken": {settings: `{"env":{"ANTHROPIC_API_KEY":"k"}`},
		"odd":    {settings: `{"env":{"ANTHROPIC_API_KEY":["k"]},"apiKeyHelper":7}`},
		"env": {
			settings: `{"env":{"ANTHROPIC_API_KEY":"key-1","HTTPS_PROXY":"http://p","PATH":"/evil","HOME":"/evil","LD_PRELOAD":"x",
				"CLAUDE_CONFIG_DIR":"/evil","NODE_OPTIONS":"x","ANTHROPIC_BASE_URL":"http://b"},"hooks":{"Stop":[]},"permissions":{"allow":["Bash(*)"]}}`,
			in: true,
			env: []string{
				"ANTHROPIC_API_KEY=key-1", "HTTPS_PROXY=http://p", "ANTHROPIC_BASE_URL=http://b", "HOME=" + home,
			},
		},
		"helper": {
			settings: `{"apiKeyHelper":"echo key-2","awsCredentialExport":" "}`, in: true,
			env: []string{"CONSULT_API_KEY_HELPER=echo key-2"},
			arg: `{"apiKeyHelper":"cd / \u0026\u0026 eval \"$CONSULT_API_KEY_HELPER\"","disableAllHooks":true}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			put(tt.settings)
			c := on(t, "logged-out", 0, nil, "HOME="+home)
			info, err := c.Check(t.Context())
			if got := err == nil && info.LoggedIn; got != tt.in {
				t.Fatalf("logged in %t, err %v, want %t", got, err, tt.in)
			}
			// A failed check returns no path.
			if info.Path == "" {
				info.Path = "/bin/claude"
			}
			for _, level := range []string{"read", "shell"} {
				cmd := c.Command(engine.Request{Level: level, Cwd: "/p", TempDir: "/t"}, info)
				for _, want := range tt.env {
					if !slices.Contains(cmd.Env, want) {
						t.Errorf("no %s in %q", want, cmd.Env)
					}
				}
				for _, kv := range cmd.Env {
					if strings.Contains(kv, "evil") || strings.HasPrefix(kv, "LD_PRELOAD=") ||
						strings.HasPrefix(kv, "NODE_OPTIONS=") {
						t.Errorf("%s passes", kv)
					}
				}
				line := strings.Join(cmd.Argv, " ")
				if strings.Contains(line, "key-") || strings.Contains(line, "hooks") ||
					strings.Contains(line, "permissions") {
					t.Errorf("command line %s", line)
				}
				if level == "read" && tt.arg != "" && !slices.Contains(cmd.Argv, tt.arg) {
					t.Errorf("no %s in %s", tt.arg, line)
				}
			}
		})
	}
}

// TestCheckTimeout checks that Check gives up on a program that never answers after its
// timeout.
func TestCheckTimeout(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := claude.New(claude.Options{
		Bin: exe, Extra: []string{claudetest.FakeEnv + "=silent"}, Timeout: 200 * time.Millisecond,
	})
	_, err = c.Check(t.Context())
	if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.SpawnFailure ||
		f.Reason() != fault.BadOutput {
		t.Errorf("err %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := c.Check(ctx); err == nil {
		t.Error("a check without a context succeeded")
	}
}

// TestCheckMissing checks that a program that is missing or cannot be executed is a spawn
// failure whose text says how to install it.
func TestCheckMissing(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "claude")
	if err := os.WriteFile(plain, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, opt := range map[string]claude.Options{
		"not on PATH":    {Env: []string{"PATH=" + t.TempDir() + ":relative:"}},
		"no PATH":        {},
		"absent":         {Bin: filepath.Join(dir, "absent")},
		"not executable": {Bin: plain},
		"so on PATH":     {Env: []string{"PATH=" + dir}},
		"a directory":    {Bin: dir},
	} {
		_, err := claude.New(opt).Check(t.Context())
		f, ok := errors.AsType[*fault.Record](err)
		if !ok || f.Fault.Code != fault.SpawnFailure || f.Reason() != fault.NotInstalled {
			t.Errorf("%s: %s", name, dump(err))
			continue
		}
		if !strings.Contains(f.Fault.Detail, "npm install") {
			t.Errorf("%s: %q does not say how to install it", name, f.Fault.Detail)
		}
	}
	// The file is executable, but the kernel cannot run it.
	bad := filepath.Join(dir, "bad")
	programtest.Write(t, bad, "\x7fELFbroken")
	_, err := claude.New(claude.Options{Bin: bad}).Check(t.Context())
	if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.SpawnFailure || f.Cause.Errno == nil {
		t.Errorf("broken program: %s", dump(err))
	}
}

// TestCheckCached checks that the program is asked once for all callers, and again after
// its file has changed.
func TestCheckCached(t *testing.T) {
	dir := t.TempDir()
	count := filepath.Join(dir, "count")
	script := filepath.Join(dir, "claude")
	write := func(version string) {
		t.Helper()
		body := "#!/bin/sh\necho \"$1\" >>" + count + "\ncase $1 in --version) echo '" + version +
			" (Claude Code)';; " +
			"--help) echo '--input-format --output-format --strict-mcp-config --tools <x> --permission-mode --settings --setting-sources';; " +
			"esac\ncase \"$*\" in *'auth status') echo '{\"loggedIn\":true,\"authMethod\":\"claude.ai\"}';; esac\n"
		programtest.Write(t, script, body)
	}
	write("2.1.300")
	c := claude.New(claude.Options{Env: []string{"PATH=" + dir + ":" + os.Getenv("PATH")}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if info, err := c.Check(t.Context()); err != nil || info.Version != "2.1.300" ||
				info.Account != "claude.ai" {
				t.Errorf("info %+v, err %v", info, err)
			}
		})
	}
	wg.Wait()
	data, err := os.ReadFile(count)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "--version"); n != 1 {
		t.Errorf("asked %d times:\n%s", n, data)
	}
	write("2.1.3010")
	if info, err := c.Check(t.Context()); err != nil || info.Version != "2.1.3010" {
		t.Errorf("info %+v, err %v", info, err)
	}
}

// TestCommand checks the command line and the environment of a run, for a new version and
// for one that lacks the newer options.
func TestCommand(t *testing.T) {
	c := claude.New(claude.Options{Env: []string{"PATH=/bin", "HOME=/home/u", "CLAUDECODE=1"}})
	info := engine.Info{
		Path: "/bin/claude", Version: "2.1.329", Features: []string{"--restricted", "--effort", "--no-chrome"},
		Levels: []engine.Level{{Name: "read", EnforcedBy: "tools"}},
	}
	cmd := c.Command(engine.Request{
		Prompt: "secret", Level: "read", Model: "opus", Effort: "high", MaxTurns: 3, Session: "id", Web: true,
		TempDir: "/tmp/x", MaxUSD: 0.25, Schema: json.RawMessage(`{"type":"object"}`),
		AddDirs: []string{"/srv/a", "/srv/b"},
	}, info)
	line := strings.Join(cmd.Argv, " ")
	for _, want := range []string{
		"/bin/claude -p ", " --restricted ", "--tools Read,Grep,Glob,WebFetch,WebSearch",
		"--allowedTools WebFetch,WebSearch", "--permission-mode dontAsk", `{"disableAllHooks":true}`, "--model opus",
		"--effort high", "--max-turns 3", "--resume id --fork-session", "--strict-mcp-config", "--no-chrome",
		"--max-budget-usd 0.25", `--json-schema {"type":"object"}`, "--add-dir=/srv/a --add-dir=/srv/b",
	} {
		if !strings.Contains(line+" ", want) {
			t.Errorf("no %q in %s", want, line)
		}
	}
	for _, not := range []string{"secret", "Bash", "Write", "Edit"} {
		if strings.Contains(line, not) {
			t.Errorf("%q in %s", not, line)
		}
	}
	if !slices.Contains(cmd.Env, "CLAUDE_CODE_TMPDIR=/tmp/x") || !slices.Contains(cmd.Env, "HOME=/home/u") {
		t.Errorf("environment %v", cmd.Env)
	}
	if cmd.Level != "read" || cmd.EnforcedBy != "tools" || len(cmd.Notes) != 0 {
		t.Errorf("level %q by %q, notes %v", cmd.Level, cmd.EnforcedBy, cmd.Notes)
	}

	cmd = c.Command(engine.Request{Level: "read", Effort: "high"}, engine.Info{Path: "/bin/claude", Version: "2.1.197"})
	line = strings.Join(cmd.Argv, " ")
	if i := slices.Index(cmd.Argv, "--setting-sources"); i < 0 || cmd.Argv[i+1] != "" {
		t.Errorf("an old version reads settings: %s", line)
	}
	if strings.Contains(line, "--restricted") || strings.Contains(line, "--effort") || strings.Contains(line, "Web") ||
		len(cmd.Notes) != 1 {
		t.Errorf("%s, notes %q", line, cmd.Notes)
	}
}

// TestEnvironment checks which variables of the user's environment a run gets.
func TestEnvironment(t *testing.T) {
	base := []string{
		"HOME=/h", "PATH=/p", "LC_ALL=C", "XDG_RUNTIME_DIR=/r", "ANTHROPIC_API_KEY=k", "CLAUDE_CONFIG_DIR=/c",
		"AWS_REGION=x", "CLAUDE_CODE_USE_BEDROCK=1", "CLAUDE_CODE_SKIP_BEDROCK_AUTH=1", "https_proxy=p",
		"NODE_EXTRA_CA_CERTS=ca", "DISABLE_TELEMETRY=1",
		// The rest must not be passed on.
		"CLAUDECODE=1", "AI_AGENT=1", "CLAUDE_CODE_SESSION_ID=1", "CLAUDE_CODE_ENTRYPOINT=1",
		"CLAUDE_CODE_MESSAGING_TOKEN=1", "CLAUDE_CODE_CHILD_NOTES_DIR=1", "CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS=1",
		"LD_PRELOAD=1", "DYLD_INSERT_LIBRARIES=1", "GITHUB_TOKEN=1", "HOLDLINE_TOKEN=1", "SSH_AUTH_SOCK=1",
		"NODE_OPTIONS=1", "CLAUDE_CODE_SIMPLE=1", "broken", "=x",
	}
	got := claude.Environment(base, []string{"GIT_OPTIONAL_LOCKS=1", "MINE=1", "CLAUDECODE=1", "HOLDLINE_TOKEN=1"},
		[]string{"HOME=/set"})
	for _, want := range []string{
		"HOME=/set", "PATH=/p", "LC_ALL=C", "XDG_RUNTIME_DIR=/r", "ANTHROPIC_API_KEY=k", "CLAUDE_CONFIG_DIR=/c",
		"AWS_REGION=x", "CLAUDE_CODE_USE_BEDROCK=1", "CLAUDE_CODE_SKIP_BEDROCK_AUTH=1", "https_proxy=p",
		"NODE_EXTRA_CA_CERTS=ca", "DISABLE_TELEMETRY=1", "MINE=1", "GIT_OPTIONAL_LOCKS=1",
		"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1", "DISABLE_AUTOUPDATER=1",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, kv := range got {
		for _, bad := range base[12:] {
			name, _, _ := strings.Cut(bad, "=")
			if strings.HasPrefix(kv, name+"=") {
				t.Errorf("%s passes", kv)
			}
		}
	}
	if !slices.IsSorted(got) {
		t.Error("not sorted")
	}
}

// TestInterruptedTrialIsAskedAgain checks that a trial of the sandbox that did not end in
// time refuses level shell only to the check that waited for it. The next check runs the
// trial again.
func TestInterruptedTrialIsAskedAgain(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	trials := []error{sandbox.ErrInterrupted, nil, errors.New("asked once too often")}
	c := claude.New(claude.Options{
		Bin: exe, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, Timeout: time.Minute,
		Extra: []string{claudetest.FakeEnv + "=ok", "GORACE=atexit_sleep_ms=0"},
		Bubblewrap: func(context.Context, []string) error {
			err := trials[0]
			trials = trials[1:]
			return err
		},
	})
	for i, want := range []string{sandbox.ErrInterrupted.Error(), "", ""} {
		info, err := c.Check(t.Context())
		if err != nil || info.Level(engine.LevelShell).Lacks != want {
			t.Errorf("check %d: %+v, %v, want level shell to lack %q", i, info.Level(engine.LevelShell), err, want)
		}
	}
}
