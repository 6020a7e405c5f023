package console

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestSince_FormsOfTimes checks which texts name a time in the past.
func TestSince_FormsOfTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.Local)
		later := now.Add(time.Minute)
		tomorrow := 0 // a minute from now may be of the next day
		if later.Day() != now.Day() {
			tomorrow = 1
		}
		for text, want := range map[string]time.Time{
			"10m": now.Add(-10 * time.Minute), "1h30m": now.Add(-90 * time.Minute), "0s": now,
			now.Format("15:04"): now.Truncate(time.Minute), later.Format(time.TimeOnly): later.AddDate(0, 0, -1+tomorrow),
			"2020-01-02": time.Date(2020, 1, 2, 0, 0, 0, 0, time.Local), now.Format(time.DateOnly): midnight,
			"2020-01-02 03:04": time.Date(2020, 1, 2, 3, 4, 0, 0, time.Local),
			"2020-01-02T03:04": time.Date(2020, 1, 2, 3, 4, 0, 0, time.Local), "2020-01-02T03:04:05Z": time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC),
		} {
			var s Since
			if err := s.Set(text); err != nil || !s.Equal(want) {
				t.Errorf("%s: %v, %v, want %v", text, s, err, want)
			}
		}
		for _, text := range []string{"", "yesterday", "-10m", "10", "25:00", "2020-13-01"} {
			if err := new(Since).Set(text); err == nil {
				t.Errorf("%q is taken for a time", text)
			}
		}
	})
}

// TestTailSince checks that the lines of the daemon's log since a time are printed, with those without
// a time behind them.
func TestTailSince(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	text := "2026-01-01 10:00:00.000 INF one\n2026-01-01 11:00:00.900 ERR two\n  a stack\n2026-01-01 12:00:00.000 INF three\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for since, want := range map[string]string{
		"2026-01-01T09:00": text, "2026-01-01T11:00": text[32:], "2026-01-01T11:30": text[74:], "2026-01-01T13:00": "",
	} {
		var s Since
		if err := s.Set(since); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := Tail(t.Context(), &out, path, 10, s.Time, false); err != nil || out.String() != want {
			t.Errorf("since %s: %q, %v, want %q", since, out.String(), err, want)
		}
	}
}
