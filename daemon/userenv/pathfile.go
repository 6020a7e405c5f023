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

// PathFile is the file in the state directory that holds the PATH which
// `holdline install` has captured of the user's login shell, as one line.
func PathFile(stateDir string) string { return filepath.Join(stateDir, "path") }

// ReadPath reads the captured PATH. The error wraps [os.ErrNotExist] if none was
// captured, [config.ErrUnsafe] if another user could have written it.
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
		return "", fmt.Errorf("%s: one line with directories is wanted; write it anew with: holdline install --path", file)
	}
	return path, nil
}

// WithPath is the environment environ whose PATH begins with the directories of
// captured and goes on with those that only its own has: what a daemon of
// systemd's or launchd's does not know comes first, and nothing gets lost.
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

// WithCaptured is [WithPath] with what lies in file. Without a file it is
// environ; with one that cannot be read it is environ, too, with the error.
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
