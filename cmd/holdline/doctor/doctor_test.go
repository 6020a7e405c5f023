package doctor

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestRun_NoConfiguration checks that the other checks are made if it is not known where the
// configuration is, as without HOME.
func TestRun_NoConfiguration(t *testing.T) {
	o := options(t)
	o.Config, o.ConfigErr = "", os.ErrInvalid
	found := Run(t.Context(), *o)
	for _, check := range []string{"configuration", "daemon"} {
		if !slices.ContainsFunc(found, func(f Finding) bool { return f.Check == check && f.State != OK }) {
			t.Errorf("no finding about the %s: %+v", check, found)
		}
	}
}

// TestStateDirIsAFile checks that the fix for a file in the place of the state directory is another one than
// that for a directory which others can read.
func TestStateDirIsAFile(t *testing.T) {
	o := options(t)
	if err := os.WriteFile(o.StateDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := checkStateDir(*o); f.State != Problem || !strings.HasPrefix(f.Fix, "mv "+o.StateDir) {
		t.Errorf("a file: %+v", f)
	}
}
