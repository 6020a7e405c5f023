// Package writetest tries every way in which a program can write to a directory.
package writetest

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Names of what [Prepare] puts into a directory.
const (
	kept  = "kept"  // a file with one line
	other = "other" // a file to remove
	empty = "empty" // a directory
)

// Prepare fills dir for [Attempt].
func Prepare(dir string) error {
	err := os.MkdirAll(filepath.Join(dir, empty), 0o700)
	for _, name := range []string{kept, other} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte("as it was\n"), 0o600))
	}
	return err
}

// way is one way to change a directory.
type way struct {
	name string
	try  func() error
}

// Attempt tries to change dir, and returns the names of the ways that worked. [Prepare]
// must have filled dir, and no attempt may have been made on it before. own is another such
// directory, in which the caller may write: some ways go through it.
func Attempt(dir, own string) (could []string) {
	in := func(name string) string { return filepath.Join(dir, name) }
	mine := func(name string) string { return filepath.Join(own, name) }
	ways := []way{
		{"create a file", func() error { return os.WriteFile(in("new"), nil, 0o600) }},
		{"append to a file", func() error { return open(in(kept), os.O_APPEND|os.O_WRONLY, "more\n") }},
		{"write into a file", func() error { return open(in(kept), os.O_RDWR, "AS") }},
		{"write through a symbolic link", func() error {
			_ = os.Remove(mine("way"))
			return errors.Join(os.Symlink(in(kept), mine("way")), open(mine("way"), os.O_WRONLY, "AS"))
		}},
		{"write through a descriptor opened anew", func() error { return reopen(in(kept)) }},
		{"write through a hard link", func() error {
			return errors.Join(os.Link(in(kept), mine("hard")), open(mine("hard"), os.O_WRONLY, "AS"))
		}},
		{"link a file into it", func() error { return os.Link(mine(kept), in("linked")) }},
		{"rename a file into it", func() error { return os.Rename(mine(other), in("moved")) }},
		{"rename a file in it", func() error { return os.Rename(in(other), in("other name")) }},
		{"rename a file out of it", func() error { return os.Rename(in("other name"), mine("taken")) }},
		{"make a directory", func() error { return os.Mkdir(in("directory"), 0o700) }},
		{"remove a directory", func() error { return os.Remove(in(empty)) }},
		{"make a symbolic link", func() error { return os.Symlink("/", in("symlink")) }},
		{"make a fifo", func() error { return syscall.Mkfifo(in("fifo"), 0o600) }},
		{"bind a socket", func() error { return bind(in("s")) }},
		{"have a child create a file", func() error {
			return exec.CommandContext(context.Background(), "sh", "-c", `: >"$0"`, in("child's")).Run()
		}},
		{"open a file to be truncated", func() error { return open(in(kept), os.O_TRUNC|os.O_WRONLY, "") }},
		{"truncate a file", func() error { return os.Truncate(in(kept), 0) }},
		{"remove a file", func() error { return os.Remove(in(kept)) }},
	}
	for _, w := range append(peculiar(in, mine), ways...) {
		if w.try() == nil {
			could = append(could, w.name)
		}
	}
	return could
}

// AttemptAttributes tries to change the metadata of a file in dir, and returns the names of
// what it could change. [Prepare] must have filled dir.
func AttemptAttributes(dir string) (could []string) {
	path := filepath.Join(dir, kept)
	for _, w := range []way{
		{"mode", func() error { return os.Chmod(path, 0o700) }}, //nolint:gosec // its owner can still write to it
		{"times", func() error { return os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)) }},
		{"extended attribute", func() error { return unix.Setxattr(path, "user.holdline", []byte("x"), 0) }},
	} {
		if w.try() == nil {
			could = append(could, w.name)
		}
	}
	return could
}

func open(path string, how int, data string) error {
	f, err := os.OpenFile(path, how, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(data)
	return errors.Join(err, f.Close())
}

// reopen writes into a file through a descriptor that was opened for reading.
func reopen(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return open("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), os.O_WRONLY, "AS")
}

func bind(path string) error {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err != nil {
		return err
	}
	return ln.Close()
}

// Listing returns the names, kinds and contents of everything in dir.
func Listing(dir string) (string, error) {
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		var text string
		if err == nil && d.Type().IsRegular() {
			var b []byte
			b, err = os.ReadFile(path) //nolint:gosec // in a test's own directory
			text = " " + strconv.Quote(string(b))
		}
		switch {
		case path != dir && errors.Is(err, os.ErrNotExist): // it was removed meanwhile
			return nil
		case err != nil:
			return err
		}
		all.WriteString(strings.TrimPrefix(path, dir) + " " + d.Type().String() + text + "\n")
		return nil
	})
	return all.String(), err
}
