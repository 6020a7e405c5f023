// Package cmdenv has what each command gets from its process: arguments, environment,
// streams, the places of its files, and its exit codes.
//
// Commands get a [Process] in place of os.Getenv and os.Stdout, so that a test can run
// them in its own process. The proxy links this package, so it imports nothing that costs
// memory.
package cmdenv

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"holdline/protocol/socket"
)

// Version and commit of this program, set by the linker.
var (
	Version = "0.1.0-dev"
	Commit  = ""
)

// A Process is what a command may see of the process it runs in. Its streams are files,
// except in tests.
type Process struct {
	Args           []string            // without the name of the program
	Getenv         func(string) string // returns "" for a variable that is not set
	Environ        func() []string     // returns all variables, as NAME=VALUE
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// KeepOwnerBits clears the owner's bits in the umask of this process, which its
// children inherit: holdline could not use a directory that it may not enter. The bits of
// the group and of others stay as the user has set them.
func KeepOwnerBits() {
	syscall.Umask(syscall.Umask(0o077) &^ 0o700)
}

// StateDir returns the state directory: $XDG_STATE_HOME/holdline, by default
// ~/.local/state/holdline.
func StateDir(getenv func(string) string) (string, error) {
	return XDGDir(getenv, "XDG_STATE_HOME", ".local/state")
}

// ConfigPath returns the absolute path of the configuration file: the flag's, else the
// variable's, else the default one; see [socket.Absolute].
func ConfigPath(flag string, getenv func(string) string) (string, error) {
	for _, path := range []string{flag, getenv("HOLDLINE_CONFIG")} {
		if path != "" {
			return socket.Absolute(path, getenv)
		}
	}
	dir, err := XDGDir(getenv, "XDG_CONFIG_HOME", ".config")
	return filepath.Join(dir, "config.json"), err
}

// XDGDir returns our directory under one of the XDG base directories. A relative
// path in the variable is ignored, as the XDG Base Directory Specification wants.
func XDGDir(getenv func(string) string, variable, fallback string) (string, error) {
	if dir := getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "holdline"), nil
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", errors.New("neither " + variable + " nor HOME is set to a directory")
	}
	return filepath.Join(home, fallback, "holdline"), nil
}

// SameFile reports whether two paths lead to one file.
func SameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return a == b
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
