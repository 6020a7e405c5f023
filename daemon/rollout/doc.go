// Package rollout replaces the running daemon by a newer one, in place.
//
// A [Watcher] watches the path by which the daemon was started. When another file has
// settled there, a [Checker] runs it once, as `holdline version --json`: it must know
// every version of a format that is in use. Then [Exec] makes it the image of this very
// process, which keeps its pid, its arguments, the listening socket and the lock. The
// variable [Env] says what else the new image has to know; the image reads it with [Take]
// before it does anything else. For clients and workers a hand-over looks like a crash
// with an immediate successor, and they recover in the same way.
//
// A file that is not accepted is remembered and ignored until it changes; the daemon goes
// on as before. The package starts no goroutine: [Watcher.Run] and [Reap] run in their
// callers'. It never writes to the file that it watches.
package rollout
