package stage_test

import (
	"testing"

	"holdline/daemon/hosted/stage"
)

// TestOf checks the stage of an instance of which several things are true.
func TestOf(t *testing.T) {
	for _, x := range []struct {
		facts stage.Facts
		want  stage.Stage
		state string
	}{
		{stage.Facts{}, stage.Idle, "idle"},
		{stage.Facts{Adopting: true, Up: true, Process: stage.Serving}, stage.Adopting, "starting"},
		{stage.Facts{Up: true, Process: stage.Serving, Ejected: true}, stage.Running, "ready"},
		{stage.Facts{Up: true, Process: stage.Ending, Ejected: true}, stage.Ejected, "starting"},
		{stage.Facts{Starting: true, BackingOff: true}, stage.BackingOff, "starting"},
		{stage.Facts{Starting: true}, stage.Launching, "starting"},
		{stage.Facts{Up: true}, stage.Launching, "starting"},
		{stage.Facts{Up: true, Process: stage.Ending}, stage.Stopping, "starting"},
	} {
		got := stage.Of(x.facts)
		if got != x.want {
			t.Errorf("Of(%+v) = %d, want %d", x.facts, got, x.want)
		}
		if state := got.State(x.facts.Up, false, false); state != x.state {
			t.Errorf("the state of %+v is %s, want %s", x.facts, state, x.state)
		}
	}
	if got := stage.Worse("failed", "ready"); got != "failed" {
		t.Errorf("Worse(failed, ready) = %s", got)
	}
	if got := stage.Launching.State(false, true, true); got != "recovering" {
		t.Errorf("a start after a failure: %s, want recovering", got)
	}
}
