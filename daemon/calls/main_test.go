package calls

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets the models use memory instead of time: most of what they allocate stays.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
