package engines

import (
	"testing"

	"holdline/daemon/config"
)

// TestConfigurationKnowsEngines checks that consult.engine accepts the name of each engine,
// and no other.
func TestConfigurationKnowsEngines(t *testing.T) {
	for _, name := range append(Names(), "other") {
		_, err := config.Parse("config.json", []byte(`{"consult":{"engine":"`+name+`"}}`))
		if known := Find(name) != nil; known != (err == nil) {
			t.Errorf("engine %q: known here: %v, configuration: %v", name, known, err)
		}
	}
}

// TestUseVariables checks that the variable of an engine changes the program of that engine
// alone.
func TestUseVariables(t *testing.T) {
	for _, e := range All {
		c := config.Default().Consult
		UseVariables(&c, func(name string) string {
			if name == e.Variable {
				return "/opt/" + e.Name
			}
			return ""
		})
		for _, other := range All {
			want := ""
			if other.Name == e.Name && e.Bin != nil {
				want = "/opt/" + e.Name
			}
			if got := other.Program(&c); got != want {
				t.Errorf("%s set: the program of %s is %q, want %q", e.Variable, other.Name, got, want)
			}
		}
	}
}
