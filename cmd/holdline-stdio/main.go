// Command holdline-stdio is `holdline mcp-stdio` and `holdline worker` as a program of its
// own, which takes less memory. It lies beside holdline, which becomes this program when an
// agent starts the proxy or the daemon starts a worker: see package pair. Flags and
// environment are the same.
package main

import (
	"os"

	"holdline/cmd/holdline/small"
)

func main() { os.Exit(small.Main()) }
