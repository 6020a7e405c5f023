package cli

import (
	"testing"
	"time"

	"holdline/protocol/control"
)

// TestCountedSince checks that a status says from when the daemon has counted calls if sessions are older than the
// daemon, and only then.
func TestCountedSince(t *testing.T) {
	for name, c := range map[string]struct {
		uptime   int64
		sessions []control.Session
		says     bool
	}{
		"no session":                  {uptime: 1000},
		"younger":                     {uptime: 60_000, sessions: []control.Session{{SinceMS: 50_000}}},
		"one that waited for it":      {uptime: 60_000, sessions: []control.Session{{SinceMS: 62_000}}},
		"one of the daemon before it": {uptime: 60_000, sessions: []control.Session{{SinceMS: 50_000}, {SinceMS: 90_000}}, says: true},
	} {
		s := &control.StatusAnswer{Sessions: c.sessions}
		s.Daemon.UptimeMS = c.uptime
		at := countedSince(s)
		if at.IsZero() == c.says {
			t.Errorf("%s: it has counted since %v", name, at)
		}
		if began := time.Now().Add(-time.Minute); c.says && (at.Before(began.Add(-time.Hour)) || at.After(began.Add(time.Second))) {
			t.Errorf("%s: it has counted since %v, want %v", name, at, began)
		}
	}
}
