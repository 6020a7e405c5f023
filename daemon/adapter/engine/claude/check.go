package claude

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/daemon/program"
	"holdline/daemon/sandbox"
	"holdline/protocol/fault"
)

// needs lists the options without which no run is safe, and those which make a run
// better where they exist. The check looks them up in the program's own help: a version
// number only allows a guess.
var needs = program.Needs{
	Least: program.Version{2, 1, 0}, Help: []string{"--help"}, Update: "claude update",
	Options: []string{
		"--input-format", "--output-format", "--strict-mcp-config", "--tools", "--permission-mode", "--settings",
		"--setting-sources",
	},
	Wanted: []string{optRestricted, optPartial, optNoChrome, optNoSlash, optEffort, optReplay},
}

// Options of the program that only some versions have.
const (
	optRestricted = "--restricted"
	optPartial    = "--include-partial-messages"
	optNoChrome   = "--no-chrome"
	optNoSlash    = "--disable-slash-commands"
	optEffort     = "--effort"
	optReplay     = "--replay-user-messages"
)

// Check returns what is known of the installed program, or why it cannot be used: not
// found, too old, or not logged in. The error is a [*fault.Record], or the cause of
// ctx.
//
// The first check takes a fraction of a second. Its result holds for 10 minutes
// unless the program's file changes; a failure is not remembered. Callers that come at
// the same time share one check.
func (c *Claude) Check(ctx context.Context) (engine.Info, error) {
	return c.looks.Look(ctx, &c.program, checkedFor, c.inspectProgram)
}

// inspectProgram asks the program at path for its version, its options and its login. The trial
// of bubblewrap runs beside these questions, since each takes a while. A trial that was
// interrupted says nothing about the machine, so its result is not remembered.
func (c *Claude) inspectProgram(ctx context.Context, path string) (engine.Info, error) {
	info := engine.Info{Path: path}
	var noShell error
	var trial sync.WaitGroup
	trial.Go(func() { noShell = c.opt.Bubblewrap(ctx, c.env) })
	apart, done := c.apart()
	defer done()
	asked := c.program
	asked.Env = apart(asked.Env)
	version, has, err := asked.Ask(ctx, path, needs)
	trial.Wait()
	if err != nil {
		return info, err
	}
	info.Version = version.String()
	for _, opt := range needs.Wanted {
		if has[opt] {
			info.Features = append(info.Features, opt)
		}
	}
	if errors.Is(noShell, sandbox.ErrInterrupted) {
		c.looks.Doubt()
	}
	info.Levels = []engine.Level{c.readLevel(&info), c.shellLevel(&info, noShell)}
	return c.account(ctx, path, info, apart)
}

// apart returns what changes the environment of questions to a program that nobody has used here yet: it would
// make its files in the user's home, and a check is to change nothing. Where it has neither a state nor a login, it
// knows as much in an empty directory. The caller must call done after the last question.
func (c *Claude) apart() (change func(env []string) []string, done func()) {
	change, done = func(env []string) []string { return env }, func() {}
	dir := c.configDir()
	// Elsewhere than on Linux the directory is part of the name of a login in the keychain.
	if dir == "" || runtime.GOOS != "linux" || command.Variable(c.env, loginsVariable) != "" {
		return change, done
	}
	state := filepath.Join(dir, fileState)
	if command.Variable(c.env, configVariable) == "" {
		state = filepath.Join(filepath.Dir(dir), fileState)
	}
	for _, path := range []string{state, filepath.Join(dir, fileLogin)} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return change, done
		}
	}
	empty, err := os.MkdirTemp("", "holdline-check-")
	if err != nil {
		return change, done // without room there the program is asked in the user's home
	}
	return func(env []string) []string {
		return append(slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
			return strings.HasPrefix(kv, configVariable+"=")
		}), configVariable+"="+empty)
	}, func() { _ = os.RemoveAll(empty) }
}

// account asks the program how it is logged in, and returns info with the answer. It
// asks with the settings of a run: a login that a run would not have is no use. If the
// version does not know the question, account assumes a login; a run without one fails
// with a clear fault.
// apart is as in [Claude.apart].
func (c *Claude) account(
	ctx context.Context, path string, info engine.Info, apart func([]string) []string,
) (engine.Info, error) {
	own := c.login()
	asked := c.program
	asked.Env = apart(c.environment(own.env))
	if credentialed(asked.Env) {
		info.LoggedIn, info.Account = true, "by the environment"
		return info, nil
	}
	args := append(isolation(&info), "--settings", settings(own, nil), "auth", "status")
	reply, err := asked.Probe(ctx, path, args...)
	if err != nil {
		return info, err
	}
	var st struct {
		LoggedIn *bool  `json:"loggedIn"`
		Method   string `json:"authMethod"`
		Provider string `json:"apiProvider"`
	}
	if err := json.Unmarshal(reply.Stdout, &st); err != nil || st.LoggedIn == nil {
		if !reply.IsComplete {
			return info, asked.Unanswered(&reply, "auth", "status")
		}
		info.LoggedIn = true
		info.Account = "unknown"
		return info, nil
	}
	if *st.LoggedIn && reply.ExitCode == 0 {
		info.LoggedIn = true
		info.Account = st.Method
		if st.Provider != "" && st.Provider != "firstParty" {
			info.Account += " (" + st.Provider + ")"
		}
		return info, nil
	}
	return info, fault.New(fault.Unauthenticated, fault.Engine, engine.Operation,
		"Claude Code is not logged in for the daemon: run claude and /login once, or give the daemon "+
			"ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN (holdline env set ANTHROPIC_API_KEY)").
		WithReason(fault.NotLoggedIn)
}
