// Package rollout replaces the running daemon by a newer program, in place.
//
// A [Watcher] watches the path from which the daemon was started. When another file has
// settled there, a [Checker] runs it once, as `holdline version --json`: the file must
// know every version of a format that is in use. Then [Exec] makes it the program of
// this very process, which keeps its pid, its arguments, the listening socket and the
// lock. The variable [Env] says what else the new program has to know. The new program
// reads it with [Take] before it does anything else. To clients and workers a hand-over
// looks like a crash with an immediate successor, and they recover in the same way.
//
// A file that is not accepted is remembered and ignored until it changes, and the
// daemon goes on as before. [Watcher.Run] runs in the goroutine of its caller; [Reap] starts
// one for each child that it waits for. The package never writes to the file that it
// watches.
package rollout
