package jobdir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// TestRemoveRequestFirst checks that removing a job removes its request first, so that
// nothing is left of a job without a request. If the request cannot be removed, the rest
// stays.
func TestRemoveRequestFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "0123456789ab")
	if err := os.MkdirAll(filepath.Join(dir, FileJob, "stuck"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, FileAnswer), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err == nil {
		t.Error("removed what cannot be removed")
	}
	if _, err := os.Stat(filepath.Join(dir, FileAnswer)); err != nil {
		t.Errorf("the answer went before the request: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, FileJob, "stuck")); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

// TestID checks that each line of a session has an id of its own, which is always the same.
func TestID(t *testing.T) {
	ids := map[string]bool{}
	for _, session := range []string{"one", "two"} {
		for n := range int64(3) {
			id := ID(session, n)
			if !IsID(id) || id != ID(session, n) {
				t.Errorf("id %q", id)
			}
			ids[id] = true
		}
	}
	if len(ids) != 6 {
		t.Errorf("%d ids of 6 lines", len(ids))
	}
	for _, name := range []string{"", "0123456789a", "0123456789abc", "0123456789aX", "../456789abc"} {
		if IsID(name) {
			t.Errorf("%q is an id", name)
		}
	}
}

// TestIsDeserted checks that a client counts as gone only if its process is gone, or the
// machine was booted since.
func TestIsDeserted(t *testing.T) {
	self, err := process.Lookup(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	boot := bootclock.ID()
	for name, tt := range map[string]struct {
		rec  Record
		want bool
	}{
		"there":        {Record{BootID: boot, ClientPID: os.Getpid(), ClientStart: self.Start}, false},
		"another one":  {Record{BootID: boot, ClientPID: os.Getpid(), ClientStart: self.Start + 1}, true},
		"other boot":   {Record{BootID: "other", ClientPID: os.Getpid(), ClientStart: self.Start}, true},
		"not recorded": {Record{BootID: boot}, false},
	} {
		if got := tt.rec.IsDeserted(); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestMakeTemp checks that the temporary directory of a run has a path that is short
// enough for the sandbox of level shell, or that the level is refused.
func TestMakeTemp(t *testing.T) {
	short, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	long := filepath.Join(short, strings.Repeat("d", maxTemp))
	sockets := filepath.Join(short, "w")
	for name, tt := range map[string]struct {
		parent, sockets, level string
		beside                 bool // it is beside the worker's socket
		code                   fault.Code
	}{
		"short":     {short, sockets, engine.LevelShell, false, ""},
		"long":      {long, sockets, engine.LevelShell, true, ""},
		"read":      {long, sockets, engine.LevelRead, false, ""},
		"both long": {long, filepath.Join(short, strings.Repeat("w", maxTemp)), engine.LevelShell, false, fault.Denied},
	} {
		dir := filepath.Join(tt.parent, ID(name, 1))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for range 2 { // an earlier daemon may have made it
			temp, err := MakeTemp(dir, tt.sockets, tt.level)
			if f, ok := errors.AsType[*fault.Record](err); tt.code != "" {
				if !ok || f.Fault.Code != tt.code {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			info, serr := os.Stat(temp)
			if err != nil || serr != nil || info.Mode().Perm() != 0o700 ||
				strings.HasPrefix(temp, tt.sockets) != tt.beside {
				t.Errorf("%s: %s, %v, %v", name, temp, err, serr)
			}
		}
	}
}
