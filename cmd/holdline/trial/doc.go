// Package trial tests whether a consult can write to files. With the consult program that
// is installed, and in the way in which the daemon runs it (a supervisor, a worker, the
// levels that this machine can enforce), it tries every way to write that a model could
// ask for.
//
// The result is a [Report] with a [Column] for each way to run a consult: one for each
// level, in which the model asks for the attempts, and one in which the program itself
// makes them, as if it had been taken over. A column for each agent of the configuration is
// of that kind, too: its model may be anywhere, and only the kernel keeps an agent from
// writing.
//
// In place of the model a stand-in on loopback answers, which asks for one attempt after
// the other. So the test needs no login and costs nothing. All of it happens in a
// directory that the caller gives, which is also the home directory of the program and
// has settings that allow everything.
//
// Whether an attempt has succeeded is read from the file system alone: what the program
// says of it does not count. A column proves something only if its attempts were really
// made: an attempt that was not tried is reported as such, and the test fails by it.
//
// # Files
//
//	trial.go     the columns, and how a consult is run for one
//	attempts.go  the ways to write
//	place.go     the directories in which attempts write, and what was changed there
//	standin.go   the model's stand-in
//
// Its only caller is the command `holdline doctor --consult-selftest`. The package owns
// the processes and the listener that it starts, and waits for their end.
package trial
