package claude_test

import (
	"os"
	"testing"

	"holdline/daemon/adapter/engine/claude/claudetest"
)

// TestMain lets the test binary stand in for the program.
func TestMain(m *testing.M) {
	if os.Getenv(claudetest.FakeEnv) != "" {
		os.Exit(claudetest.FakeMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	}
	os.Exit(m.Run())
}
