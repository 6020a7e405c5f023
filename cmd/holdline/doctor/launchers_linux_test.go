package doctor

import (
	"fmt"
	"strings"
	"testing"

	"holdline/daemon/config"
)

// TestOptionOfALauncherHasASecret_ItsNameAloneIsShown checks that the finding about an option that keeps a server with
// its launcher names the option, and does not show its value, which may be a token of a registry.
func TestOptionOfALauncherHasASecret_ItsNameAloneIsShown(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("f", []byte(`{"mcpServers": {"s": {"command": "npx",
		"args": ["-y", "--//registry.example/:_authToken=abcdef", "a"]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Loaded: &c, StateDir: t.TempDir()}
	found := fmt.Sprint(o.checkLaunchers())
	const want = "its option --//registry.example/:_authToken may change"
	if !strings.Contains(found, want) || strings.Contains(found, "abcdef") {
		t.Errorf("found %s", found)
	}
}
