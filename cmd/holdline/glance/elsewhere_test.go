package glance

import (
	"slices"
	"testing"

	"holdline/protocol/control"
)

// TestElsewhere checks what is said of servers on other machines.
func TestElsewhere(t *testing.T) {
	far := func(name, state string, attached bool, us int64, lost string) control.Worker {
		return control.Worker{Name: name, Host: "box", State: state, Attached: attached, RTTUS: us, Unreachable: lost}
	}
	got := Elsewhere([]control.Worker{
		{Name: "here", State: "ready", Attached: true},
		far("near", "ready", true, 340, ""), far("far", "ready", true, 123_456, ""), far("far", "ready", true, 123_456, ""),
		far("new", "ready", true, 0, ""), far("begins", "starting", false, 0, ""), far("ends", "stopping", false, 0, ""),
		far("off", "recovering", false, 340, "no route"), far("breaks", "recovering", false, 340, ""),
	})
	want := []string{
		"near runs on box, 300µs away", "far runs on box, 123ms away", "new runs on box",
		"begins runs on box; the connection is being made", "off runs on box, which cannot be reached",
		"breaks runs on box; the connection was lost",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Elsewhere:\n got %q\nwant %q", got, want)
	}
}
