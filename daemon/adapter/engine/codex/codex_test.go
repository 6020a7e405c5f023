package codex_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/codex"
	"holdline/daemon/sandbox"
	"holdline/protocol/fault"
	"holdline/protocol/programtest"
)

// installed writes a program that answers the questions of a check as Codex does, and
// returns its path.
func installed(t *testing.T, version, options, login string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "codex")
	script := "#!/bin/sh\ncase \"$*\" in\n" +
		"--version) echo '" + version + "';;\n" +
		"'exec --help') echo '" + options + "';;\n" +
		"*'login status') echo \"$*\" >>" + path + ".asked; exit " + login + ";;\n" +
		"*) exit 9;;\nesac\n"
	programtest.Write(t, path, script)
	return path
}

const (
	now = "codex-cli 0.169.0"
	all = "--json --sandbox <MODE> --skip-git-repo-check --ignore-user-config --ignore-rules --output-schema <FILE>"
)

// TestCheck checks which versions and logins of Codex are accepted, and the fault of each
// that is not.
func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		version, options, login string
		opt                     codex.Options
		code                    fault.Code
		reason                  fault.Reason
		account                 string
	}{
		"good":       {now, all, "0", codex.Options{}, "", "", "by codex login"},
		"logged out": {now, all, "1", codex.Options{}, fault.Unauthenticated, fault.NotLoggedIn, ""},
		"by a key": {
			now, all, "1", codex.Options{Extra: []string{"CODEX_API_KEY=k"}}, "", "", "by the environment",
		},
		"by a provider": {
			now,
			all,
			"1",
			codex.Options{Config: []string{`model_provider="x"`}},
			"",
			"",
			"by the provider of consult.codex_config",
		},
		"other settings": {
			now, all, "1", codex.Options{Config: []string{`model="x"`}}, fault.Unauthenticated, fault.NotLoggedIn, "",
		},
		"old":            {"codex-cli 0.42.0", all, "0", codex.Options{}, fault.SpawnFailure, fault.Version, ""},
		"garbage":        {"what?", all, "0", codex.Options{}, fault.SpawnFailure, fault.Version, ""},
		"without a lock": {now, "--json --sandbox", "0", codex.Options{}, fault.SpawnFailure, fault.Version, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tt.opt.Bin, tt.opt.Timeout = installed(t, tt.version, tt.options, tt.login), time.Minute
			tt.opt.Env = []string{"PATH=" + os.Getenv("PATH")}
			info, err := codex.New(tt.opt).Check(t.Context())
			f, _ := errors.AsType[*fault.Record](err)
			switch {
			case tt.code == "" &&
				(err != nil || !info.LoggedIn || info.Version != "0.169.0" || info.Account != tt.account):
				t.Errorf("%+v, %v", info, err)
			case tt.code != "" && (f == nil || f.Fault.Code != tt.code || f.Reason() != tt.reason):
				t.Errorf("%v, want %s %s", err, tt.code, tt.reason)
			}
		})
	}
}

// TestCheck_ChangesNothingInItsDirectory checks that the questions of a check leave the program's own directory as it
// is, although the program makes files there whenever it is started, and that the login there is found all the same.
func TestCheck_ChangesNothingInItsDirectory(t *testing.T) {
	home := t.TempDir()
	login := filepath.Join(home, ".codex", "auth.json")
	if err := os.Mkdir(filepath.Dir(login), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "codex")
	programtest.Write(t, path, "#!/bin/sh\ndir=${CODEX_HOME:-$HOME/.codex}\n: >\"$dir/made\"\ncase \"$*\" in\n"+
		"--version) echo '"+now+"';;\n'exec --help') echo '"+all+"';;\n*'login status') [ -s \"$dir/auth.json\" ];;\nesac\n")
	opt := codex.Options{
		Bin: path, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}, Timeout: time.Minute,
		Wall: func(context.Context, string, []string) (string, error) { return "", nil },
	}
	if _, err := codex.New(opt).Check(t.Context()); err == nil {
		t.Error("a login is found where none is")
	}
	if err := os.WriteFile(login, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if info, err := codex.New(opt).Check(t.Context()); err != nil || info.Account != "by codex login" {
		t.Errorf("%+v, %v", info, err)
	}
	if made, err := filepath.Glob(filepath.Join(home, ".codex", "*")); err != nil || len(made) != 1 {
		t.Errorf("its directory has %q, %v", made, err)
	}
}

