package serverlog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"holdline/protocol/control"
)

// TestLastLogSince checks which lines of the kept log of a process that has ended are shown since a time.
func TestLastLogSince(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.log")
	if l, err := Last(path, 0); l != nil || err != nil {
		t.Errorf("without a file: %+v, %v", l, err)
	}
	times := []control.LogTime{{Line: 1, UnixMS: 100_000}, {Line: 2, UnixMS: 200_000}}
	for _, tt := range []struct {
		name  string
		times []control.LogTime
		since int64
		text  string
		left  []control.LogTime
	}{
		{"all", times, 0, "printed\none\ntwo\n", times},
		{"from the second on", times, 150_000, "two\n", []control.LogTime{{UnixMS: 200_000}}},
		{"nothing", times, 300_000, "", nil},
		{"times are unknown, ended later", nil, 300_000, "printed\none\ntwo\n", nil},
		{"times are unknown, ended before", nil, 500_000, "", nil},
	} {
		b, err := json.Marshal(control.ServerLog{Text: "printed\none\ntwo\n", Times: tt.times, EndedMS: 400_000})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Last(path, tt.since)
		if err != nil || l.Text != tt.text || !reflect.DeepEqual(l.Times, tt.left) {
			t.Errorf("%s: %+v, %v, want %q, %v", tt.name, l, err, tt.text, tt.left)
		}
	}
}
