// Package logfile appends to log files and rotates them by their size.
//
// It starts no goroutine and buffers nothing.
package logfile

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"holdline/protocol/ownfile"
)

// File is a log file, which the first append creates with mode 0600 in a directory
// that exists. Two processes may append to one path: each opens the file anew once the
// path names another one, as after a rotation by the other. A File is for one
// goroutine at a time.
type File struct {
	Path     string
	MaxBytes int64 // of the file before it is rotated
	Keep     int   // how many rotated files are kept
	Timed    bool  // a file beside it says when which bytes were appended, see [Moments]

	file *os.File // nil until the first append, and after a failure
	torn bool     // the last line has no end, since its write failed halfway

	noted time.Time // when the last moment was recorded; only if Timed
}

// Append writes b, whole lines, with one system call. If it fails, b is lost, and the
// next append opens the file anew if need be.
func (l *File) Append(b []byte) error {
	size, err := l.openFor(int64(len(b)))
	if err != nil {
		return err
	}
	if l.Timed {
		l.noteMoment(size)
	}
	if l.torn {
		b = append([]byte{'\n'}, b...)
	}
	n, err := l.file.Write(b)
	if err != nil {
		l.torn = l.torn || n > 0
		return fmt.Errorf("writing a record: %w", err)
	}
	l.torn = false
	return nil
}

// Close closes the file. A later append opens it again.
func (l *File) Close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file, l.torn = nil, false
	return err
}

// openFor makes l.file the file that the path names, with room for n bytes, and returns its size:
// it rotates a file that would become too long, and opens the one that is then there. A file that
// others could read loses these permissions.
func (l *File) openFor(n int64) (size int64, err error) {
	named, err := os.Lstat(l.Path)
	isFull := err == nil && named.Mode().IsRegular() && named.Size() > 0 && named.Size()+n > l.MaxBytes
	if l.file != nil {
		if info, ierr := l.file.Stat(); err == nil && ierr == nil && os.SameFile(info, named) && !isFull {
			return named.Size(), nil
		}
		_ = l.Close()
	}
	if isFull {
		if err := Rotate(l.Path, l.Keep); err != nil {
			return 0, fmt.Errorf("rotating: %w", err)
		}
	}
	f, err := ownfile.OpenFile(l.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = f.Chmod(0o600)
	}
	if err != nil {
		_ = f.Close()
		return 0, err
	}
	l.file, l.torn = f, endsTorn(f, info)
	return info.Size(), nil
}

// endsTorn reports whether the last line of a file has no end, as after a crash of the
// machine in the middle of a write.
func endsTorn(f *os.File, info fs.FileInfo) bool {
	last := make([]byte, 1)
	_, err := f.ReadAt(last, info.Size()-1)
	return err == nil && last[0] != '\n'
}

// Rotate renames the file at path to .1, .1 to .2 and so on. It removes all numbered
// files beyond keep, and with keep 0 the file itself. The file must exist; missing
// numbered ones are no error.
func Rotate(path string, keep int) error {
	numbered := func(n int) string { return fmt.Sprintf("%s.%d", path, n) }
	for n := keep + 1; os.Remove(numbered(n)) == nil; n++ {
	}
	if keep == 0 {
		return os.Remove(path)
	}
	for n := keep - 1; n >= 1; n-- {
		if err := os.Rename(numbered(n), numbered(n+1)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return os.Rename(path, numbered(1))
}
