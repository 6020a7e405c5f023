package statedir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// lookPause is how often LockDir looks who holds a lock.
const lookPause = 500 * time.Millisecond

// errHeld says that a lock has been held for a moment.
var errHeld = errors.New("locked")

// LockDir is [ownfile.LockDir], but does not wait for servers and what they have started: any program that
// can read a directory can lock it, also one that may write nothing. Without another holder it
// succeeds without the lock. Once ctx is done the error names who holds it.
func LockDir(ctx context.Context, dir string) (unlock func(), err error) {
	for pause := grace; ; pause = lookPause {
		moment, cancel := context.WithTimeoutCause(ctx, pause, errHeld)
		unlock, err = ownfile.LockDir(moment, dir)
		cancel()
		switch {
		case err == nil:
			return unlock, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %s is locked by %s", context.Cause(ctx), dir, WhoHolds(dir))
		case !errors.Is(err, errHeld):
			return nil, err
		case heldByServers(dir):
			return func() {}, nil
		}
	}
}

// heldByServers reports whether all that hold the lock of a directory came from workers.
func heldByServers(dir string) bool {
	holders := process.LockHolders(dir)
	for _, p := range holders {
		if process.MarkOf(p.PID) == 0 {
			return false
		}
	}
	return len(holders) > 0
}
