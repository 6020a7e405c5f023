package config

import (
	"slices"
	"strings"

	"holdline/daemon/command"
)

// What a server inherits of the daemon's environment.
const (
	InheritAll  = "all"  // everything but what no server gets
	InheritCore = "core" // what programs need to find their way
	InheritNone = "none"
)

// core are the names of a session's own variables, of proxies and
// certificates, and of the sockets that a user's programs talk to.
var core = []string{
	"HOME", "LOGNAME", "USER", "PATH", "SHELL", "LANG", "TERM", "TMPDIR", "TZ",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
	"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DOCKER_HOST",
}

// corePrefixes are the beginnings of such names.
var corePrefixes = []string{"LC_", "XDG_"}

// loaders make a program load foreign code: no server gets them, not even from its
// own entry. HOLDLINE_WORKER is how a worker's children are found.
var loaders = []string{"LD_PRELOAD", "LD_AUDIT", "HOLDLINE_WORKER"}

// loaderPrefixes are the beginnings of such names.
var loaderPrefixes = []string{"DYLD_"}

// sessions are variables of an agent's session or of the daemon's own, which
// are not inherited: they would make a program believe that it runs inside
// that agent, or talk to that service manager.
var sessions = []string{
	"CLAUDECODE", "AI_AGENT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_CHILD_NOTES_DIR",
	"CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS", "CLAUDE_CODE_SSE_PORT", "CLAUDE_PROJECT_DIR",
	"CODEX_THREAD_ID", "CODEX_SESSION_ID", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_CI",
	"CURSOR_AGENT", "CURSOR_TRACE_ID", "GEMINI_CLI", "LD_LIBRARY_PATH",
	"XPC_SERVICE_NAME", "XPC_FLAGS", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "INVOCATION_ID", "JOURNAL_STREAM", "MAINPID", "MANAGERPID",
	"SYSTEMD_EXEC_PID", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "_", "PWD", "OLDPWD", "SHLVL",
}

// sessionPrefixes are the beginnings of such names.
var sessionPrefixes = []string{"CLAUDE_CODE_MESSAGING_", "HOLDLINE_", "LISTEN_"}

// banned reports whether no server gets a variable at all.
func banned(name string) bool {
	return slices.Contains(loaders, name) || command.HasAnyPrefix(name, loaderPrefixes)
}

// inherits reports whether a variable of the daemon's environment passes.
func inherits(mode, name string) bool {
	if mode == InheritNone || banned(name) || slices.Contains(sessions, name) || command.HasAnyPrefix(name, sessionPrefixes) {
		return false
	}
	return mode == InheritAll || slices.Contains(core, name) || command.HasAnyPrefix(name, corePrefixes)
}

// Environment is that of a server's process, sorted, each name once: what mode
// lets pass of base, the daemon's own environment, and over it set. What no
// server gets is left out of both, and so are directories of PATH that are not
// absolute: a server runs in its project, whose files must not become programs
// that get the server's secrets.
func Environment(mode string, base []string, set map[string]string) []string {
	out := map[string]string{}
	for _, kv := range base {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" && inherits(mode, name) {
			out[name] = value
		}
	}
	for name, value := range set {
		if !banned(name) {
			out[name] = value
		}
	}
	return command.Environ(out)
}
