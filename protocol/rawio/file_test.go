package rawio

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// places runs test with a directory on a disk and, if the system has one, with one in
// memory.
func places(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	t.Run("disk", func(t *testing.T) {
		t.Helper()
		test(t, t.TempDir())
	})
	t.Run("memory", func(t *testing.T) {
		t.Helper()
		dir, err := os.MkdirTemp("/dev/shm", "rawio")
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		test(t, dir)
	})
}

// TestFile writes at offsets of a file, and fails once the file is closed.
func TestFile(t *testing.T) {
	places(t, func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, "file")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		one := NewFile(f)
		long := strings.Repeat("0123456789", 100_000)
		for _, w := range []struct {
			text string
			off  int64
		}{{long, 3}, {"abc", 0}, {"", 1}, {"xyz", int64(len(long)) + 3}} {
			if n, err := one.WriteAt([]byte(w.text), w.off); n != len(w.text) || err != nil {
				t.Errorf("WriteAt(%.5q, %d) = %d, %v", w.text, w.off, n, err)
			}
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "abc"+long+"xyz" {
			t.Errorf("the file has %d bytes, %v", len(b), err)
		}
		if err := one.Truncate(5); err != nil {
			t.Error(err)
		}
		if err := one.Close(); err != nil {
			t.Error(err)
		}
		if _, err := one.WriteAt([]byte("a"), 0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		read, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		if _, err := NewFile(read).WriteAt([]byte("a"), 0); err == nil {
			t.Error("a file that is open to read was written")
		}
	})
}

// TestStill checks that a file is distinguished from another one at its path.
func TestStill(t *testing.T) {
	places(t, func(t *testing.T, dir string) {
		t.Helper()
		path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		step := func(what string, want bool, do func() error) {
			t.Helper()
			if err := do(); err != nil {
				t.Fatal(err)
			}
			for _, memory := range []bool{false, true} {
				if got := Still(path, info, memory); got != want {
					t.Errorf("%s: Still = %v (%v)", what, got, memory)
				}
			}
		}
		step("untouched", true, func() error { return nil })
		step("written", true, func() error { return os.WriteFile(path, []byte("x"), 0o600) })
		step("moved away", false, func() error { return os.Rename(path, other) })
		step("a link to it", false, func() error { return os.Symlink(other, path) })
		step("moved back", true, func() error { return os.Rename(other, path) })
		step("another", false, func() error {
			return errors.Join(os.WriteFile(other, nil, 0o600), os.Rename(other, path))
		})
		if Still(path+"\x00", info, true) {
			t.Error("a name that no file has")
		}
	})
}
