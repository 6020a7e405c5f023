package engines

import (
	"fmt"
	"regexp"
	"testing"

	"holdline/daemon/config"
)

// TestConfigurationKnowsEngines checks that consult.engine accepts the name of each engine and of
// each agent that the file has, and no other, as does the pattern that clients see.
func TestConfigurationKnowsEngines(t *testing.T) {
	file := `{"consult":{"engine":"%s","agents":{"gemini":{"command":"gemini"}}}}`
	set := config.Consult{Agents: map[string]config.Agent{"gemini": {}}}
	pattern := regexp.MustCompile("^" + Pattern() + "$")
	for _, name := range append(Names(&set), "other", "acp:other", "acp:", "gemini") {
		_, err := config.Parse("config.json", fmt.Appendf(nil, file, name))
		known := Find(&set, name) != nil
		if known != (err == nil) {
			t.Errorf("engine %q: known here: %v, configuration: %v", name, known, err)
		}
		if known && !pattern.MatchString(name) {
			t.Errorf("engine %q does not match %s", name, pattern)
		}
	}
	if got := Names(&set); len(got) != len(BuiltIn)+1 || got[0] != "claude" || got[len(BuiltIn)] != "acp:gemini" {
		t.Errorf("names %q", got)
	}
}

// TestUseVariables checks that the variable of an engine changes the program of that engine
// alone.
func TestUseVariables(t *testing.T) {
	for _, e := range BuiltIn {
		c := config.Default().Consult
		UseVariables(&c, func(name string) string {
			if name == e.Variable {
				return "/opt/" + e.Name
			}
			return ""
		})
		for _, other := range BuiltIn {
			want := ""
			if other.Name == e.Name && e.Variable != "" && e.Bin != nil {
				want = "/opt/" + e.Name
			}
			if got := other.Program(&c); got != want {
				t.Errorf("%s set: the program of %s is %q, want %q", e.Variable, other.Name, got, want)
			}
		}
	}
}
