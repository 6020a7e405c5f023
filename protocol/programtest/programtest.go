// Package programtest writes programs for tests that run them.
package programtest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Write writes a program to the file at path, mostly a script, and makes its directory if need
// be. It fails the test if it cannot. The program can be run at once: no process that is forked
// meanwhile inherits the file open for writing, for which the kernel would refuse to run it
// (ETXTBSY).
func Write(tb testing.TB, path, text string) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // it has to be executable
		tb.Fatal(err)
	}
}
