package spawn

import (
	"os"
	"syscall"
)

// Self returns the path of the running executable. macOS has no name for the
// image that runs, so a replaced file is a newer version.
func Self() (string, error) { return os.Executable() }

// childAttr puts the child into a process group of its own.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// dieWithParent does nothing: macOS has no parent-death signal.
func dieWithParent(int) error { return nil }
