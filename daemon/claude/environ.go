package claude

import (
	"maps"
	"slices"
	"strings"
)

// passed are the names that go from the daemon's environment to the program:
// the core of any session, proxies and certificates, and what people use to
// keep the program from talking about them.
var passed = []string{
	"HOME", "LOGNAME", "USER", "PATH", "SHELL", "LANG", "TERM", "TMPDIR", "TZ",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
	"CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "CLOUD_ML_REGION",
	"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DO_NOT_TRACK",
}

// passedPrefixes are the beginnings of names that go, too.
var passedPrefixes = []string{"LC_", "XDG_", "ANTHROPIC_", "CLAUDE_CODE_USE_", "AWS_", "GOOGLE_"}

// never are the names that no run inherits, whoever names them: they make the
// program believe that it runs inside another session, or load foreign code.
var never = []string{
	"CLAUDECODE", "AI_AGENT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_CHILD_NOTES_DIR",
	"CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",
}

// neverPrefixes are the beginnings of such names. HOLDLINE_ is the daemon's
// own business: tokens are among it.
var neverPrefixes = []string{"CLAUDE_CODE_MESSAGING_", "DYLD_", "HOLDLINE_"}

// fixed is what every run gets: nothing in the background that would outlive
// the answer, no update under our feet, and a git that runs no program of the
// repository's choice.
var fixed = []string{
	"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1",
	"DISABLE_AUTOUPDATER=1",
	"GIT_OPTIONAL_LOCKS=0",
	"GIT_TERMINAL_PROMPT=0",
	"GIT_CONFIG_COUNT=2",
	"GIT_CONFIG_KEY_0=core.fsmonitor", "GIT_CONFIG_VALUE_0=false",
	"GIT_CONFIG_KEY_1=core.pager", "GIT_CONFIG_VALUE_1=cat",
}

// Environment builds the environment of a run, sorted, each name once: from
// base (the daemon's own) what may pass, over it the fixed settings, over
// them set, and over all extra (what the configuration names). What must
// never be inherited is left out of all of them.
func Environment(base, extra, set []string) []string {
	out := map[string]string{}
	put := func(kv string) {
		name, value, ok := strings.Cut(kv, "=")
		if ok && name != "" && !forbidden(name) && !strings.ContainsRune(value, 0) {
			out[name] = value
		}
	}
	for _, kv := range base {
		if name, _, _ := strings.Cut(kv, "="); mayPass(name) {
			put(kv)
		}
	}
	for _, kv := range slices.Concat(fixed, set, extra) {
		put(kv)
	}
	env := make([]string, 0, len(out))
	for _, name := range slices.Sorted(maps.Keys(out)) {
		env = append(env, name+"="+out[name])
	}
	return env
}

func mayPass(name string) bool {
	if slices.Contains(passed, name) {
		return true
	}
	if strings.HasPrefix(name, "CLAUDE_CODE_SKIP_") && strings.HasSuffix(name, "_AUTH") {
		return true
	}
	return hasAnyPrefix(name, passedPrefixes)
}

func forbidden(name string) bool {
	return slices.Contains(never, name) || hasAnyPrefix(name, neverPrefixes)
}

func hasAnyPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// credentialed tells whether the environment alone logs the program in.
func credentialed(env []string) bool {
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if value == "" {
			continue
		}
		switch name {
		case "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN":
			return true
		}
		if strings.HasPrefix(name, "CLAUDE_CODE_USE_") {
			return true
		}
	}
	return false
}
