package cli

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// stateDir is $XDG_STATE_HOME/holdline, by default under ~/.local/state.
func stateDir(getenv func(string) string) (string, error) {
	return xdgDir(getenv, "XDG_STATE_HOME", ".local/state")
}

// configPath is the configuration file: flag, variable, default.
func configPath(flag string, getenv func(string) string) (string, error) {
	for _, path := range []string{flag, getenv("HOLDLINE_CONFIG")} {
		if path != "" {
			return filepath.Abs(path)
		}
	}
	dir, err := xdgDir(getenv, "XDG_CONFIG_HOME", ".config")
	return filepath.Join(dir, "config.json"), err
}

// xdgDir is our directory under one of the XDG base directories. A relative
// path in the variable is to be ignored (XDG Base Directory Specification).
func xdgDir(getenv func(string) string, variable, fallback string) (string, error) {
	if dir := getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "holdline"), nil
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", errors.New("neither " + variable + " nor HOME is set to a directory")
	}
	return filepath.Join(home, fallback, "holdline"), nil
}

func pid() int { return os.Getpid() }

// isTTY tells whether fd is a terminal: only a terminal has a window size
// (ioctl_tty(2)).
func isTTY(fd uintptr) bool {
	_, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
	return err == nil
}
