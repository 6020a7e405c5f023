// Package sandbox knows the mechanisms of the machine that keep a consult from writing:
// Landlock, by which a process gives up the right to write for itself and for all that
// it starts ([Confine]), and bubblewrap, in which a consult program runs its shell
// ([Bubblewrap]).
//
// It starts no process but the short trial of [Bubblewrap], and waits for that.
package sandbox
