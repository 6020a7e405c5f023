package codex

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/daemon/sandbox"
)

// Names in the program's own directory: the sessions, which a later run continues, and the login,
// which the program renews in a copy. Of all that it writes there, a run keeps only these.
const (
	dirSessions = "sessions"
	fileLogin   = "auth.json"
)

// homeVariable is the variable that names the program's own directory.
const homeVariable = "CODEX_HOME"

// Directories of a run's temporary directory that stand in the place of others.
const (
	dirState   = "codex"   // of the program's own directory
	dirSockets = "sockets" // of that where the program looks for its own server
)

// sockets returns the directory where the program looks for a server of its own, which runs outside of
// the wall. Its sandbox needs that directory, and makes it if it is not there.
func sockets() string { return "/tmp/codex-daemon-" + strconv.Itoa(os.Geteuid()) }

// Notes of what is around the program.
const (
	walled = "%s is around the whole program: outside of its sessions and a private temporary directory nothing is " +
		"written"
	unwalled = "nothing is around the program itself, since bubblewrap does not work inside of bubblewrap here: its " +
		"own sandbox holds its commands, and its git runs nothing that the repository names"
)

// besides are the places of a bubblewrap that comes with the program, from the directory of its file
// without links: beside the program itself, and beside its starter from npm.
var besides = []string{
	"../codex-resources/bwrap",
	"../node_modules/@openai/codex-linux-*/vendor/*/codex-resources/bwrap",
	"../../codex-linux-*/vendor/*/codex-resources/bwrap",
}

// findWall returns the bubblewrap that can be around the program at path, and in which its own one
// works; "" if there is none. If a trial did not end, the error is [sandbox.ErrInterrupted].
func findWall(ctx context.Context, path string, env []string) (string, error) {
	found := []string{sandbox.Wrapper(env)}
	if program, err := filepath.EvalSymlinks(path); err == nil {
		for _, place := range besides {
			matches, _ := filepath.Glob(filepath.Join(filepath.Dir(program), place))
			found = append(found, matches...)
		}
	}
	var unsure error
	for _, bwrap := range found {
		if bwrap == "" {
			continue
		}
		switch err := sandbox.Nests(ctx, bwrap, env); {
		case err == nil:
			return bwrap, nil
		case errors.Is(err, sandbox.ErrInterrupted):
			unsure = err
		}
	}
	return "", unsure
}

// home returns the program's own directory, without links; "" if that is not known.
func (c *Codex) home() string {
	dir := command.Variable(c.env, homeVariable)
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
// hooks, plugins or skills there. Landlock cannot be that wall: behind it nobody can mount, and the
// program runs no command without a bubblewrap of its own.
func (c *Codex) wall(req *engine.Request, info *engine.Info, cmd *engine.Command) {
	home := c.home()
	if home == "" || req.TempDir == "" || info.Wall == "" {
		return
	}
	temp := sandbox.Resolved(req.TempDir)
	sessions := filepath.Join(home, dirSessions)
	state, server := filepath.Join(temp, dirState), filepath.Join(temp, dirSockets)
	cmd.Makes = append(cmd.Makes, sessions, state, server, sockets())
	cmd.Argv = append([]string{
		info.Wall, "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc",
		"--bind", temp, temp, "--bind", state, home, "--bind", sessions, sessions,
		"--bind", server, sockets(), "--die-with-parent", "--",
	}, cmd.Argv...)
	cmd.Login = &engine.Login{
		Own: sandbox.Resolved(filepath.Join(home, fileLogin)), Copy: filepath.Join(state, fileLogin),
		Give: func(own []byte) []byte { return own }, Take: renewed,
	}
}

// login is what the file of the login has that a renewal leaves alone.
type login struct {
	Mode   string `json:"auth_mode"`
	Key    string `json:"OPENAI_API_KEY"`
	Tokens *struct {
		Account string `json:"account_id"`
		Access  string `json:"access_token"`
	} `json:"tokens"`
}

// renewed returns the file changed if it is the login own, with new tokens; else nil: a run may renew
// the login, and not log in as somebody else.
func renewed(own, changed []byte) []byte {
	var before, after login
	if json.Unmarshal(own, &before) != nil || json.Unmarshal(changed, &after) != nil || before.Tokens == nil ||
		after.Tokens == nil || after.Tokens.Access == "" || after.Tokens.Account != before.Tokens.Account ||
		after.Mode != before.Mode || after.Key != before.Key {
		return nil
	}
	return changed
}

// around says what is around the program.
func (c *Codex) around(info *engine.Info) string {
	switch {
	case c.home() == "" || info.Wall == "":
		return unwalled
	case info.Wall == sandbox.Wrapper(c.env):
		return fmt.Sprintf(walled, "the system's bubblewrap")
	}
	return fmt.Sprintf(walled, "the bubblewrap that comes with codex")
}
