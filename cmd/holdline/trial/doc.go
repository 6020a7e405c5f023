// Package trial tries to write through a consult, in every way that a model
// could ask for, with the consult program that is installed and in the way in
// which the daemon runs it: a supervisor, a worker, the levels that this
// machine has. What answers in place of the model is a stand-in on loopback,
// which asks for one attempt after the other, so that it needs no login and
// costs nothing. All of it happens in a directory that the caller gives,
// home directory of the program included, whose settings allow everything.
//
// The command `holdline doctor --consult-selftest` is its only caller. It owns
// the processes and the listener that it starts, and waits for them.
package trial
