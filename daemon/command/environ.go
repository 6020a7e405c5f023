package command

import (
	"maps"
	"slices"
	"strings"
)

// Names is a set of names of variables.
type Names struct {
	names    []string
	prefixes []string // all names that begin so are in the set, too
}

// NewNames returns the set of these names. A name that ends in * stands for all that
// begin so.
func NewNames(names ...string) Names {
	var n Names
	for _, name := range names {
		if prefix, ok := strings.CutSuffix(name, "*"); ok {
			n.prefixes = append(n.prefixes, prefix)
		} else {
			n.names = append(n.names, name)
		}
	}
	return n
}

// Has reports whether a name is in the set.
func (n Names) Has(name string) bool {
	return slices.Contains(n.names, name) ||
		slices.ContainsFunc(n.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

var (
	// Core are the variables of any session of a user.
	Core = NewNames("HOME", "LOGNAME", "USER", "PATH", "SHELL", "LANG", "TERM", "TMPDIR", "TZ", "LC_*", "XDG_*")
	// Network are the variables that say how to reach the network: proxies and
	// certificates.
	Network = NewNames(
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
	)
	// Loaders make a program load foreign code.
	Loaders = NewNames("LD_PRELOAD", "LD_AUDIT", "DYLD_*")
	// Agents are variables of an agent's session. They make a program believe that it
	// runs inside that agent.
	Agents = NewNames(
		"CLAUDECODE", "AI_AGENT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_CHILD_NOTES_DIR",
		"CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS", "CLAUDE_CODE_MESSAGING_*",
	)
)

// Compose returns an environment, sorted, each name once: the variables of base that
// inherits accepts, and over them those of set. Variables that never accepts are in
// neither, and PATH has only the directories of [SearchDirs]: the program runs in a
// project, whose files must not become programs that it starts. Without any directory
// there is no PATH, since an empty one means the working directory.
func Compose(base []string, inherits func(name string) bool, set []string, never func(name string) bool) []string {
	out := map[string]string{}
	put := func(environ []string, accept func(name string) bool) {
		for _, kv := range environ {
			name, value, ok := strings.Cut(kv, "=")
			if !ok || name == "" || never(name) || !accept(name) || strings.Contains(value, "\x00") {
				continue
			}
			out[name] = value
		}
	}
	put(base, inherits)
	put(set, func(string) bool { return true })
	if path, ok := out["PATH"]; ok {
		if out["PATH"] = SafePath(path); out["PATH"] == "" {
			delete(out, "PATH")
		}
	}
	return List(out)
}

// List returns variables as a sorted environment.
func List(variables map[string]string) []string {
	env := make([]string, 0, len(variables))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		env = append(env, name+"="+variables[name])
	}
	return env
}

// Variable returns the value of a variable in an environment: that of its last
// entry, or "" if there is none.
func Variable(environ []string, name string) string {
	for _, kv := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}
