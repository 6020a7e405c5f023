package masked

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/logfile"
)

// TestLogSince_OnlyLaterLines checks which lines of a log are shown that were written since a time,
// and when each was written: also where a line is written in parts, where a secret is hidden, and
// behind a rotation of the file.
func TestLogSince_OnlyLaterLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	synctest.Test(t, func(t *testing.T) {
		log := logfile.File{Path: path, MaxBytes: 200, Keep: 1, Timed: true}
		defer log.Close()
		begun := time.Now()
		write := func(text string) {
			t.Helper()
			if err := log.Append([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		read := func(ago time.Duration) (string, []time.Duration) {
			t.Helper()
			at := Place{}
			if ago > 0 {
				at.Since = time.Now().Add(-ago).UnixMilli()
			}
			part, err := New([]string{"a-secret"}).ReadLog(path, at)
			if err != nil {
				t.Fatal(err)
			}
			var times []time.Duration
			lines := strings.Count(part.Text, "\n")
			for i := range lines {
				for j, when := range part.Times {
					if when.Line <= i && (j+1 == len(part.Times) || part.Times[j+1].Line > i) {
						times = append(times, time.UnixMilli(when.UnixMS).Sub(begun))
					}
				}
			}
			return part.Text, times
		}
		write("one\n")
		time.Sleep(10 * time.Millisecond)
		write("with the first\nbegun ")
		time.Sleep(time.Hour)
		write("ended a-secret\ntwo\n")
		time.Sleep(time.Hour)
		for _, tt := range []struct {
			ago   time.Duration
			text  string
			times []time.Duration
		}{
			{0, "one\nwith the first\nbegun ended ***\ntwo\n", []time.Duration{0, 0, 0, time.Hour}},
			{90 * time.Minute, "ended ***\ntwo\n", []time.Duration{time.Hour, time.Hour}},
			{3 * time.Hour, "one\nwith the first\nbegun ended ***\ntwo\n", []time.Duration{0, 0, 0, time.Hour}},
			{time.Minute, "", nil},
		} {
			text, times := read(tt.ago)
			for i := range times { // to the hour: the file's first moments are a few ms apart
				times[i] = times[i].Truncate(time.Minute)
			}
			if text != tt.text || !reflect.DeepEqual(times, tt.times) {
				t.Errorf("since %v ago: %q, written after %v; want %q, %v", tt.ago, text, times, tt.text, tt.times)
			}
		}
		write(strings.Repeat("x", 190) + "\n")
		if text, times := read(time.Minute); !strings.HasPrefix(text, "xxx") || len(times) != 1 {
			t.Errorf("behind a rotation: %q, %v", text, times)
		}
	})
}

// TestLogThatHasNoTimes_IsShownWhole checks that nothing is left out of which it is not known when
// it was written.
func TestLogThatHasNoTimes_IsShownWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log := logfile.File{Path: path, MaxBytes: 200, Keep: 1}
	if err := log.Append([]byte("some words\n")); err != nil {
		t.Fatal(err)
	}
	_ = log.Close()
	part, err := New(nil).ReadLog(path, Place{Since: time.Now().Add(time.Hour).UnixMilli()})
	if err != nil || part.Text != "some words\n" || part.Times != nil {
		t.Errorf("got %+v, %v", part, err)
	}
}
