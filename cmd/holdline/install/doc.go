// Package install puts onto a machine what belongs to an installed holdline (its
// binary, the units of a service manager, the PATH of the login shell) and takes
// it away again.
//
// What it makes it writes down, with hashes, in a manifest in the state
// directory, before it makes it; it replaces and removes nothing else. A step
// that fails takes back those before it. All that it touches besides files goes
// through [Options.Run] and [Options.Stop]. It starts no goroutine and keeps no
// file open.
package install
