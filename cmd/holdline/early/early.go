// Package early makes `holdline mcp-stdio` and `holdline worker` holdline-stdio before the packages of the whole
// program are initialised, which takes longer than all the rest of the start. Go initialises
// a package as soon as those that it imports are, so this one imports little.
//
// It is for programs that are holdline, and must not be linked into holdline-stdio.
package early

import (
	"os"

	"holdline/cmd/holdline/pair"
)

// A variable, since nothing else of a program runs before the packages that it imports
// are initialised.
var _ = becomeSmall()

// becomeSmall makes this process holdline-stdio if it was started as the proxy or as a worker.
// It returns false if the process goes on as it is.
func becomeSmall() bool {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case pair.Command:
			pair.BecomeSmall(os.Args[2:])
		case pair.Worker:
			pair.BecomeSmallWorker()
		}
	}
	return false
}