// TestLoginOfRuns checks that the login check passes the settings that a run has, so that
// the user's configuration file, which no run reads, can neither add nor hide a login.
func TestLoginOfRuns(t *testing.T) {
	path := installed(t, now, all, "0")
	opt := codex.Options{
		Bin: path, Env: []string{"PATH=" + os.Getenv("PATH")}, Config: []string{`cli_auth_credentials_store="keyring"`},
		Timeout: time.Minute,
	}
	if _, err := codex.New(opt).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked, err := os.ReadFile(path + ".asked")
	want := `-c cli_auth_credentials_store="file" -c model_provider="openai" -c cli_auth_credentials_store="keyring" login status`
	if got := strings.TrimSpace(string(asked)); err != nil || got != want {
		t.Errorf("asked %q, %v", got, err)
	}
}

// TestCheckAgain checks that a good result is cached, that a program installed later is
// found, and that a changed program is checked again.
func TestCheckAgain(t *testing.T) {
	dir := t.TempDir()
	c := codex.New(codex.Options{
		Env: []string{"PATH=" + dir + ":" + os.Getenv("PATH")}, Bin: "codex-of-this-test", Timeout: time.Minute,
	})
	_, err := c.Check(t.Context())
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Fault.Code != fault.SpawnFailure || f.Reason() != fault.NotInstalled ||
		!strings.Contains(f.Fault.Detail, "npm install") {
		t.Fatalf("missing: %v", err)
	}
	path := installed(t, now, all, "0")
	if err := os.Symlink(path, filepath.Join(dir, "codex-of-this-test")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := c.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if asked, err := os.ReadFile(path + ".asked"); err != nil || strings.Count(string(asked), "login status\n") != 1 {
		t.Errorf("asked %q, %v", asked, err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked, err := os.ReadFile(path + ".asked"); err != nil || strings.Count(string(asked), "login status\n") != 2 {
		t.Errorf("asked %q, %v", asked, err)
	}
}

// TestCommand checks the command line and the environment of a run.
func TestCommand(t *testing.T) {
	c := codex.New(codex.Options{
		Env: []string{
			"PATH=/bin", "HOME=/h", "SECRET=1", "OPENAI_BASE_URL=u", "CODEX_HOME=/c", "CODEX_SANDBOX=seatbelt",
			"HOLDLINE_TOKEN=t",
		},
		Config: []string{`sandbox_mode="danger-full-access"`},
	})
	cmd := c.Command(engine.Request{
		Prompt: "the secret question", Model: "m", Effort: "max", Session: "S", SchemaFile: "/t/schema.json",
		TempDir: "/t", AddDirs: []string{"/srv"},
		Level: "read",
	}, engine.Info{Path: "/bin/codex", Settings: []string{`sandbox_mode="danger-full-access"`}})
	line := strings.Join(cmd.Argv, " ")
	for _, want := range []string{
		"--sandbox read-only", "--ignore-user-config", "--ignore-rules", "--skip-git-repo-check", "--json", "--model m",
		`-c model_reasoning_effort="xhigh"`, "--output-schema /t/schema.json", `-c web_search="disabled"`, "fork S -",
		`-c approval_policy="never"`,
	} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %s", want, line)
		}
	}
	if strings.Contains(line, "secret question") || strings.Contains(line, "/srv") {
		t.Errorf("the prompt, or a directory that would be writable, in %s", line)
	}
	// Codex takes the last of several -c options, so ours must stand behind the user's.
	if user, ours := strings.Index(line, "danger-full-access"),
		strings.Index(line, `sandbox_mode="read-only"`); user < 0 || ours < user {
		t.Errorf("the sandbox is the user's in %s", line)
	}
	want := []string{"CODEX_HOME=/c", "HOME=/h", "OPENAI_BASE_URL=u", "PATH=/bin", "TMPDIR=/t"}
	got := slices.DeleteFunc(slices.Clone(cmd.Env), func(kv string) bool { return strings.HasPrefix(kv, "GIT_") })
	if !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
	if cmd.Level != "read" || cmd.EnforcedBy != "sandbox" {
		t.Errorf("level %s by %s", cmd.Level, cmd.EnforcedBy)
	}
}

// TestFits checks which requests are refused because Codex cannot keep to them.
func TestFits(t *testing.T) {
	c := codex.New(codex.Options{})
	for name, tt := range map[string]struct {
		req engine.Request
		ok  bool
	}{
		"plain":            {engine.Request{Prompt: "x"}, true},
		"longest":          {engine.Request{Prompt: strings.Repeat("ü", codex.MaxPrompt)}, true},
		"too long":         {engine.Request{Prompt: strings.Repeat("x", codex.MaxPrompt+1)}, false},
		"turns":            {engine.Request{Prompt: "x", MaxTurns: 1}, false},
		"money":            {engine.Request{Prompt: "x", MaxUSD: 1}, false},
		"schema and model": {engine.Request{Prompt: "x", Schema: json.RawMessage(`{}`), Model: "m"}, true},
	} {
		err := c.Fits(tt.req)
		f, _ := errors.AsType[*fault.Record](err)
		if tt.ok && err != nil || !tt.ok && (f == nil || f.Fault.Code != fault.InvalidInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPrompt checks that a prompt is sent as it is, but for bytes that are no text, and
// that a run takes nothing else on its stdin.
func TestPrompt(t *testing.T) {
	run := codex.New(codex.Options{}).NewRun(engine.Request{Prompt: "/help -v @x\n\x00\xff"}, engine.Info{})
	if got := string(run.Begin()); got != "/help -v @x\n\uFFFD\uFFFD" {
		t.Errorf("prompt %q", got)
	}
	if !run.Once() || run.Interrupt() != nil || run.BestAnswer() != nil {
		t.Error("it reads on behind its prompt")
	}
}

// TestOutcomes checks the outcome of streams recorded from the real program.
func TestOutcomes(t *testing.T) {
	exited := func(code int) engine.Exit { return engine.Exit{Known: true, Code: code} }
	killed := engine.Exit{Known: true, Signal: "SIGTERM"}
	schema := engine.Request{Schema: json.RawMessage(`{"type":"object"}`)}
	for _, tt := range []struct {
		name   string
		file   string
		lines  int // lines of the file to read; 0 is all
		req    engine.Request
		exit   engine.Exit
		why    engine.Why
		code   fault.Code
		reason fault.Reason
		answer string
	}{
		{name: "success", file: "success.jsonl", answer: "FAKE-OK model=gpt-5.1-codex n=4"},
		{name: "tools", file: "tools.jsonl", answer: "All is well."},
		{name: "schema", file: "schema.jsonl", req: schema, answer: `{"v":"ok"}`},
		{name: "failed", file: "rejected.jsonl", exit: exited(1), code: fault.DownstreamFailure},
		{name: "overloaded", file: "overloaded.jsonl", exit: exited(1), code: fault.DownstreamFailure},
		{
			name: "cancelled", file: "tools.jsonl", lines: 5, exit: killed, why: engine.Cancelled,
			code: fault.Cancelled, answer: "Let me look.",
		},
		{
			name: "late", file: "tools.jsonl", lines: 5, exit: killed, why: engine.Deadline, code: fault.Timeout,
			reason: fault.Deadline, answer: "Let me look.",
		},
		{
			name: "stalled", file: "tools.jsonl", lines: 5, exit: killed, why: engine.Stalled, code: fault.Timeout,
			reason: fault.Deadline, answer: "Let me look.",
		},
		{name: "killed", file: "tools.jsonl", lines: 2, exit: killed, code: fault.ProcessFailure, reason: fault.Killed},
		{name: "lost", file: "tools.jsonl", lines: 2, code: fault.OutcomeUnknown, reason: fault.Killed},
		{
			name: "silent", file: "tools.jsonl", lines: 2, exit: exited(1), code: fault.DownstreamFailure,
			reason: fault.BadOutput,
		},
		{
			name: "no session", file: "tools.jsonl", lines: -1, req: engine.Request{Session: "S"}, exit: exited(1),
			code: fault.InvalidInput,
		},
		{
			name: "not there", file: "tools.jsonl", lines: -1, exit: engine.Exit{Known: true, SpawnErrno: "ENOENT"},
			code: fault.SpawnFailure, reason: fault.NotInstalled,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", tt.file))
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
			switch {
			case tt.lines < 0:
				lines = nil
			case tt.lines > 0:
				lines = lines[:tt.lines]
			}
			if tt.code == "" {
				tt.exit = exited(0)
			}
			c := codex.New(codex.Options{})
			run := c.NewRun(tt.req, engine.Info{})
			for _, line := range lines {
				run.Line(line)
			}
			out := run.Outcome(tt.exit, tt.why)
			if tt.code == "" {
				if out.Fault != nil || out.Answer != tt.answer || out.Partial || out.CostUSD != nil ||
					out.Session == "" {
					t.Fatalf("%+v %v", out, out.Fault)
				}
				if got := len(out.Structured) > 0; got != (tt.req.Schema != nil) {
					t.Errorf("structured %q", out.Structured)
				}
				return
			}
			if out.Fault == nil || out.Fault.Fault.Code != tt.code || out.Fault.Reason() != tt.reason ||
				out.Answer != tt.answer {
				t.Fatalf("%+v %v %q", out.Fault, out.Fault.Reason(), out.Answer)
			}
		})
	}
}

// TestUnreachable checks that a run whose retries take long is reported as stuck and ends
// as unreachable, and that one whose retries fail fast is left to the program, which says
// more.
func TestUnreachable(t *testing.T) {
	data, err := os.ReadFile("testdata/unreachable.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		pause time.Duration // before each retry
		stuck int           // at which retry the run is stuck; 0 for never
	}{
		"no connection":   {12 * time.Second, 5},
		"failing answers": {5 * time.Second, 0},
		"at once":         {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := codex.New(codex.Options{}).NewRun(engine.Request{}, engine.Info{})
				n, stuck := 0, 0
				for line := range bytes.Lines(data) {
					if bytes.Contains(line, []byte("Reconnecting")) {
						time.Sleep(tt.pause)
						n++
					}
					for _, e := range run.Line(line) {
						if e.Kind == engine.Stuck && stuck == 0 {
							stuck = n
						}
					}
					if n == 5 {
						break
					}
				}
				if stuck != tt.stuck {
					t.Errorf("stuck at retry %d, want %d", stuck, tt.stuck)
				}
				out := run.Outcome(engine.Exit{Known: true, Signal: "SIGTERM"}, engine.Itself)
				if got := out.Fault.Reason() == fault.Unreachable; got != (tt.stuck > 0) {
					t.Errorf("%s %s", out.Fault, out.Fault.Reason())
				}
			})
		})
	}
}

