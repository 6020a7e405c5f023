package group_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"holdline/daemon/hosted/group"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// TestPause checks that a pause ends early if it is skipped, and with an error if the daemon
// stops.
func TestPause(t *testing.T) {
	g := group.New(slog.New(slog.DiscardHandler))
	skip := make(chan struct{})
	close(skip)
	if err := g.Pause(time.Hour, skip); err != nil {
		t.Errorf("a pause that is skipped: %v", err)
	}
	if err := g.Pause(0, nil); err != nil {
		t.Errorf("no pause: %v", err)
	}
	g.End()
	for _, d := range []time.Duration{0, time.Hour} {
		if err := g.Pause(d, nil); !errors.Is(err, tool.ErrStopping) {
			t.Errorf("a pause of %v of a daemon that stops: %v", d, err)
		}
	}
}

// TestPanicked checks that a panic is logged with its stack, also while the daemon stops, and
// that its fault names the server.
func TestPanicked(t *testing.T) {
	for _, stops := range []bool{false, true} {
		var log bytes.Buffer
		g := group.New(slog.New(slog.NewTextHandler(&log, nil)))
		if stops {
			g.End()
		}
		f := g.Panicked("s", "did it", "a reason")
		g.WG.Wait()
		g.End()
		if f.Fault.Code != fault.InternalFailure || !strings.Contains(f.Fault.Detail, "did it of server s: a reason") {
			t.Errorf("fault %v: %s", f.Fault.Code, f.Fault.Detail)
		}
		if !strings.Contains(log.String(), "TestPanicked") {
			t.Errorf("the log has no stack: %s", log.String())
		}
	}
}
