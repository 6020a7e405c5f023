package hosted

import (
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestLeft: a call that an earlier daemon has made gets no more time for that in
// all; until it is told of progress it gets what is left, but if there may have
// been progress before, its time begins anew.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{Log: slog.New(slog.DiscardHandler), Servers: []Spec{{Name: "s", Timeout: 300 * time.Second, MaxTimeout: time.Hour}}})
		s := m.servers["s"]
		told := func(json.RawMessage) {}
		for _, tc := range []struct {
			name             string
			made             time.Duration // ago, by an earlier daemon; 0 is by this one
			progress         func(json.RawMessage)
			timeout, longest time.Duration
		}{
			{"a new one", 0, told, 300 * time.Second, time.Hour},
			{"one that says nothing", 100 * time.Second, nil, 200 * time.Second, time.Hour - 100*time.Second},
			{"one that says nothing, and is late", 400 * time.Second, nil, time.Second, time.Hour - 400*time.Second},
			{"one that tells its progress", 1000 * time.Second, told, 300 * time.Second, time.Hour - 1000*time.Second},
			{"one that has told its progress for long", 2 * time.Hour, told, 300 * time.Second, time.Second},
		} {
			c := &call{progress: tc.progress}
			if tc.made > 0 {
				c.deadline = time.Now().Add(300*time.Second - tc.made)
			}
			if timeout, longest := m.left(s, c); timeout != tc.timeout || longest != tc.longest {
				t.Errorf("%s has %v, %v in all; want %v, %v", tc.name, timeout, longest, tc.timeout, tc.longest)
			}
		}
	})
}

// TestNumber: ids and tokens are found by value, since some servers have only
// one sort of numbers, or keep ids as strings.
func TestNumber(t *testing.T) {
	for raw, want := range map[string]int64{
		"7": 7, "7.0": 7, "7e0": 7, "70e-1": 7, "0": 0, "-7": 0, "7.5": 0, `"7"`: 7, `"x7"`: 0, "": 0, "null": 0, "9007199254740993": 9007199254740993,
		"9007199254740993.0": 0, "1e400": 0, "0.0": 0, "1e3": 1000,
	} {
		if got := number([]byte(raw)); got != want {
			t.Errorf("number(%s) = %d, want %d", raw, got, want)
		}
	}
}
