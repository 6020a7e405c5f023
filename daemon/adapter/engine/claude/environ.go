package claude

import (
	"slices"
	"strings"

	"holdline/daemon/command"
	"holdline/daemon/program"
)

// passed are the names that go from the daemon's environment to the program
// besides those of any session: its login, and what people use to keep it
// from talking about them.
var passed = []string{
	"CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "CLOUD_ML_REGION",
	"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DO_NOT_TRACK",
}

// passedPrefixes are the beginnings of names that go, too.
var passedPrefixes = []string{"ANTHROPIC_", "CLAUDE_CODE_USE_", "AWS_", "GOOGLE_"}

// fixed is what every run gets: nothing in the background that would outlive
// the answer, and no update under our feet.
var fixed = []string{"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1", "DISABLE_AUTOUPDATER=1"}

// Environment builds the environment of a run; see [program.Environment].
func Environment(base, extra, set []string) []string {
	return program.Environment(base, mayPass, slices.Concat(fixed, set), extra)
}

func mayPass(name string) bool {
	if slices.Contains(passed, name) {
		return true
	}
	if strings.HasPrefix(name, "CLAUDE_CODE_SKIP_") && strings.HasSuffix(name, "_AUTH") {
		return true
	}
	return command.HasAnyPrefix(name, passedPrefixes)
}

// Without are those of the variables by which a program may log in that are for
// this one and that it is not given.
func (c *Claude) Without(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !mayPass(name) || command.Variable(c.env, name) != ""
	})
}

// yes are the words by which the program takes a variable for switched on.
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
