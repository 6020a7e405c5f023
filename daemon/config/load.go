package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"holdline/daemon/shellword"
	"holdline/protocol/faultpoint"
)

// MaxFile bounds a configuration file in bytes.
const MaxFile = 1 << 20

// ErrUnsafe is returned by [Load] for a file that others can write or own, or
// that is no regular file: its content decides what the daemon starts.
var ErrUnsafe = errors.New("unsafe configuration file")

// Load reads and checks the file at path, following symbolic links. A file that does not exist is
// an empty one. A server whose entry has a mistake is left out, as [ParseForUse] does. The errors of a
// file that can be read are [*Error], joined.
func Load(path string) (Config, error) {
	b, err := Read(path)
	if err != nil {
		return Config{}, err
	}
	return ParseForUse(path, b)
}

// Read returns the bytes of the file at path. The error wraps [ErrUnsafe] if other
// users can write the file. A file that does not exist is an empty one. A file that
// is too large is cut off; [Parse] refuses what is left of it.
func Read(path string) ([]byte, error) {
	b, _, err := ReadSafe(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// ReadSafe reads at most one byte more than [MaxFile] from the file at path, and returns
// its mode, too. The error wraps [ErrUnsafe] if other users can write the file.
func ReadSafe(path string) ([]byte, fs.FileMode, error) {
	if err := faultpoint.Opening(path); err != nil {
		return nil, 0, err
	}
	// Non-blocking, since opening a pipe would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("reading %s: %w", path, err)
	}
	if err := safe(path, info, os.Geteuid()); err != nil {
		return nil, 0, err
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, 0, fmt.Errorf("reading %s: %w", path, err)
	}
	return b, info.Mode().Perm(), nil
}

// Absent reports whether there is no file at path, which [Load] takes for an empty one.
func Absent(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// safe returns an error that wraps [ErrUnsafe] unless the file is a regular one of user uid that
// others cannot write. info must be that of the open file: its path may name another one by now.
func safe(path string, info fs.FileInfo, uid int) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is no regular file", ErrUnsafe, path)
	}
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return fmt.Errorf("%w: %s can be written by others (mode %04o); fix it with: chmod go-w %s",
			ErrUnsafe, path, perm, shellword.Quote(path))
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != uid {
		return fmt.Errorf("%w: %s belongs to another user", ErrUnsafe, path)
	}
	return nil
}
