package program

import (
	"slices"
	"strings"

	"holdline/daemon/command"
)

// core are the names that pass from the daemon's environment to every program, besides
// those of [Network]. They belong to any session of a user.
var core = []string{"HOME", "LOGNAME", "USER", "PATH", "SHELL", "LANG", "TERM", "TMPDIR", "TZ"}

// network are the names of the variables for proxies and certificates.
var network = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
}

// corePrefixes are the prefixes of further names that pass.
var corePrefixes = []string{"LC_", "XDG_"}

// never are the names that no program inherits, even if the configuration names them.
// They make a program believe that it runs inside another session, or load foreign
// code.
var never = []string{
	"CLAUDECODE", "AI_AGENT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_CHILD_NOTES_DIR",
	"CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",
}

// neverPrefixes are the prefixes of such names. HOLDLINE_ is the daemon's own: tokens
// are among these variables.
var neverPrefixes = []string{"CLAUDE_CODE_MESSAGING_", "DYLD_", "HOLDLINE_"}

// git are the variables that every program gets for the git commands that it runs. That
// git runs no program of the repository's choice, and takes no lock that another
// process waits for.
var git = []string{
	"GIT_OPTIONAL_LOCKS=0",
	"GIT_TERMINAL_PROMPT=0",
	"GIT_CONFIG_COUNT=2",
	"GIT_CONFIG_KEY_0=core.fsmonitor", "GIT_CONFIG_VALUE_0=false",
	"GIT_CONFIG_KEY_1=core.pager", "GIT_CONFIG_VALUE_1=cat",
}

// Environment returns the environment of a program, sorted and with each name once. A
// later source replaces an earlier one:
//
//   - base, the daemon's own environment: the names of any session, and those that pass
//     accepts,
//   - the variables that keep git from running programs,
//   - set,
//   - extra, which the configuration names.
//
// No source can set what a program must never inherit. Directories of PATH that are not
// absolute are left out as well: the program runs in a project, whose files must not
// become programs that it starts.
func Environment(base []string, pass func(name string) bool, set, extra []string) []string {
	out := map[string]string{}
	put := func(kv string) {
		name, value, ok := strings.Cut(kv, "=")
		if ok && name != "" && !forbidden(name) && !strings.ContainsRune(value, 0) {
			out[name] = value
		}
	}
	for _, kv := range base {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(core, name) || Network(name) || command.HasAnyPrefix(name, corePrefixes) || pass(name) {
			put(kv)
		}
	}
	for _, kv := range slices.Concat(git, set, extra) {
		put(kv)
	}
	return command.Environ(out)
}

// Network reports whether the variable name says how to reach the network: a proxy, or
// certificates.
func Network(name string) bool { return slices.Contains(network, name) }

// forbidden reports whether no program may inherit the variable name.
func forbidden(name string) bool {
	return slices.Contains(never, name) || command.HasAnyPrefix(name, neverPrefixes)
}
