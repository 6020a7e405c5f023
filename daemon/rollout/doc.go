// Package rollout replaces the running daemon by a newer one, in place.
//
// A [Watcher] looks at the path that the daemon was started by. When the file
// there has become another one and stays as it is, it is run once, as
// `holdline version --json`, and must speak every version that is in use (see
// [Check]). Then [Exec] makes it the image of this very process: same pid,
// same arguments, the listening socket and the lock inherited; what it has to
// know travels in the variable [Env], which the new image reads with [Take]
// before it does anything else. To everybody else that looks like a crash
// with a successor at once, and takes the same way.
//
// A file that fails is remembered and left alone until it changes; the daemon
// goes on as before. The package owns no goroutine: [Watcher.Run] and [Reap]
// run in their caller's. It never writes to the file that it watches.
package rollout