// TestEvents checks which texts the recorded tool uses yield.
func TestEvents(t *testing.T) {
	data, err := os.ReadFile("testdata/tools.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	run := codex.New(codex.Options{}).NewRun(engine.Request{Model: "m"}, engine.Info{})
	var told []string
	var stuck bool
	for line := range bytes.Lines(data) {
		for _, e := range run.Line(line) {
			if e.Text != "" {
				told = append(told, e.Text)
			}
			stuck = stuck || e.Kind == engine.Stuck
		}
	}
	want := []string{
		"Let me look.", "shell /bin/sh -c 'cat main.go'", "Reconnecting... 1/5 (stream disconnected)",
		"web search go maps", "All is well.",
	}
	if !slices.Equal(told, want) || stuck {
		t.Errorf("told %q, stuck %t", told, stuck)
	}
	out := run.Outcome(engine.Exit{Known: true}, engine.Itself)
	if out.Usage != (engine.Usage{Input: 200, Output: 40, CacheRead: 100, CacheWrite: 7}) || len(out.Denials) != 1 ||
		!slices.Equal(out.Models, []string{"m"}) {
		t.Errorf("%+v", out)
	}

	run = codex.New(codex.Options{}).NewRun(engine.Request{}, engine.Info{})
	for _, noise := range []string{"Segmentation fault", "[1]", `{"type":`} {
		if e := run.Line([]byte(noise)); len(e) != 1 || e[0].Kind != engine.Noise {
			t.Errorf("%q: %+v", noise, e)
		}
	}
	engine.EndOutput(run, []byte(`{"type":"turn.comp`))
	if out := run.Outcome(engine.Exit{Known: true}, engine.Itself); out.Fault == nil {
		t.Errorf("%+v", out)
	}
}

// TestShellOfTheModel_HasNoKeys checks that the variables of the configuration stand in the model's
// shell without their values, and that those which bind git pass.
func TestShellOfTheModel_HasNoKeys(t *testing.T) {
	t.Parallel()
	c := codex.New(codex.Options{
		Env: []string{"PATH=/bin"}, Extra: []string{"MY_KEY=secret"}, Emptied: []string{"MY_KEY", "OTHER_KEY", "PATH"},
		Config: []string{`shell_environment_policy={inherit="all"}`},
	})
	info := engine.Info{
		Path: "/codex", Settings: []string{`shell_environment_policy={inherit="all"}`},
		Emptied: []string{"MY_KEY", "OTHER_KEY", "PATH"},
	}
	argv := c.Command(engine.Request{}, info).Argv
	last := ""
	for _, arg := range argv {
		if strings.HasPrefix(arg, "shell_environment_policy=") {
			last = arg
		}
	}
	for _, part := range []string{
		`"MY_KEY"=""`, `"OTHER_KEY"=""`, `"GIT_CONFIG_*"`, `"PATH"`, `"MY_KEY"`, "ignore_default_excludes=true",
	} {
		if !strings.Contains(last, part) {
			t.Errorf("%s is not in %s", part, last)
		}
	}
	if strings.Contains(last, `"PATH"=`) || strings.Contains(strings.Join(argv, " "), "secret") {
		t.Errorf("the command line is %q", argv)
	}
}

// TestWallAroundCodex_OnlySessionsAndLoginAreItsOwn checks what a run may write of the program's own
// directory.
func TestWallAroundCodex_OnlySessionsAndLoginAreItsOwn(t *testing.T) {
	t.Parallel()
	home, sockets := "/nonexistent/home", "/tmp/codex-daemon-"+strconv.Itoa(os.Geteuid())
	for name, tt := range map[string]struct{ wall, argv string }{ // the beginning of the command line
		"bubblewrap": {
			"/bwrap", "/bwrap --ro-bind / / --dev-bind /dev /dev --bind /proc /proc --bind /t /t " +
				"--bind /t/codex /nonexistent/home/.codex " +
				"--bind /nonexistent/home/.codex/sessions /nonexistent/home/.codex/sessions " +
				"--bind /t/sockets " + sockets + " --die-with-parent -- /codex",
		},
		"nothing is to be had": {"", "/codex exec"},
	} {
		c := codex.New(codex.Options{Env: []string{"HOME=" + home}})
		cmd := c.Command(engine.Request{TempDir: "/t"}, engine.Info{Path: "/codex", Wall: tt.wall})
		if argv := strings.Join(cmd.Argv, " "); !strings.HasPrefix(argv, tt.argv) || len(cmd.Notes) != 2 {
			t.Errorf("%s: %q, notes %q", name, argv, cmd.Notes)
		}
		if made := slices.Contains(cmd.Makes, sockets); made != (tt.wall != "") {
			t.Errorf("%s: makes %q", name, cmd.Makes)
		}
	}
}

// TestTrialOfBubblewrapIsInterrupted_ConsultIsRefused checks that no run is without its wall since a
// busy machine did not answer in time.
func TestTrialOfBubblewrapIsInterrupted_ConsultIsRefused(t *testing.T) {
	t.Parallel()
	trial := sandbox.ErrInterrupted
	bin := installed(t, "codex-cli 0.171.0", all, "0")
	c := codex.New(codex.Options{
		Bin: bin, Env: []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}, Extra: []string{"CODEX_API_KEY=x"},
		Wall: func(context.Context, string, []string) (string, error) { return "", trial },
	})
	for _, refused := range []bool{true, false} {
		info, err := c.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{engine.LevelRead, engine.LevelShell} {
			if level := info.Level(name); (level.Lacks != "") != refused || (level.EnforcedBy == "") != refused {
				t.Errorf("%s, the trial says %v: %+v", name, trial, level)
			}
		}
		trial = nil // it is asked again at once
	}
}

