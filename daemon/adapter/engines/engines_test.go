package engines

import (
	"slices"
	"testing"

	"holdline/daemon/config"
)

// TestConfigurationKnowsEngines: the configuration takes the name of each engine as
// the default one, and no other.
func TestConfigurationKnowsEngines(t *testing.T) {
	for _, name := range append(Names(), "other") {
		_, err := config.Parse("config.json", []byte(`{"consult":{"engine":"`+name+`"}}`))
		if known := Find(name) != nil; known != (err == nil) {
			t.Errorf("engine %q: known here: %v, configuration: %v", name, known, err)
		}
	}
}

func TestUseVariables(t *testing.T) {
	for _, e := range All {
		c := config.Default().Consult
		UseVariables(&c, func(name string) string {
			if name == e.Variable {
				return "/opt/" + e.Name
			}
			return ""
		})
		if *e.Bin(&c) != "/opt/"+e.Name {
			t.Errorf("%s: %s does not name the program: %q", e.Name, e.Variable, *e.Bin(&c))
		}
		for _, other := range All {
			if other.Name != e.Name && *other.Bin(&c) != "" {
				t.Errorf("%s names the program of %s", e.Variable, other.Name)
			}
		}
	}
	if !slices.Equal(Names(), []string{"claude", "codex"}) {
		t.Errorf("Names = %v", Names())
	}
}
