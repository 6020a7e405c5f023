// Package worker is the worker process, which owns exactly one child and
// outlives the daemon that started it.
//
// A worker numbers the output of its child and keeps it until a daemon has acknowledged it. It
// writes to the child what the attached daemon sends, each write once. It ends the child with all
// of the child's descendants. It never looks into the bytes. Many workers run, so each stays small:
// it has no log of its own, and writes its errors to stderr, a file of its directory. Package
// detach makes its process.
//
// A long line of output goes into a file of the directory (long.go), which stays until the
// line is acknowledged: the daemon gets its name, and reads it there. The bytes of a long
// write come in a file, too (input.go), which the kernel copies to the child.
//
// One mutex guards all state; the phases of life have types with tables: childState, ladderStep and
// attendance (state.go), inputState, connState. These goroutines run, all owned and awaited by
// [Main]: parent (on a locked thread: forks the child and reaps everything), two readers of the
// child's output, writeStdin and watchStdin, accept with two for each connection, and conduct,
// which acts when times are due. None of them holds the mutex while it waits for the child, for a
// peer or for a file, so none of these can delay a Terminate. A second mutex is held over the reads
// and writes of the spool and of the file of a long line.
package worker
