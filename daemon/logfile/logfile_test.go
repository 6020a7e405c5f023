package logfile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestRotates checks that no file grows over its limit, and that no more old files are kept
// than configured.
func TestRotates(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	l := File{Path: path, MaxBytes: 100, Keep: 2}
	for range 12 {
		if err := l.Append(append(bytes.Repeat([]byte("x"), 39), '\n')); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int64{"": 80, ".1": 80, ".2": 80, ".3": -1} {
		size := int64(-1)
		if info, err := os.Stat(path + name); err == nil {
			size = info.Size()
		}
		if size != want {
			t.Errorf("log%s has %d bytes, want %d", name, size, want)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestFollowsPath checks that a line goes into the file that the path names now, also after
// another process has rotated it, and that a line cut by a crash is ended first.
func TestFollowsPath(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	l := File{Path: path, MaxBytes: 100, Keep: 1}
	if err := l.Append([]byte("one\n")); err != nil {
		t.Fatal(err)
	}
	if err := Rotate(path, 1); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Append([]byte("two\n")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"": "cut\ntwo\n", ".1": "one\n"} {
		if b, err := os.ReadFile(path + name); err != nil || string(b) != want {
			t.Errorf("log%s is %q, %v, want %q", name, b, err, want)
		}
	}
}

// TestFails checks that if the directory does not exist, lines are lost and nothing else
// fails.
func TestFails(t *testing.T) {
	t.Parallel()
	l := File{Path: filepath.Join(t.TempDir(), "none", "log"), MaxBytes: 100}
	if err := l.Append([]byte("x\n")); err == nil {
		t.Error("no error")
	}
}
