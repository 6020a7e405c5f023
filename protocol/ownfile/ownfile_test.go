package ownfile_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"holdline/protocol/ownfile"
)

// TestRefuses checks that anything but a regular file is refused at once, for reading,
// writing and creating.
func TestRefuses(t *testing.T) {
	t.Parallel()
	const limit = 64
	for _, c := range []struct {
		what     string
		readable bool // it can be opened, but not read
		put      func(path string) error
	}{
		{"a named pipe", false, func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{"a directory", false, func(path string) error { return os.Mkdir(path, 0o700) }},
		{"a socket", false, func(path string) error {
			ln, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { _ = ln.Close() })
			}
			return err
		}},
		{"a link to a file", false, func(path string) error {
			return errors.Join(os.WriteFile(path+".victim", []byte("as it was"), 0o600),
				os.Symlink(path+".victim", path))
		}},
		{"a link to nothing", false, func(path string) error { return os.Symlink(path+".none", path) }},
		{"a file that others can write", false, func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o602))
		}},
		{"a sparse file of 6 GiB", true, func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 6<<30))
		}},
		{
			"one byte too many",
			true,
			func(path string) error { return os.WriteFile(path, make([]byte, limit+1), 0o600) },
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "f")
			if err := c.put(path); err != nil {
				t.Fatal(err)
			}
			if b, err := ownfile.Read(path, limit); !errors.Is(err, ownfile.ErrRefused) ||
				errors.Is(err, os.ErrNotExist) {
				t.Errorf("Read = %q, %v, want ErrRefused", b, err)
			}
			if c.readable {
				return
			}
			for _, flag := range []int{
				os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_CREATE | os.O_APPEND,
			} {
				f, err := ownfile.OpenFile(path, flag)
				if !errors.Is(err, ownfile.ErrRefused) || errors.Is(err, os.ErrNotExist) {
					t.Errorf("OpenFile(%#x) = %v, want ErrRefused", flag, err)
				}
				_ = f.Close()
			}
			if b, err := os.ReadFile(path + ".victim"); err == nil && string(b) != "as it was" {
				t.Errorf("what the link leads to holds %q", b)
			}
			if _, err := os.Lstat(path + ".none"); err == nil {
				t.Error("a file was made where the link leads to")
			}
		})
	}
}

// TestReads checks that a file within the limit is read, and that a missing one is
// ErrNotExist.
func TestReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if _, err := ownfile.Read(path, 8); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Read of nothing: %v, want ErrNotExist", err)
	}
	for _, want := range [][]byte{{}, []byte("x"), []byte("12345678")} {
		f, err := ownfile.Create(path) // replaces the file from before
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(want); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if got, err := ownfile.Read(path, 8); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Read = %q, %v, want %q", got, err, want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
		}
	}
}

// TestReplaceFails checks that beforeRename is not called for a file that could not be written.
func TestReplaceFails(t *testing.T) {
	t.Parallel()
	called := false
	path := filepath.Join(t.TempDir(), "none", "f")
	err := ownfile.Replace(path, ".f-*", nil, 0o600, false, func() { called = true })
	if !errors.Is(err, os.ErrNotExist) || called {
		t.Errorf("%v, called %v", err, called)
	}
}
