package claude

import (
	"slices"
	"strings"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/daemon/program"
)

// configVariable names the program's configuration directory.
const configVariable = "CLAUDE_CONFIG_DIR"

// loginsVariable names the directory of the program's logins, if that is another one.
const loginsVariable = "CLAUDE_SECURESTORAGE_CONFIG_DIR"

// passed are the names that pass from the daemon's environment to the program, besides
// those that every program gets: the login, and the variables by which users switch
// telemetry off.
var passed = command.NewNames(
	configVariable, "CLAUDE_CODE_OAUTH_TOKEN", "CLOUD_ML_REGION",
	"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DO_NOT_TRACK",
	"ANTHROPIC_*", "CLAUDE_CODE_USE_*", "AWS_*", "GOOGLE_*",
)

// fixed are the variables of every run: no background work that would outlive the
// answer, and no update of the program during a run.
var fixed = []string{"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1", "DISABLE_AUTOUPDATER=1"}

// Environment returns the environment of a run; see [program.Environment].
func Environment(base, extra, set []string) []string {
	return program.Environment(base, mayPass, slices.Concat(fixed, set), extra)
}

// mayPass reports whether the program may get the variable name from the daemon.
func mayPass(name string) bool {
	return passed.Has(name) || strings.HasPrefix(name, "CLAUDE_CODE_SKIP_") && strings.HasSuffix(name, "_AUTH")
}

// Without returns those of the names that are login variables of this program and that
// its environment lacks.
func (c *Claude) Without(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !mayPass(name) || command.Variable(c.env, name) != ""
	})
}

// yes are the words that the program reads as "switched on".
var yes = []string{"1", "true", "yes", "on"}

// credentialed reports whether the environment alone logs the program in.
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
		if strings.HasPrefix(name, "CLAUDE_CODE_USE_") &&
			slices.Contains(yes, strings.ToLower(strings.TrimSpace(value))) {
			return true
		}
	}
	return false
}

// Route returns how a run reaches its API. With a cloud the address is that for the cloud.
func (c *Claude) Route() engine.Route {
	r := engine.Route{
		Environ: c.environment(c.login().env),
		Proxies: []string{"https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"},
	}
	var clouds []string
	for _, kv := range r.Environ {
		name, value, _ := strings.Cut(kv, "=")
		cloud, isSwitch := strings.CutPrefix(name, "CLAUDE_CODE_USE_")
		if isSwitch && slices.Contains(yes, strings.ToLower(strings.TrimSpace(value))) {
			clouds = append(clouds, cloud)
		}
	}
	switch len(clouds) {
	case 0:
		r.Address, r.Hosts = "ANTHROPIC_BASE_URL", []string{"api.anthropic.com"}
	case 1:
		r.Address = "ANTHROPIC_" + clouds[0] + "_BASE_URL"
	}
	if command.Variable(r.Environ, r.Address) == "" {
		r.Address = ""
	}
	return r
}
