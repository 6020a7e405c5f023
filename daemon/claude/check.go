package claude

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"holdline/daemon/engine"
	"holdline/daemon/program"
	"holdline/protocol/fault"
)

// leastVersion is the oldest program that has what a run needs.
var leastVersion = program.Version{2, 1, 0}

// needed are the options without which no run is safe; wanted are those that
// make it better where they exist. Both are looked up in the program's own
// help, since what a version number implies is a guess.
var (
	needed = []string{
		"--input-format", "--output-format", "--strict-mcp-config", "--tools", "--permission-mode", "--settings",
		"--setting-sources",
	}
	wanted = []string{optRestricted, optPartial, optNoChrome, optNoSlash, optEffort}
)

// Options of the program that not every version has.
const (
	optRestricted = "--restricted"
	optPartial    = "--include-partial-messages"
	optNoChrome   = "--no-chrome"
	optNoSlash    = "--disable-slash-commands"
	optEffort     = "--effort"
)

// Check tells whether the program can be used: found, of a version that can
// be driven, and logged in. It takes a fraction of a second the first time;
// what it found holds for a while, failures for a moment, and nothing holds
// once the file has changed. Several callers at once share one look. The
// error is a [*fault.Record].
func (c *Claude) Check(ctx context.Context) (engine.Info, error) {
	return c.looks.Look(ctx, &c.program, c.opt.TTL, c.look)
}

// look asks the program itself.
func (c *Claude) look(ctx context.Context, path string) (engine.Info, error) {
	info := engine.Info{Path: path}
	out, code, err := c.program.Probe(ctx, path, "--version")
	if err != nil {
		return info, err
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ") // "2.1.329 (Claude Code)"
	version, ok := program.ParseVersion(word)
	switch {
	case !ok:
		return info, c.program.Unfit("%s --version (exit code %d) does not say a version: it is not Claude Code, or broken", path, code)
	case slices.Compare(version[:], leastVersion[:]) < 0:
		return info, c.program.Unfit("Claude Code %s at %s is too old: %s or newer is needed; update it with: claude update",
			version, path, leastVersion)
	}
	info.Version = version.String()

	var help []byte
	var helpErr, noShell error
	var probes sync.WaitGroup
	probes.Go(func() { noShell = c.opt.Bubblewrap(ctx, c.env) })
	probes.Go(func() { help, _, helpErr = c.program.Probe(ctx, path, "--help") })
	probes.Wait()
	if helpErr != nil {
		return info, helpErr
	}
	has := program.Options(help)
	for _, opt := range needed {
		if !has[opt] {
			return info, c.program.Unfit("Claude Code %s at %s has no option %s: update it with: claude update", info.Version, path, opt)
		}
	}
	for _, opt := range wanted {
		if has[opt] {
			info.Features = append(info.Features, opt)
		}
	}
	c.restricts.Store(has[optRestricted])
	info.Levels = []engine.Level{c.read(&info), c.shell(&info, noShell)}
	return c.account(ctx, path, info)
}

// account asks the program how it is logged in, with the settings of a run: a
// login that those would not have is none. A version that does not know the
// question is believed to be logged in: the run itself will tell.
func (c *Claude) account(ctx context.Context, path string, info engine.Info) (engine.Info, error) {
	own := c.login()
	asked := c.program
	asked.Env = c.environment(own.env)
	if credentialed(asked.Env) {
		info.LoggedIn, info.Account = true, "by the environment"
		return info, nil
	}
	args := append(isolation(&info), "--settings", settings(own, nil), "auth", "status")
	out, code, err := asked.Probe(ctx, path, args...)
	if err != nil {
		return info, err
	}
	var st struct {
		LoggedIn *bool  `json:"loggedIn"`
		Method   string `json:"authMethod"`
		Provider string `json:"apiProvider"`
	}
	if err := json.Unmarshal(out, &st); err != nil || st.LoggedIn == nil {
		info.LoggedIn = true
		info.Account = "unknown"
		return info, nil //nolint:nilerr // no answer to the question is no failure, see above
	}
	if *st.LoggedIn && code == 0 {
		info.LoggedIn = true
		info.Account = st.Method
		if st.Provider != "" && st.Provider != "firstParty" {
			info.Account += " (" + st.Provider + ")"
		}
		return info, nil
	}
	return info, fault.New(fault.Unauthenticated, fault.Engine, operation,
		"Claude Code is not logged in for the daemon: run claude and /login once, or give the daemon "+
			"ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN (consult.env or consult.env_file of the configuration)").
		WithReason(fault.NotLoggedIn)
}