// TestLoginIsRenewedInTheWall_NoOtherLoginIsTaken checks what a run may change of the user's login.
func TestLoginIsRenewedInTheWall_NoOtherLoginIsTaken(t *testing.T) {
	t.Parallel()
	c := codex.New(codex.Options{Env: []string{"HOME=/nonexistent/home"}})
	login := c.Command(engine.Request{TempDir: "/t"}, engine.Info{Path: "/codex", Wall: "/bwrap"}).Login
	if login == nil || login.Own != "/nonexistent/home/.codex/auth.json" || login.Copy != "/t/codex/auth.json" {
		t.Fatalf("login %+v", login)
	}
	const own = `{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"account_id":"me","access_token":"a","refresh_token":"r"}}`
	for changed, taken := range map[string]bool{
		strings.ReplaceAll(own, `"r"`, `"new"`):                true,
		strings.ReplaceAll(own, `"me"`, `"somebody else"`):     false,
		strings.ReplaceAll(own, `null`, `"sk-of-another"`):     false,
		strings.ReplaceAll(own, `"chatgpt"`, `"apikey"`):       false,
		strings.ReplaceAll(own, `"a"`, `""`):                   false,
		`{"OPENAI_API_KEY":"sk-of-another"}`:                   false,
		`{"auth_mode":"chatgpt","tokens":{"account_id":"me","`: false,
		"": false,
	} {
		if got := login.Take([]byte(own), []byte(changed)); (got != nil) != taken || taken && string(got) != changed {
			t.Errorf("of %s is taken %s", changed, got)
		}
	}
}
