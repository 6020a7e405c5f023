package acp

import (
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
)

// TestLevels checks which levels an agent is refused, and why, by the kernel's Landlock and by
// whether the web is allowed.
func TestLevels(t *testing.T) {
	for name, tt := range map[string]struct {
		abi   int
		noWeb bool
		lacks string // part of what level read lacks
	}{
		"enforced":    {3, false, ""},
		"no Landlock": {0, false, "this one has Landlock ABI 0"},
		"an old one":  {2, false, "this one has Landlock ABI 2"},
		"no web":      {7, true, "consult.web is false"},
	} {
		a := New(Options{
			Agent: engine.Agent{Name: "x"}, Command: "/bin/sh", NoWeb: tt.noWeb, Landlock: func() int { return tt.abi },
		})
		info, err := a.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		read, shell := info.Level(engine.LevelRead), info.Level(engine.LevelShell)
		if (read.Lacks == "") != (tt.lacks == "") || !strings.Contains(read.Lacks, tt.lacks) ||
			(read.EnforcedBy == engine.ByLandlock) != (tt.lacks == "") {
			t.Errorf("%s: read %+v", name, read)
		}
		if !strings.Contains(shell.Lacks, "cannot be kept from the network") {
			t.Errorf("%s: shell %+v", name, shell)
		}
	}
}

// TestToolText checks that a title which is no more than the kind is not said twice.
func TestToolText(t *testing.T) {
	for title, want := range map[string]string{"queue.go": "read queue.go", "read": "read", "Read": "read", "": "read "} {
		if got := toolText("read", title); got != want {
			t.Errorf("titled %q it is %q, want %q", title, got, want)
		}
	}
}
