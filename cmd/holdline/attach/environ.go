package attach

import (
	"runtime"
	"slices"

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
// PATH. The daemon searches that PATH last, and only its directories that other
// users cannot write.
func DaemonEnv(env func(string) string) []string {
	list := userenv.UserShell(env).Env
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
	return userenv.WithPath(list, command.SafePath(env("PATH")))
}
