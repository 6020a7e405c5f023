// Package trial tests whether a consult can write to files. With the consult program that
// is installed, and in the way in which the daemon runs it (a supervisor, a worker, the
// levels that this machine can enforce), it tries every way to write that a model could
// ask for.
//
// In place of the model a stand-in on loopback answers, which asks for one attempt after
// the other. So the test needs no login and costs nothing. All of it happens in a
// directory that the caller gives, which is also the home directory of the program and
// has settings that allow everything.
//
// Its only caller is the command `holdline doctor --consult-selftest`. The package owns
// the processes and the listener that it starts, and waits for their end.
package trial
