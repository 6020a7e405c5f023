// Command holdline-top is what `holdline top` becomes: the view of the daemon that fills a
// terminal. It is a program of its own so that holdline, which also is the daemon, does not
// carry what draws on terminals.
package main

import (
	"os"

	"holdline/cmd/holdline/top"
)

func main() { os.Exit(top.Main()) }
