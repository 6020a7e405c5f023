package socket

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"holdline/protocol/faultpoint"
	"holdline/protocol/ownfile"
)

// maxPointer is the most bytes that a pointer file may have.
const maxPointer = 4 << 10

// WritePointer tells those who look for the daemon that it listens at path.
// It does nothing if the path is explicit: a private daemon must not become
// the user's. Each file is replaced whole. The error names every file that
// could not be written; the others are.
func (p Paths) WritePointer(path string) error {
	return p.point(path, func(string) bool { return true })
}

// KeepPointer is [Paths.WritePointer] for the files that are gone: another
// daemon may have put its own there, and taken it away when it stopped. What
// names another socket is left alone.
func (p Paths) KeepPointer(path string) error {
	return p.point(path, func(file string) bool {
		_, err := os.Lstat(file)
		return errors.Is(err, os.ErrNotExist)
	})
}

// point writes the pointer files that are wanted.
func (p Paths) point(path string, wanted func(file string) bool) error {
	if p.explicit != nil {
		return nil
	}
	var errs []error
	for _, file := range p.pointers {
		if !wanted(file) {
			continue
		}
		if err := writePointer(file, path); err != nil {
			errs = append(errs, fmt.Errorf("write pointer: %w", err))
		}
	}
	return errors.Join(errs...)
}

// RemovePointer removes the pointers to path and leaves others alone.
func (p Paths) RemovePointer(path string) error {
	var errs []error
	for _, file := range p.pointers {
		if now, err := readPointer(file); err != nil || now != path {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove pointer: %w", err))
		}
	}
	return errors.Join(errs...)
}

// writePointer replaces one pointer file. Its directory is made if need be.
func writePointer(file, path string) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// Mode 0600. The daemon finds by the pid what a killed one has left.
	pattern := fmt.Sprintf(".%s.%d-*", pointerName, os.Getpid())
	return ownfile.Replace(file, pattern, []byte(path+"\n"), 0o600, false, func() { faultpoint.At("pointer.half") })
}

// readPointer reads a pointer file. It is trusted only as far as the dialled
// peer turns out to be ours; a file that others could have written is none.
func readPointer(file string) (string, error) {
	b, err := ownfile.Read(file, maxPointer)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}
