package service

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"holdline/contrib"
)

// TestLaunchAgentStart checks that launchd is asked to start the daemon if it has the
// agent, and that otherwise the caller starts it.
func TestLaunchAgentStart(t *testing.T) {
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	launchctl := filepath.Join(dir, "launchctl")
	a := LaunchAgent{file: filepath.Join(dir, contrib.LaunchAgentFile), launchctl: launchctl}
	script := func(code int) {
		t.Helper()
		if err := os.WriteFile(launchctl, fmt.Appendf(nil, "#!/bin/sh\necho \"$@\" >> %s\nexit %d\n", asked, code),
			0o700); err != nil {
			t.Fatal(err)
		}
	}
	script(0)
	if (LaunchAgent{}).Start(t.Context()) || a.Start(t.Context()) {
		t.Error("without an agent the start is left to launchd")
	}
	if err := os.WriteFile(a.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !a.Start(t.Context()) {
		t.Error("launchd is not asked")
	}
	if b, err := os.ReadFile(asked); err != nil ||
		string(b) != fmt.Sprintf("kickstart gui/%d/holdline.daemon\n", os.Getuid()) {
		t.Errorf("launchctl was asked %q, %v", b, err)
	}
	script(113) // launchd does not know the agent
	if a.Start(t.Context()) {
		t.Error("the start is left to a launchd that does not know the agent")
	}
}
