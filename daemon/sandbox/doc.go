// Package sandbox knows the mechanisms of the machine by which a consult is
// held to reading: Landlock, by which a process gives up writing for itself
// and for all that it starts ([Confine]), and bubblewrap, in which a consult
// program runs its shell ([Bubblewrap]).
//
// It starts nothing but the short trial of [Bubblewrap], which it waits for.
package sandbox
