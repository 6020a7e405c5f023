// Package codex knows Codex as a consult program: where it is installed and whether it
// can be used ([Codex.Check]), its command line and environment for a run inside its
// own read-only sandbox ([Codex.Command]), and its stream of JSON lines ([Run]).
//
// The package starts the program only for the short questions of a check, and waits for
// these. The engine process starts the runs. The package reads no environment of its own: its
// caller passes that.
//
// Codex describes errors only in free text. The package shows that text and never
// searches it. What the end of a run means follows from the kinds of its lines, and
// from how the process ended.
package codex

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
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

// Defaults of [Options].
const (
	defaultTimeout = 10 * time.Second
	checkedFor     = 10 * time.Minute // how long a check that succeeded holds
)

// MaxPrompt is the largest number of characters in a prompt that Codex accepts.
const MaxPrompt = 1 << 20

// Options say which program is used and what it is given.
type Options struct {
	// Bin is a path or a name on the PATH of Env; "" means "codex".
	Bin string
	// program gets what it needs.
	Env []string
	// Extra is what the configuration adds; it passes unfiltered but for what
	// no program may inherit.
	Extra []string
	// Emptied are the names of the variables that the configuration gives programs. The model's shell
	// has them without their values.
	Emptied []string
	// Config are settings in the form of Codex's option -c, for example
	// model_provider="azure". The program's own configuration file is not read, since
	// it may name programs to run.
	Config []string
	// Timeout bounds a check; 0 means 10 s.
	Timeout time.Duration
	// Wall returns the path of a bubblewrap that works around the program at path, or "". Its error
	// is [sandbox.ErrInterrupted]. If it is nil, New takes what asks the machine.
	Wall func(ctx context.Context, path string, env []string) (string, error)
}

// Codex is the Codex that is installed on this machine. It is safe for concurrent use.
type Codex struct {
	opt     Options
	env     []string // of every run and check
	program program.Program
	looks   *program.Looks[engine.Info]
}

// New returns a Codex with the defaults for what opt leaves out. It does not look for
// the program yet.
func New(opt Options) *Codex {
	opt.Bin = cmp.Or(opt.Bin, "codex")
	opt.Timeout = cmp.Or(opt.Timeout, defaultTimeout)
	if opt.Wall == nil {
		opt.Wall = findWall
	}
	c := &Codex{opt: opt, looks: program.NewLooks[engine.Info]()}
	c.env = c.environment()
	c.program = program.Program{
		Name: "Codex", Bin: opt.Bin, Env: c.env, Operation: engine.Operation, Timeout: opt.Timeout,
		Cure: "install Codex (npm install -g @openai/codex), " +
			"or name its program in HOLDLINE_CODEX_BIN or in consult.codex_bin of the configuration",
	}
	return c
}

// passed are the names that pass from the daemon's environment to the program, besides
// those that every program gets. The variables by which Codex tells its own children
// that they are in a sandbox must not pass.
var passed = command.NewNames("CODEX_HOME", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "CODEX_CA_CERTIFICATE")

// providers are names that pass as well, and are no login to Codex itself.
var providers = command.NewNames("OPENAI_*", "AZURE_OPENAI_*")

// Environ returns the environment of every run, and the names of the variables
// that the configuration sets.
func (c *Codex) Environ() (environ, configured []string) { return c.env, engine.Names(c.opt.Extra) }

// environment returns the environment of a run. set replaces variables of the daemon.
func (c *Codex) environment(set ...string) []string {
	pass := func(name string) bool { return passed.Has(name) || providers.Has(name) }
	return program.Environment(c.opt.Env, pass, set, c.opt.Extra)
}

// Without returns those of the names that are login variables of this program and that
// its environment lacks.
func (c *Codex) Without(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !passed.Has(name) || command.Variable(c.env, name) != ""
	})
}

