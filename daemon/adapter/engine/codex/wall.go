package codex

import (
	"context"
	"path/filepath"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/daemon/sandbox"
)

// Names in the program's own directory: the sessions, which a later run continues, and the login,
// which the program refreshes. Of all that it writes there, a run keeps only these.
const (
	dirSessions = "sessions"
	fileLogin   = "auth.json"
	dirState    = "codex" // of a run's temporary directory; stands in the place of the program's own
)

// Notes of what is around the program.
const (
	walled = "bubblewrap is around the whole program: outside of its sessions, its login and a private temporary " +
		"directory nothing is written"
	landlocked = "no bubblewrap works here, so Landlock is around the whole program: it writes only in its own " +
		"directory and a private temporary one; its own sandbox, which is bubblewrap, too, may refuse all commands"
	unwalled = "nothing is around the program itself on this system: its own sandbox holds its commands alone"
)

// besides are the places of a bubblewrap that comes with the program, from the directory of its file
// without links: beside the program itself, and beside its starter from npm.
var besides = []string{
	"../codex-resources/bwrap",
	"../node_modules/@openai/codex-linux-*/vendor/*/codex-resources/bwrap",
	"../../codex-linux-*/vendor/*/codex-resources/bwrap",
}

// findWall returns the bubblewrap that can be around the program at path, and in which its own one
// works; "" if there is none.
func findWall(ctx context.Context, path string, env []string) string {
	found := []string{sandbox.Wrapper(env)}
	if program, err := filepath.EvalSymlinks(path); err == nil {
		for _, place := range besides {
			matches, _ := filepath.Glob(filepath.Join(filepath.Dir(program), place))
			found = append(found, matches...)
		}
	}
	for _, bwrap := range found {
		if bwrap != "" && sandbox.Nests(ctx, bwrap, env) == nil {
			return bwrap
		}
	}
	return ""
}

// home returns the program's own directory, without links; "" if that is not known.
func (c *Codex) home() string {
	dir := command.Variable(c.env, "CODEX_HOME")
	if home := command.Variable(c.env, "HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".codex")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return sandbox.Resolved(filepath.Clean(dir))
}

// wall puts a wall around a run. In a sandbox of bubblewrap a private directory stands in the place
// of the program's own, but for its sessions and its login: so a run reads and writes no settings,
// hooks, plugins or skills there. Landlock cannot be that wall where bubblewrap works, since
// it forbids the mounts of the program's own sandbox.
func (c *Codex) wall(req *engine.Request, info *engine.Info, cmd *engine.Command) {
	home := c.home()
	switch {
	case home == "" || req.TempDir == "":
	case info.Wall != "":
		temp := sandbox.Resolved(req.TempDir)
		sessions, state := filepath.Join(home, dirSessions), filepath.Join(temp, dirState)
		login := filepath.Join(home, fileLogin)
		cmd.Makes = append(cmd.Makes, sessions, state)
		cmd.Argv = append([]string{
			info.Wall, "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc",
			"--bind", temp, temp, "--bind", state, home, "--bind", sessions, sessions,
			"--bind-try", login, login, "--die-with-parent", "--",
		}, cmd.Argv...)
	case c.opt.Outer && c.opt.Landlock() > 0: // behind Landlock Codex makes no sandbox of its own for some directories
		cmd.Writable = &engine.Writable{Dirs: []string{home, req.TempDir}}
	}
}

// around says what is around the program.
func (c *Codex) around(info *engine.Info) string {
	switch {
	case c.home() == "":
	case info.Wall != "":
		return walled
	case c.opt.Outer && c.opt.Landlock() > 0:
		return landlocked
	}
	return unwalled
}
