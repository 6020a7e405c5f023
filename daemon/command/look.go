package command

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// SearchDirs returns the directories of a PATH in which a program may be looked
// for: the absolute ones, each once. A relative or empty element means the
// directory that a process happens to run in. For a hosted server that is the
// project: a file that is put there would run with the server's
// secrets.
func SearchDirs(path string) []string {
	var dirs []string
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// SafePath returns path without the elements that [SearchDirs] leaves out.
func SafePath(path string) string {
	return strings.Join(SearchDirs(path), string(filepath.ListSeparator))
}

// LookPath returns the file that name means with the given PATH. A name with a slash
// is the file itself.
//
// If no directory has the name, the error names the directories and wraps ENOENT. If
// directories have it, but none as a program, the error says why the last one's is
// none.
func LookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	dirs := SearchDirs(path)
	var err error = &notFoundError{name, dirs}
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		switch failure := executable(file); {
		case failure == nil:
			return file, nil
		case !errors.Is(failure, os.ErrNotExist):
			err = failure
		}
	}
	return "", err
}

// notFoundError is the error about a program that no directory of a PATH has.
type notFoundError struct {
	name string
	dirs []string
}

// Error names the directories.
func (e *notFoundError) Error() string {
	if len(e.dirs) == 0 {
		return e.name + " is a name, and the PATH has no absolute directory"
	}
	return e.name + " is in none of " + strings.Join(e.dirs, ", ")
}

// Unwrap returns ENOENT.
func (e *notFoundError) Unwrap() error { return syscall.ENOENT }

// executable returns nil if the file at path can be run as a program.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return &os.PathError{Op: "run", Path: path, Err: syscall.EACCES}
	}
	return nil
}
