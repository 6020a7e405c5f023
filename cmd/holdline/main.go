// Command holdline keeps every agent connected to the tools and the second
// opinions that they share. One binary has four faces: the daemon, the proxy
// that each agent starts (mcp-stdio), the worker that owns one child, and the
// command line.
//
// Flags, the environment and files become values here; the packages below see
// neither. The proxy and the worker, of which many run, are dispatched before
// the command tree is built.
package main

import (
	"context"
	"io"
	"os"
	"syscall"
)

func main() {
	keepOwnerBits()
	os.Exit(run(context.Background(), world{
		args: os.Args[1:], getenv: os.Getenv, environ: os.Environ,
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
	}))
}

// keepOwnerBits takes the owner's bits out of this process's umask, and so its
// children's: a directory of ours that we may not enter is of use to nobody.
func keepOwnerBits() {
	syscall.Umask(syscall.Umask(0o077) &^ 0o700)
}

// world is what a command may see of the process it runs in.
type world struct {
	args           []string
	getenv         func(string) string
	environ        func() []string
	stdin          io.Reader
	stdout, stderr io.Writer
}
