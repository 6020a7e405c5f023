// Command holdline-stdio is `holdline mcp-stdio` as a program of its own, which takes less
// memory. It lies beside holdline, which becomes this program when an agent starts the
// proxy: see package pair. Flags and environment are the same.
package main

import (
	"os"

	"holdline/cmd/holdline/stdio"
)

func main() { os.Exit(stdio.Main()) }
