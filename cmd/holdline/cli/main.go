// Package cli is the command line of holdline, with what is hidden behind it:
// the proxy, the worker, and what a worker starts.
//
// Flags, the environment and files become values here; the packages below see
// neither. The proxy and the worker, of which many run, are dispatched before
// the command tree is built.
package cli

import (
	"context"
	"os"
	"syscall"

	"holdline/cmd/holdline/cmdenv"
)

// Main runs this process as holdline, with its own arguments, environment and
// standard streams, and returns the exit code.
func Main() int {
	keepOwnerBits()
	return run(context.Background(), cmdenv.Process{
		Args: os.Args[1:], Getenv: os.Getenv, Environ: os.Environ,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
}

// keepOwnerBits clears the owner's bits in the umask of this process, which its
// children inherit: holdline could not use a directory that it may not enter.
func keepOwnerBits() {
	syscall.Umask(syscall.Umask(0o077) &^ 0o700)
}
