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
)

func main() {
	os.Exit(run(context.Background(), world{
		args: os.Args[1:], getenv: os.Getenv, environ: os.Environ,
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
	}))
}

// world is what a command may see of the process it runs in.
type world struct {
	args           []string
	getenv         func(string) string
	environ        func() []string
	stdin          io.Reader
	stdout, stderr io.Writer
}
