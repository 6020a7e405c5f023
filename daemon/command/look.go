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

// LookPath returns the file that name means with the given PATH. A name with a
// slash is the file itself. The error is an errno with the name: ENOENT if no
// directory has it, else why the last one that has it is no program.
func LookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	err := fmt.Errorf("%s: %w", name, syscall.ENOENT)
	for _, dir := range SearchDirs(path) {
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
