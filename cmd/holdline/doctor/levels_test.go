package doctor

import (
	"strings"
	"testing"

	"holdline/daemon/sandbox"
	"holdline/protocol/control"
)

// TestLevels checks that an enforced level says by what, and a refused one why and how to
// fix it. Neither is a problem, because consults work.
//
// What holds confined servers follows Landlock.
func TestLevels(t *testing.T) {
	found := checkLevels("consult", "read", control.CheckAnswer{Levels: []control.Level{
		{Name: "read", EnforcedBy: "landlock", Notes: []string{"Landlock ABI 7"}},
		{Name: "shell", Lacks: "socat is not installed; install the package socat"},
	}})
	if len(found) != 2 {
		t.Fatalf("%d findings: %+v", len(found), found)
	}
	if f := checkLandlock(); f.Check != "landlock" || (f.State == OK) != (sandbox.Landlock() >= sandbox.Complete) ||
		f.State != OK && f.Fix == "" {
		t.Errorf("%+v", f)
	}
	if f := new(Options).checkConfinement(); f.Check != "confined servers" || (f.State == OK) != (sandbox.Refusal(false) == nil) ||
		f.State != OK && f.Fix == "" {
		t.Errorf("%+v", f)
	}
	if f := found[0]; f.State != OK || f.What != "held by landlock (Landlock ABI 7)" {
		t.Errorf("%+v", f)
	}
	if f := found[1]; f.State != Note || !strings.HasPrefix(f.What, "refused: socat is not installed") ||
		f.Fix != "install the package socat" || f.Why == "" || !f.Unused {
		t.Errorf("%+v", f)
	}
	if found := checkLevels("consult", "read", control.CheckAnswer{}); len(found) != 0 {
		t.Errorf("of a daemon that says nothing of levels: %+v", found)
	}
}
