package engines

import (
	"slices"
	"testing"

	"holdline/daemon/config"
)

// TestKeysOfSeveralEngines_EachGetsItsOwnAlone checks which variables of consult.env an engine's
// program gets.
func TestKeysOfSeveralEngines_EachGetsItsOwnAlone(t *testing.T) {
	t.Parallel()
	all := []string{
		"ANTHROPIC_API_KEY=1", "CLAUDE_CODE_OAUTH_TOKEN=2", "OPENAI_API_KEY=3", "CODEX_API_KEY=4", "MY_KEY=5",
		"AWS_SECRET_ACCESS_KEY=6", "HTTPS_PROXY=7", "EDITION=8",
	}
	names := func(kept ...int) []string {
		var out []string
		for _, i := range kept {
			out = append(out, all[i-1])
		}
		return out
	}
	for name, tt := range map[string]struct {
		settings      []string
		claude, codex []string
	}{
		"no settings": {claude: names(1, 2, 5, 6, 7, 8), codex: names(3, 4, 5, 7, 8)},
		"a provider's key": {
			settings: []string{`model_providers.mine={base_url="https://x",env_key="MY_KEY"}`},
			claude:   names(1, 2, 6, 7, 8), codex: names(3, 4, 5, 7, 8),
		},
		"a cloud": {
			settings: []string{`model_provider="amazon-bedrock"`},
			claude:   names(1, 2, 5, 6, 7, 8), codex: names(3, 4, 5, 6, 7, 8),
		},
	} {
		c := config.Default().Consult
		c.CodexConfig = tt.settings
		for engine, want := range map[string][]string{"claude": tt.claude, "codex": tt.codex} {
			got := own(&c, engine, all)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s gets %q, want %q", name, engine, got, want)
			}
			row := Find(&c, engine)
			if _, configured := row.New(&c, nil, all).Environ(); len(configured) != len(want) {
				t.Errorf("%s: the program of %s gets %q", name, engine, configured)
			}
		}
	}
}
