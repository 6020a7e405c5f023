package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/contrib"
	"holdline/protocol/programtest"
)

// TestLaunchd checks the finding and the fix for a LaunchAgent whose program is gone or of
// another version, or that launchd has not loaded.
func TestLaunchd(t *testing.T) {
	o := Options{Home: t.TempDir()}
	if found := checkLaunchd(t.Context(), o); found != nil {
		t.Errorf("where there is no launchd: %+v", found)
	}
	o.LaunchAgents = t.TempDir()
	loaded := true
	o.Launchctl = func(_ context.Context, args ...string) error {
		if len(args) != 2 || args[0] != "print" || !strings.HasSuffix(args[1], "/"+contrib.LaunchLabel) {
			t.Errorf("launchctl %q", args)
		}
		if !loaded {
			return errors.New("Could not find service")
		}
		return nil
	}
	if found := checkLaunchd(t.Context(), o); len(found) != 1 || found[0].State != OK ||
		!strings.Contains(found[0].What, "no agent") {
		t.Errorf("without one: %+v", found)
	}
	bin := filepath.Join(o.Home, "holdline")
	good := string(contrib.LaunchAgent(bin, o.Home))
	for _, c := range []struct {
		text          string
		there, loaded bool
		want          []State
	}{
		{good, true, true, []State{OK}},
		{good, true, false, []State{OK, Note}},
		{good, false, true, []State{Problem}},
		{strings.Replace(good, "<integer>25<", "<integer>26<", 1), true, true, []State{Note}},
		{"no property list", true, false, []State{Problem, Note}},
	} {
		loaded = c.loaded
		_ = os.Remove(bin)
		if c.there {
			programtest.Write(t, bin, "")
		}
		if err := os.WriteFile(filepath.Join(o.LaunchAgents, contrib.LaunchAgentFile), []byte(c.text),
			0o600); err != nil {
			t.Fatal(err)
		}
		var got []State
		for _, f := range checkLaunchd(t.Context(), o) {
			got = append(got, f.State)
			if (f.State == OK) == (f.Why != "" && f.Fix != "") {
				t.Errorf("%+v", f)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
