package command

import (
	"errors"
	"fmt"
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
		return name, CheckExecutable(name)
	}
	dirs := SearchDirs(path)
	err := error(&lookError{name + " is in none of " + strings.Join(dirs, ", "), syscall.ENOENT})
	if len(dirs) == 0 {
		err = &lookError{name + " is a name, and the PATH has no absolute directory", syscall.ENOENT}
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		switch failure := CheckExecutable(file); {
		case failure == nil:
			return file, nil
		case !errors.Is(failure, os.ErrNotExist):
			err = failure
		}
	}
	return "", err
}

// lookError is the error about a program that is not there, or is no program.
type lookError struct {
	text  string // for people
	errno syscall.Errno
}

// Error returns the text, without the errno.
func (e *lookError) Error() string { return e.text }

// Unwrap returns ENOENT or EACCES.
func (e *lookError) Unwrap() error { return e.errno }

// CheckExecutable returns nil if the file at path can be run as a program. Otherwise the
// error says why not, and wraps ENOENT or EACCES.
func CheckExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &lookError{path + " is not there", syscall.ENOENT}
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return &lookError{fmt.Sprintf("%s is no program (%v)", path, info.Mode()), syscall.EACCES}
	}
	return nil
}
