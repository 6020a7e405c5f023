package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDirect_LeavesNoShell checks that a server that is run without the daemon does not
// inherit the shells that were asked for the environment as children, not even as zombies.
func TestDirect_LeavesNoShell(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{})})
	// Only the login shell's answer is needed; the interactive shell, which is asked after
	// it, is still busy.
	for name, text := range map[string]string{".bash_profile": "", ".bashrc": "sleep 600\n"} {
		if err := os.WriteFile(filepath.Join(p.dir, "home", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := p.agent("--direct", "tools").shake()
	pid := a.cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	if left := strings.TrimSpace(string(children)); left != "" {
		t.Errorf("children of the server: %s", left)
	}
	a.leave()
}
