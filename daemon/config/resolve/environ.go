package resolve

import (
	"holdline/daemon/command"
	"holdline/daemon/config"
)

var (
	// sockets are the variables for sockets that a user's programs talk to.
	sockets = command.NewNames(
		"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DOCKER_HOST",
	)
	// sessions are variables of an agent's session or of the daemon's own, which
	// are not inherited: they would make a program believe that it runs inside
	// that agent, or talk to that service manager.
	sessions = command.NewNames(
		"CLAUDE_CODE_SSE_PORT", "CLAUDE_PROJECT_DIR", "CODEX_THREAD_ID", "CODEX_SESSION_ID", "CODEX_SANDBOX",
		"CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_CI", "CURSOR_AGENT", "CURSOR_TRACE_ID", "GEMINI_CLI",
		"LD_LIBRARY_PATH", "XPC_SERVICE_NAME", "XPC_FLAGS", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC",
		"INVOCATION_ID", "JOURNAL_STREAM", "MAINPID", "MANAGERPID", "SYSTEMD_EXEC_PID", "MEMORY_PRESSURE_WATCH",
		"MEMORY_PRESSURE_WRITE", "_", "PWD", "OLDPWD", "SHLVL", "HOLDLINE_*", "LISTEN_*",
	)
)

// Environment returns the environment of a server's process: what mode lets pass of base,
// the daemon's own environment, and over it set; see [command.Compose].
func Environment(mode string, base []string, set map[string]string) []string {
	inherits := func(name string) bool { return Inherits(mode, name) }
	return command.Compose(base, inherits, command.List(set), config.NeverInherited)
}

// Inherits reports whether a server with that inherit_env gets a variable of the daemon's environment.
func Inherits(mode, name string) bool {
	if mode == config.InheritNone || sessions.Has(name) || command.Agents.Has(name) {
		return false
	}
	return mode == config.InheritAll || command.Core.Has(name) || command.Network.Has(name) || sockets.Has(name)
}
