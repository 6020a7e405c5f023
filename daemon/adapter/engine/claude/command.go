package claude

import (
	"slices"
	"strconv"
	"strings"

	"holdline/daemon/adapter/engine"
)

// Fits returns nil: the program can do all that a request can ask for.
func (c *Claude) Fits(engine.Request) error { return nil }

// Command returns the command line of a run. At level read the model gets no tool that
// writes or executes. At level shell its commands run in a sandbox.
//
// The program reads no settings file, hook or server of the user or of the project;
// only the user's own login settings reach it. The prompt is not part of the command
// line: it is the first line on standard input, see [Run.Begin].
func (c *Claude) Command(req engine.Request, info engine.Info) engine.Command {
	has := func(opt string) bool { return slices.Contains(info.Features, opt) }
	level := info.Level(req.Level)
	cmd := engine.Command{Level: level.Name, EnforcedBy: level.EnforcedBy, Notes: slices.Clone(level.Notes)}
	if level.EnforcedBy == engine.ByLandlock {
		cmd.Writable = &engine.Writable{Dirs: c.owned(&req)}
	}
	argv := []string{
		info.Path, "-p",
		"--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
		"--strict-mcp-config",
	}
	argv = append(argv, isolation(&info)...)
	own := c.login()
	var temp []string
	if dir := req.TempDir; dir != "" {
		temp = []string{"CLAUDE_CODE_TMPDIR=" + dir, "TMPDIR=" + dir, "NPM_CONFIG_CACHE=" + dir}
	}
	cmd.Env = c.environment(own.env, temp...)
	if c.walled(&req, &info) {
		cmd.Login = c.loginOf(&req)
		cmd.Env = append(slices.DeleteFunc(cmd.Env, func(kv string) bool {
			return strings.HasPrefix(kv, configVariable+"=")
		}), configVariable+"="+homeOf(&req))
	}
	for _, opt := range []string{optPartial, optNoSlash, optNoChrome, optReplay} {
		if has(opt) {
			argv = append(argv, opt)
		}
	}
	tools := []string{"Read", "Grep", "Glob"}
	if req.Level == engine.LevelShell {
		tools = append(tools, "Bash")
	}
	web := []string{"WebFetch", "WebSearch"}
	if req.Web {
		tools = append(tools, web...)
	}
	argv = append(argv, "--tools", strings.Join(tools, ","), "--permission-mode", "dontAsk", "--settings",
		c.settingsOf(&req, own, cmd.Env))
	if req.Web {
		argv = append(argv, "--allowedTools", strings.Join(web, ","))
	}
	if req.Model != "" {
		argv = append(argv, "--model", req.Model)
	}
	if req.Effort != "" {
		if has(optEffort) {
			argv = append(argv, optEffort, req.Effort)
		} else {
			cmd.Notes = append(cmd.Notes, "Claude Code "+info.Version+" has no --effort: effort was left out")
		}
	}
	if req.MaxTurns > 0 {
		argv = append(argv, "--max-turns", strconv.Itoa(req.MaxTurns))
	}
	if req.MaxUSD > 0 {
		argv = append(argv, "--max-budget-usd", strconv.FormatFloat(req.MaxUSD, 'f', -1, 64))
	}
	if len(req.Schema) > 0 {
		argv = append(argv, "--json-schema", string(req.Schema))
	}
	for _, dir := range req.AddDirs {
		argv = append(argv, "--add-dir="+dir) // one by one: the option would swallow what follows
	}
	if req.Session != "" {
		argv = append(argv, "--resume", req.Session, "--fork-session")
	}
	if req.Level == engine.LevelShell {
		cmd.Makes = c.owned(&req)
		argv = c.wrapped(cmd.Makes, argv)
	}
	cmd.Argv = argv
	return cmd
}

// isolation returns the options that keep the program from reading any settings file.
func isolation(info *engine.Info) []string {
	if slices.Contains(info.Features, optRestricted) {
		return []string{optRestricted}
	}
	return []string{"--setting-sources", ""}
}
