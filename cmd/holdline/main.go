// Command holdline keeps every agent connected to the tools and the second
// opinions that they share. One binary has four faces: the daemon, the proxy
// that each agent starts (mcp-stdio), the worker that owns one child, and the
// command line. Package cli has them all. The proxy becomes holdline-stdio, a
// smaller program, where that lies beside this one.
package main

import (
	"os"

	"holdline/cmd/holdline/cli"
)

func main() { os.Exit(cli.Main()) }
