package socket

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/bootclock"
)

// TestReadStop_WhatCounts writes marks of all kinds, and checks which say that the user has stopped the daemon.
func TestReadStop_WhatCounts(t *testing.T) {
	t.Parallel()
	boot, _, _ := strings.Cut(string(bootclock.Mark()), " ")
	long := time.Now().Add(-bootclock.Now() - time.Hour) // before this boot
	for name, c := range map[string]struct {
		mark    string
		made    time.Time // zero: now
		counts  bool
		damaged bool
	}{
		"whole":                       {mark: string(bootclock.Mark()), counts: true},
		"of another boot":             {mark: "another 5\n"},
		"in the future":               {mark: boot + " 9000000000000000000\n"},
		"empty, for a disk was full":  {counts: true, damaged: true},
		"nonsense":                    {mark: "nonsense", counts: true, damaged: true},
		"empty, made before the boot": {made: long},
		"made in the future":          {made: time.Now().Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, StoppedFile)
			err := os.WriteFile(path, []byte(c.mark), 0o600)
			if err == nil && !c.made.IsZero() {
				err = os.Chtimes(path, c.made, c.made)
			}
			if err != nil {
				t.Fatal(err)
			}
			got := ReadStop(dir)
			if (got != nil) != c.counts {
				t.Fatalf("the mark is %+v", got)
			}
			if c.counts && (time.Since(got.At).Abs() > time.Minute || strings.Contains(got.Error(), path) != c.damaged ||
				!strings.Contains(got.Words(), StoppedWords)) {
				t.Errorf("at %v: %v", got.At, got)
			}
			if err := LiftStop(dir); err != nil || ReadStop(dir) != nil {
				t.Errorf("after it was lifted: %v, %v", ReadStop(dir), err)
			}
		})
	}
	if got := ReadStop(t.TempDir()); got != nil {
		t.Errorf("without a mark: %v", got)
	}
}