// Route returns how a run reaches its API. The settings may name another provider, or another address.
func (c *Codex) Route() engine.Route {
	const address = "OPENAI_BASE_URL"
	r := engine.Route{Environ: c.env, Hosts: []string{"api.openai.com", "chatgpt.com"}}
	switch settings := strings.Join(c.opt.Config, "\n"); {
	case strings.Contains(settings, "model_provider"), strings.Contains(settings, "base_url"):
		r.Hosts = nil
		return r // nor is it known which proxy is that of its address
	case command.Variable(c.env, address) != "":
		r.Address = address
	}
	r.Proxies = []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"}
	if strings.HasPrefix(strings.ToLower(command.Variable(c.env, address)), "http:") {
		r.Proxies = []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"}
	}
	return r
}

// Options of the program.
const (
	optSandbox = "--sandbox"
	optSchema  = "--output-schema"
)

// needs lists the options without which no run is safe. The check looks them up in the
// program's own help.
var needs = program.Needs{
	Least: program.Version{0, 100, 0}, Help: []string{"exec", "--help"}, Update: "npm install -g @openai/codex",
	Options: []string{
		"--json", optSandbox, "--skip-git-repo-check", "--ignore-user-config", "--ignore-rules",
		optSchema,
	},
}

// Check returns what is known of the installed program, or why it cannot be used: not
// found, too old, or not logged in. Its result holds for 10 minutes unless the
// program's file changes; a failure is not remembered. The error is a [*fault.Record],
// or the cause of ctx.
func (c *Codex) Check(ctx context.Context) (engine.Info, error) {
	return c.looks.Look(ctx, &c.program, checkedFor, c.inspectProgram)
}

// inspectProgram asks the program at path for its version and options. It asks for the login only
// if neither the environment nor the configuration provides one.
func (c *Codex) inspectProgram(ctx context.Context, path string) (engine.Info, error) {
	info := engine.Info{Path: path, Settings: c.opt.Config, Emptied: c.opt.Emptied}
	var unsure error
	if info.Wall, unsure = c.opt.Wall(ctx, path, c.env); unsure != nil {
		c.looks.Doubt()
	}
	info.Levels = levels(c.around(&info), unsure)
	asked, done := c.apart()
	defer done()
	version, _, err := asked.Ask(ctx, path, needs)
	if err != nil {
		return info, err
	}
	info.Version = version.String()
	var login program.Reply
	var loginErr error
	if info.Account = c.account(); info.Account == "" {
		if strings.Contains(strings.Join(c.opt.Config, "\n"), "cli_auth_credentials_store") {
			asked = &c.program // a login in the keyring belongs to the path of the program's directory
		}
		login, loginErr = asked.Probe(ctx, path, c.loginStatus()...)
	}
	switch {
	case loginErr != nil:
		return info, loginErr
	case login.ExitCode != 0:
		return info, fault.New(fault.Unauthenticated, fault.Engine, engine.Operation,
			"Codex is not logged in for the daemon: run codex login once, or give the daemon CODEX_API_KEY "+
				"(holdline env set CODEX_API_KEY). A consult does not read Codex's own configuration file: if that names a "+
				"provider, put its settings into consult.codex_config; for a login in the keyring "+
				"add cli_auth_credentials_store=\"keyring\" to consult.codex_config").
			WithReason(fault.NotLoggedIn)
	case info.Account == "":
		info.Account = "by codex login"
	}
	info.LoggedIn = true
	return info, nil
}

// apart returns the program with an environment in which its directory is a temporary one that has its login alone:
// it makes files there whenever it is started, and a check is to change nothing. The caller must call done after the
// last question.
func (c *Codex) apart() (asked *program.Program, done func()) {
	home := c.home()
	if home == "" {
		return &c.program, func() {}
	}
	dir, err := os.MkdirTemp("", "holdline-check-")
	if err != nil {
		return &c.program, func() {} // without room there the program is asked in its own directory
	}
	// If there is no login, the link leads nowhere, and the program finds none.
	_ = os.Symlink(filepath.Join(home, fileLogin), filepath.Join(dir, fileLogin))
	its := c.program
	its.Env = append(slices.DeleteFunc(slices.Clone(its.Env), func(kv string) bool {
		return strings.HasPrefix(kv, homeVariable+"=")
	}), homeVariable+"="+dir)
	return &its, func() { _ = os.RemoveAll(dir) }
}

