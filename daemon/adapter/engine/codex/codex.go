// Package codex knows Codex as a consult program: where it is found and
// whether it can be used ([Codex.Check]), its command line and environment for
// a run inside its own read-only sandbox ([Codex.Command]), and its stream of
// JSON lines ([Run]).
//
// It starts the program only for the short questions of a check, which it
// waits for; the runs themselves are started by others. It reads no file and
// no environment of its own: both are given to it.
//
// Codex says what went wrong in words alone. Words are shown and never
// searched: what a run's ending means is decided by the kinds of its lines and
// by how the process ended.
package codex

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/daemon/program"
	"holdline/protocol/fault"
)

// operation is what faults of this package are filed under.
const operation = "tools/call:consult"

// Defaults of [Options].
const (
	defaultTimeout = 10 * time.Second
	defaultTTL     = 10 * time.Minute
)

// MaxPrompt is the most characters of a prompt that Codex takes.
const MaxPrompt = 1 << 20

// Options say which program is used and what it is given.
type Options struct {
	// Bin is a path or a name on the PATH of Env; "" means "codex".
	Bin string
	// Env is the environment that the daemon itself was given, of which the
	// program gets what it needs.
	Env []string
	// Extra is what the configuration adds; it passes unfiltered but for what
	// no program may inherit.
	Extra []string
	// Config are settings in the form of Codex's option -c, such as
	// model_provider="azure". Its own configuration file is not read, since
	// that may name programs to run.
	Config []string
	// Timeout bounds a check; 0 means 10 s.
	Timeout time.Duration
	// TTL is how long a check that succeeded holds; 0 means 10 min.
	TTL time.Duration
}

// Codex is Codex as installed on this machine. It is safe for concurrent use.
type Codex struct {
	opt     Options
	env     []string // of every run and check
	program program.Program
	looks   *program.Looks[engine.Info]
}

// New makes a Codex. It looks at nothing yet.
func New(opt Options) *Codex {
	if opt.Bin == "" {
		opt.Bin = "codex"
	}
	if opt.Timeout <= 0 {
		opt.Timeout = defaultTimeout
	}
	if opt.TTL <= 0 {
		opt.TTL = defaultTTL
	}
	c := &Codex{opt: opt, looks: program.NewLooks[engine.Info]()}
	c.env = c.environment()
	c.program = program.Program{
		Name: "Codex", Bin: opt.Bin, Env: c.env, Operation: operation, Timeout: opt.Timeout,
		Cure: "install Codex (npm install -g @openai/codex), " +
			"or name its program in HOLDLINE_CODEX_BIN or in consult.codex_bin of the configuration",
	}
	return c
}

// passed are the names that go from the daemon's environment to the program
// besides those of any session. Those by which Codex tells its own children
// that they are in a sandbox are not among them.
var passed = []string{"CODEX_HOME", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "CODEX_CA_CERTIFICATE"}

// passedPrefixes are the beginnings of names that go, too.
var passedPrefixes = []string{"OPENAI_", "AZURE_OPENAI_"}

// Environ returns the environment of every run, and the names of the variables
// that the configuration sets.
func (c *Codex) Environ() (environ, configured []string) { return c.env, engine.Names(c.opt.Extra) }

// environment is that of every run, with set over it.
func (c *Codex) environment(set ...string) []string {
	pass := func(name string) bool {
		return slices.Contains(passed, name) || command.HasAnyPrefix(name, passedPrefixes)
	}
	return program.Environment(c.opt.Env, pass, set, c.opt.Extra)
}

// Without are those of the variables by which a program may log in that are for
// this one and that it is not given.
func (c *Codex) Without(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !slices.Contains(passed, name) || command.Variable(c.env, name) != ""
	})
}

// Options of the program.
const (
	optSandbox = "--sandbox"
	optSchema  = "--output-schema"
)

// needs are what no run is safe without, looked up in the program's own help.
var needs = program.Needs{
	Least: program.Version{0, 100, 0}, Help: []string{"exec", "--help"}, Update: "npm install -g @openai/codex",
	Options: []string{
		"--json", optSandbox, "--skip-git-repo-check", "--ignore-user-config", "--ignore-rules",
		optSchema,
	},
}

// Check finds out whether the program can be used: found, of a version that can
// be driven, and logged in. What it found holds for a while, unless the file
// changes. A failure is not remembered. The error is a [*fault.Record], or the
// cause of ctx.
func (c *Codex) Check(ctx context.Context) (engine.Info, error) {
	return c.looks.Look(ctx, &c.program, c.opt.TTL, c.look)
}

