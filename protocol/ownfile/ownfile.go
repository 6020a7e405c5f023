// Package ownfile opens the files in which the program keeps its own state.
// It refuses what is no regular file of this user, or is too large: a named pipe in the
// place of a file would hang the reader, a symbolic link would lead a write elsewhere, and
// a huge file would take all memory.
//
// It is not for files that the user writes, such as the configuration: these may be links.
package ownfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"holdline/protocol/faultpoint"
	"holdline/protocol/lockcheck"
)

// ErrRefused is wrapped by the errors about something that lies in the place of
// a file and is not a regular file which this user alone can write, or is too
// large. It never wraps [os.ErrNotExist].
var ErrRefused = errors.New("not a file that can be used")

// Bounds of what [Read] accepts, in bytes.
const (
	MaxNumber   = 4 << 10   // of a file with a number or a name
	MaxDocument = 128 << 20 // of a JSON document; the longest line of a server fits
)

// Open opens the file at path for reading.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY) }

// OpenFile opens the file at path with the flags of [os.OpenFile]. If flag has
// [os.O_CREATE] a file that is not there is made with mode 0600. Flag must not
// have [os.O_TRUNC], which would act before the file is looked at.
func OpenFile(path string, flag int) (*os.File, error) {
	lockcheck.Blocking("open")
	if err := faultpoint.Opening(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, refuse(path, "a symbolic link")
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.EOPNOTSUPP): // a pipe without a reader, or a socket
		return nil, refuse(path, "a pipe or a socket")
	case errors.Is(err, syscall.EISDIR):
		return nil, refuse(path, "a directory")
	case err != nil:
		return nil, err
	}
	if err := check(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Create makes a new file at path, open for reading and writing. What a killed
// process has left there is removed first.
func Create(path string) (*os.File, error) {
	lockcheck.Blocking("create")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// WriteTemp writes data into a new file in dir, which is about to take the place of
// another by a rename, and returns its path. The pattern of the name is that of
// [os.CreateTemp]. With sync the data is on the disk before WriteTemp returns. If
// it fails it leaves no file.
func WriteTemp(dir, pattern string, data []byte, mode fs.FileMode, sync bool) (path string, err error) {
	lockcheck.Blocking("write")
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if mode != 0o600 { // which it has
		err = errors.Join(err, f.Chmod(mode))
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// Rename renames the file temp, which has data, to path. If path is mounted by itself, as from
// the host of a container, nothing can take its place: Rename writes data into it then, of
// which a reader may see a part.
func Rename(temp, path string, data []byte) error {
	err := os.Rename(temp, path)
	if !errors.Is(err, syscall.EBUSY) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Truncate(int64(len(data)))
	}
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(temp))
}

// Replace puts data into path as a whole, by [Rename]: a reader sees the old content
// or the new. The other parameters are those of [WriteTemp]. beforeRename, if it is
// not nil, is called once the new file is written and not yet in its place.
func Replace(path, pattern string, data []byte, mode fs.FileMode, sync bool, beforeRename func()) error {
	temp, err := WriteTemp(filepath.Dir(path), pattern, data, mode, sync)
	if err != nil {
		return err
	}
	if beforeRename != nil {
		beforeRename()
	}
	if err = Rename(temp, path, data); err != nil {
		_ = os.Remove(temp)
	}
	return err
}

// Read reads the file at path, which may hold limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := ReadBounded(f, limit)
	if errors.Is(err, errTooLarge) {
		return nil, refuse(path, fmt.Sprintf("a file of more than %d bytes", limit))
	}
	return b, err
}

// ReadJSON decodes the JSON file at path, of at most [MaxDocument] bytes, into v. If it is no
// such JSON, the error says which file it was.
func ReadJSON(path string, v any) error {
	b, err := Read(path, MaxDocument)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// errTooLarge is wrapped by the error of [ReadBounded] about a file that is too large.
var errTooLarge = errors.New("it is too large")

// ReadBounded reads all of an open file, which may hold limit bytes. Of a larger file it
// reads nothing, unless the file is growing.
func ReadBounded(f *os.File, limit int64) (b []byte, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	if size <= limit {
		b, err = io.ReadAll(io.LimitReader(f, limit+1))
		size = int64(len(b))
	}
	if err == nil && size > limit {
		return nil, fmt.Errorf("%w: it has more than %d bytes", errTooLarge, limit)
	}
	return b, err
}

// check refuses what is open as f if it is not a regular file of this user that
// others cannot write.
func check(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case mode.Type() == fs.ModeNamedPipe:
		return refuse(f.Name(), "a named pipe")
	case mode.IsDir():
		return refuse(f.Name(), "a directory")
	case !mode.IsRegular():
		return refuse(f.Name(), "a device")
	case ok && int(st.Uid) != os.Geteuid():
		return refuse(f.Name(), fmt.Sprintf("a file of user %d", st.Uid))
	case mode.Perm()&0o022 != 0:
		return refuse(f.Name(), "a file that other users can write")
	}
	return nil
}

// A file with an error that passes is read again, with pauses of PassingPause. After PassingTime the error counts
// for damage of the file.
const (
	PassingTime  = 5 * time.Second
	PassingPause = 50 * time.Millisecond
)

// Passes reports whether an error at reading a file is one that passes: it says nothing about the file,
// which may be read a moment later. The machine or this process was short of something, or the disk failed.
func Passes(err error) bool {
	for _, e := range []error{
		syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// tries is how often [Again] reads.
const tries = 3

// Again calls read again, a few times and at once, while it returns an error that passes, and returns the last
// error. It is for who cannot wait: another one has given back what was short, or never does.
func Again(read func() error) error {
	err := read()
	for try := 1; Passes(err) && try < tries; try++ {
		err = read()
	}
	return err
}

// Patiently calls read again, with pauses, while it returns an error that passes, and returns the last error: of
// the first call after PassingTime since begun, or as soon as ctx is done.
func Patiently(ctx context.Context, begun time.Time, read func() error) error {
	pause := time.NewTicker(PassingPause)
	defer pause.Stop()
	for {
		err := read()
		if !Passes(err) || time.Since(begun) >= PassingTime {
			return err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return err
		}
	}
}

// refuse returns an [ErrRefused] about what lies at path.
func refuse(path, what string) error {
	return fmt.Errorf("%s is %s, %w: Holdline has not put it there; move it away", path, what, ErrRefused)
}
