package attach

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"holdline/daemon/adapter/engines"
	"holdline/daemon/command"
	"holdline/daemon/userenv"
	"holdline/protocol/socket"
)

// inherited are the variables that a daemon gets from the proxy that starts it,
// besides those of the user's session: those that decide where both meet. Those that
// name the programs of consults follow. What is added here must also be one of
// [starter.Variables], which explains why it is a list of names.
var inherited = []string{"XDG_STATE_HOME", socket.Env, "HOLDLINE_CONFIG"}

// DaemonEnv returns the environment of a daemon that a process with environment
// env starts: that of the user's session, what is inherited, and this process's
// PATH, see lastingPath. The daemon searches that PATH last, and only its directories that other
// users cannot write.
func DaemonEnv(env func(string) string) []string {
	// The daemon has no terminal, and its servers would take a "dumb" one for the user's.
	list := slices.DeleteFunc(userenv.UserShell(env).Env, func(kv string) bool { return strings.HasPrefix(kv, "TERM=") })
	names := slices.Clone(inherited)
	for _, e := range engines.BuiltIn {
		if e.Variable != "" {
			names = append(names, e.Variable)
		}
	}
	if runtime.GOOS == "darwin" {
		names = append(names, "TMPDIR") // where the socket lies there
	}
	for _, name := range names {
		if value := env(name); value != "" {
			list = append(list, name+"="+value)
		}
	}
	return userenv.WithPath(list, lastingPath(env))
}

// lastingPath returns the directories of this process's PATH, without those that an agent has made for one
// conversation: the daemon outlives that, and serves others. Codex puts programs of its own there.
func lastingPath(env func(string) string) string {
	homes := []string{env("CODEX_HOME"), filepath.Join(env("HOME"), ".codex")}
	dirs := slices.DeleteFunc(command.SearchDirs(env("PATH")), func(dir string) bool {
		return slices.ContainsFunc(homes, func(home string) bool {
			return filepath.IsAbs(home) && strings.HasPrefix(dir, filepath.Join(home, "tmp")+"/")
		})
	})
	return strings.Join(dirs, string(filepath.ListSeparator))
}