// look asks the program itself.
func (c *Codex) look(ctx context.Context, path string) (engine.Info, error) {
	info := engine.Info{Path: path, Levels: levels(), Settings: c.opt.Config}
	version, _, err := c.program.Ask(ctx, path, needs)
	if err != nil {
		return info, err
	}
	info.Version = version.String()
	var login program.Reply
	var loginErr error
	if info.Account = c.account(); info.Account == "" {
		login, loginErr = c.program.Probe(ctx, path, c.loginStatus()...)
	}
	switch {
	case loginErr != nil:
		return info, loginErr
	case login.ExitCode != 0:
		return info, fault.New(fault.Unauthenticated, fault.Engine, operation,
			"Codex is not logged in for the daemon: run codex login once, or give the daemon CODEX_API_KEY "+
				"(consult.env or consult.env_file of the configuration); of its own configuration file a consult "+
				"reads nothing: for a login in the keyring "+
				"add cli_auth_credentials_store=\"keyring\" to consult.codex_config").
			WithReason(fault.NotLoggedIn)
	case info.Account == "":
		info.Account = "by codex login"
	}
	info.LoggedIn = true
	return info, nil
}

// loginStatus is the question whether the program is logged in, for a run: the
// program's own configuration file, which a run does not read, is overruled in
// what it says of that.
func (c *Codex) loginStatus() []string {
	var args []string
	for _, setting := range append([]string{`cli_auth_credentials_store="file"`, `model_provider="openai"`},
		c.opt.Config...) {
		args = append(args, "-c", setting)
	}
	return append(args, "login", "status")
}

// account is what logs the program in without a login of its own, for people;
// "" if nothing does.
func (c *Codex) account() string {
	if command.Variable(c.env, "CODEX_API_KEY") != "" {
		return "by the environment"
	}
	for _, setting := range c.opt.Config {
		if key, _, _ := strings.Cut(setting, "="); strings.TrimSpace(key) == "model_provider" {
			return "by the provider of consult.codex_config"
		}
	}
	return ""
}

// Fits tells what the program cannot be asked for; the error is a fault,
// invalid_input.
func (c *Codex) Fits(req engine.Request) error {
	lacks := func(format string, args ...any) error {
		return fault.New(fault.InvalidInput, fault.Engine, operation, format, args...)
	}
	switch n := utf8.RuneCountInString(req.Prompt); {
	case n > MaxPrompt:
		return lacks("prompt: Codex takes %d characters at most, and this has %d; name files in it instead of "+
			"quoting them", MaxPrompt, n)
	case req.MaxTurns > 0:
		return lacks("max_turns: Codex does not count turns; leave it out, or give a timeout_s")
	case req.MaxUSD > 0:
		return lacks("max_usd: Codex does not say what a run costs; leave it out, or use engine claude")
	}
	return nil
}

// elsewhere is what its sandbox leaves open.
const elsewhere = "Codex can read files outside of the directory, too"

// levels are all: at each the program has its shell, in its own sandbox.
func levels() []engine.Level {
	return []engine.Level{
		{Name: engine.LevelRead, EnforcedBy: engine.BySandbox, Notes: []string{elsewhere}},
		{Name: engine.LevelShell, EnforcedBy: engine.BySandbox, Notes: []string{elsewhere}},
	}
}

// Command is the command line of a run inside the program's own sandbox, in
// which nothing can be written and no network is reached. No configuration
// file, rule or server of the user or of the project is looked at. The prompt
// is not in it: it is what stands on standard input, see [Run.Prompt].
func (c *Codex) Command(req engine.Request, info engine.Info) engine.Command {
	cmd := engine.Command{
		Level: req.Level, EnforcedBy: engine.BySandbox,
		Notes: []string{elsewhere},
	}
	argv := []string{
		info.Path, "exec", "--json", optSandbox, "read-only", "--skip-git-repo-check", "--ignore-user-config",
		"--ignore-rules",
	}
	set := func(settings ...string) {
		for _, s := range settings {
			argv = append(argv, "-c", s)
		}
	}
	set(info.Settings...)
	// Behind what the user says: the last one counts.
	set(`sandbox_mode="read-only"`, `approval_policy="never"`, "project_doc_max_bytes=0",
		"check_for_update_on_startup=false", "analytics.enabled=false")
	if !req.Web {
		set(`web_search="disabled"`)
	}
	if req.Model != "" {
		argv = append(argv, "--model", req.Model)
	}
	if effort := req.Effort; effort != "" {
		if effort == "max" {
			effort = "xhigh"
			cmd.Notes = append(cmd.Notes, "Codex has no effort max: xhigh was asked for")
		}
		set("model_reasoning_effort=" + strconv.Quote(effort))
	}
	if req.SchemaFile != "" {
		argv = append(argv, optSchema, req.SchemaFile)
	}
	if req.Session != "" {
		argv = append(argv, "fork", req.Session)
	}
	cmd.Argv = append(argv, "-")
	cmd.Env = c.env
	if req.TempDir != "" {
		cmd.Env = c.environment("TMPDIR=" + req.TempDir)
	}
	return cmd
}
