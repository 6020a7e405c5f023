package engines

import (
	"slices"
	"strings"

	"holdline/daemon/command"
	"holdline/daemon/config"
)

// logins are the names of the variables that log in an engine that is built in, or say how it
// reaches its API.
var logins = map[string]command.Names{
	"claude": command.NewNames("ANTHROPIC_*", "CLAUDE_*", "AWS_*", "GOOGLE_*", "CLOUD_ML_*", "VERTEX_*"),
	"codex":  command.NewNames("OPENAI_*", "CODEX_*", "AZURE_*"),
}

// clouds are the names of variables of clouds that have models for several engines. They are an
// engine's own if its settings name the cloud.
var clouds = []struct {
	word  string
	names command.Names
}{
	{"bedrock", command.NewNames("AWS_*")},
	{"aws", command.NewNames("AWS_*")},
	{"vertex", command.NewNames("GOOGLE_*", "CLOUD_ML_*", "VERTEX_*")},
	{"google", command.NewNames("GOOGLE_*", "CLOUD_ML_*", "VERTEX_*")},
}

// own returns those of the variables which an engine that is built in may have: all but the logins
// of the others. A model that can print what its engine's program has must not send the key of one
// provider to another.
func own(c *config.Consult, name string, variables []string) []string {
	settings := strings.ToLower(strings.Join(c.CodexConfig, "\n"))
	return slices.DeleteFunc(slices.Clone(variables), func(kv string) bool {
		variable, _, _ := strings.Cut(kv, "=")
		if name != "codex" {
			return logins["codex"].Has(variable) || named(c.CodexConfig, variable)
		}
		if !logins["claude"].Has(variable) || named(c.CodexConfig, variable) {
			return false
		}
		for _, cloud := range clouds {
			if cloud.names.Has(variable) && strings.Contains(settings, cloud.word) {
				return false
			}
		}
		return true
	})
}

// named reports whether one of the settings of Codex names a variable, such as env_key="NAME".
func named(settings []string, variable string) bool {
	for _, s := range settings {
		words := strings.FieldsFunc(s, func(r rune) bool {
			return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		})
		if slices.Contains(words, variable) {
			return true
		}
	}
	return false
}
