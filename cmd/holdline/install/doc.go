// Package install puts onto a machine what belongs to an installed holdline: its binary,
// the units of a service manager, and the PATH of the login shell. It also removes them.
//
// Before it makes a file it records the file, with a hash of its content, in a manifest
// in the state directory. It replaces and removes no other files. If a step fails, those
// before it are undone. Service managers and the daemon are reached only through
// [Options.Run] and [Options.Stop]. The package starts no goroutine and keeps no file
// open.
package install
