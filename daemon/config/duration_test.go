package config

import (
	"testing"
	"time"
)

// TestDuration checks how people read a time limit.
func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 30 * time.Second: "30s", 5 * time.Minute: "5m", 90 * time.Second: "1m30s", time.Hour: "1h",
		100 * time.Minute: "1h40m", 24 * time.Hour: "24h", time.Hour + time.Second: "1h0m1s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
