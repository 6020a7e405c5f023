package cli

import (
	"strings"
	"testing"

	"holdline/cmd/holdline/cmdenv"
)

// TestServersAreCompleted checks that the shell completes the name of a server behind each command
// that takes one, instead of the names of files.
func TestServersAreCompleted(t *testing.T) {
	servers, _, err := NewRoot(&cmdenv.Process{}).Find([]string{"servers"})
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range servers.Commands() {
		if strings.Contains(cmd.Use, "NAME") && cmd.Name() != "add" && cmd.ValidArgsFunction == nil {
			t.Errorf("holdline servers %s completes no name", cmd.Name())
		}
	}
}
