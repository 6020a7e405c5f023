// Package worker is the worker process, which owns exactly one child and
// outlives the daemon that started it, and the exec step, which restricts
// itself and becomes the child.
//
// A worker numbers and retains what its child says, until a daemon has acked
// it; it writes to the child what the attached daemon tells it, each write
// once; and it ends the child with all that came from it. It never looks into
// the bytes. Since many run, it stays small: it logs nothing, and its last
// words go to stderr, which is a file of its directory.
//
// One mutex guards all state. These goroutines run, all owned and awaited by
// [Main]: parent (on a locked thread: forks the child and reaps everything),
// two readers of the child's output, feed (writes its stdin), accept with two
// for each connection, and conduct, which acts when times are due. None of
// them holds the mutex while it waits for the child or for a peer, so nothing
// that those do can keep terminate from working.
package worker
