package events

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestLinesWithANoteAreEvents checks that a note in a line of the log is an event, whatever
// the log shows, and that the log shows only its kind.
func TestLinesWithANoteAreEvents(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelInfo, slog.LevelError} {
		var out bytes.Buffer
		ring := NewRing()
		log := slog.New(ring.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))
		log.Info("nothing to see")
		log.With("component", "x").WithGroup("g").Info("server failed", "event",
			NewBad(control.Crashed, "github", "exit code %d\nsecret", 3))
		log.Debug("not even looked at", "event", New(control.Served, "github", "started"))
		got, _ := ring.After(0)
		if len(got) != 1 || got[0].N != 1 || got[0].Kind != control.Crashed || got[0].Subject != "github" ||
			!got[0].Bad || got[0].Text != "exit code 3 secret" || got[0].AtMS == 0 {
			t.Fatalf("at level %v the events are %+v", level, got)
		}
		shown := out.String()
		if strings.Contains(shown, "secret") || strings.Contains(shown, "event=crash") != (level == slog.LevelInfo) {
			t.Errorf("at level %v the log shows %s", level, shown)
		}
	}
}

// TestSlowReaderLosesEvents checks that a ring keeps the last events alone, that adding to it
// does not wait for a reader, and that a reader gets the others in order, once.
func TestSlowReaderLosesEvents(t *testing.T) {
	ring := NewRing()
	errDone := errors.New("read enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ring.Add(New(control.Served, "one", ""))
	var got []int64
	err := ring.Follow(ctx, 0, func(e control.Event) {
		if got = append(got, e.N); e.N == 1 { // a slow reader: meanwhile much happens
			for range 3 * kept {
				ring.Add(New(control.Served, "more", ""))
			}
		}
		if e.N == 3*kept+1 {
			cancel(errDone)
		}
	})
	if !errors.Is(err, errDone) || len(got) != 1+kept || got[1] != 2*kept+2 {
		t.Errorf("%v, %d events, the second is %d", err, len(got), got[1])
	}
	if rest, _ := ring.After(3*kept + 1); len(rest) != 0 {
		t.Errorf("after the last event come %+v", rest)
	}
}
