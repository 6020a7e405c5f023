package userenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdline/daemon/command"
	"holdline/daemon/config"
)

// PathFile returns the path of the file in the state directory that has, as one line,
// the PATH which `holdline install` captured.
func PathFile(stateDir string) string { return filepath.Join(stateDir, "path") }

// ReadPath reads the captured PATH. The error wraps [os.ErrNotExist] if none was
// captured, and [config.ErrUnsafe] if another user could have written the file.
func ReadPath(file string) (string, error) {
	if _, err := os.Stat(file); err != nil {
		return "", err
	}
	b, err := config.Read(file)
	if err != nil {
		return "", err
	}
	path := strings.TrimRight(string(b), "\n")
	if len(b) > config.MaxFile || path == "" || strings.ContainsAny(path, "\n\x00") {
		return "", fmt.Errorf(
			"%s: one line with directories is wanted; write it anew with: holdline install --path", file)
	}
	return path, nil
}

// WithPath returns environ with a PATH that begins with the directories of captured,
// followed by those that only its own PATH has. So programs that a daemon of systemd
// or launchd would not find come first, and no directory is lost.
func WithPath(environ []string, captured string) []string {
	if captured == "" {
		return environ
	}
	dirs := command.SearchDirs(captured)
	out := make([]string, 0, len(environ)+1)
	for _, kv := range environ {
		own, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			out = append(out, kv)
			continue
		}
		for _, dir := range command.SearchDirs(own) {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return append(out, "PATH="+strings.Join(dirs, string(filepath.ListSeparator)))
}

// WithCaptured does what [WithPath] does, with the captured PATH that file has.
// Without a file it returns environ. If the file cannot be used, it returns environ
// and the error.
func WithCaptured(environ []string, file string) ([]string, error) {
	captured, err := ReadPath(file)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return environ, err
	}
	return WithPath(environ, captured), nil
}