// loginStatus returns the arguments that ask the program whether it is logged in. They
// overrule what the program's own configuration file says about logins: a run does not
// read that file, so its answer would be about another login.
func (c *Codex) loginStatus() []string {
	var args []string
	for _, setting := range append([]string{`cli_auth_credentials_store="file"`, `model_provider="openai"`},
		c.opt.Config...) {
		args = append(args, "-c", setting)
	}
	return append(args, "login", "status")
}

// account returns, for people, what logs the program in without a login of its own. It
// returns "" if there is no such thing.
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

// Fits returns nil if the program can do what req asks for, else an invalid_input
// fault. Codex counts no turns and tells no cost, so it cannot hold limits on these.
func (c *Codex) Fits(req engine.Request) error {
	lacks := func(format string, args ...any) error {
		return fault.New(fault.InvalidInput, fault.Engine, engine.Operation, format, args...)
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

// elsewhere says what the program's sandbox leaves open.
const elsewhere = "Codex can read files outside of the directory, too"

// levels returns both levels. At each, the model has its shell inside the program's own
// sandbox, so they differ only in name. around says what is around the program. If it is not known
// whether there can be a wall around it, unsure says why, and both are refused: a consult never runs
// weaker by chance.
func levels(around string, unsure error) []engine.Level {
	level := engine.Level{EnforcedBy: engine.BySandbox, Notes: []string{elsewhere, around}}
	if unsure != nil {
		level = engine.Level{Lacks: unsure.Error()}
	}
	read, shell := level, level
	read.Name, shell.Name = engine.LevelRead, engine.LevelShell
	return []engine.Level{read, shell}
}

// shellNames are the variables of the model's shell: those of any session, and those which keep its
// git from running what a repository names.
var shellNames = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TERM", "TZ", "TMPDIR", "GIT_CONFIG_*",
	"GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT", "GIT_NO_LAZY_FETCH", "GIT_ALLOW_PROTOCOL", "GIT_PAGER", "GIT_WORK_TREE",
}

// shellVariables returns the setting that says which variables the model's shell has: [shellNames],
// and the variables of the configuration without their values. So a command sees that there is no
// key for it. The program's usual list of what to leave out would take GIT_CONFIG_KEY_0 for a key.
func shellVariables(emptied []string) string {
	var only, set []string
	for _, name := range shellNames {
		only = append(only, strconv.Quote(name))
	}
	for _, name := range emptied {
		if quoted := strconv.Quote(name); !command.Core.Has(name) && !slices.Contains(only, quoted) {
			only, set = append(only, quoted), append(set, quoted+`=""`)
		}
	}
	return `shell_environment_policy={inherit="all",ignore_default_excludes=true,include_only=[` +
		strings.Join(only, ",") + `],set={` + strings.Join(set, ",") + `}}`
}

// Command returns the command line of a run inside the program's own sandbox, which
// allows no write and no network. The program reads no configuration file, rule or
// server of the user or of the project. The prompt is not part of the command line: it
// comes on standard input, see [Run.Begin].
func (c *Codex) Command(req engine.Request, info engine.Info) engine.Command {
	cmd := engine.Command{
		Level: req.Level, EnforcedBy: engine.BySandbox,
		Notes: []string{elsewhere, c.around(&info)},
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
		"check_for_update_on_startup=false", "analytics.enabled=false", "skills.include_instructions=false",
		shellVariables(info.Emptied))
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
	c.wall(&req, &info, &cmd)
	cmd.Env = c.env
	if req.TempDir != "" {
		cmd.Env = c.environment("TMPDIR=" + req.TempDir)
	}
	return cmd
}
