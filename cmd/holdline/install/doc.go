// Package install puts onto a machine what belongs to an installed holdline: its binary,
// the units of a service manager, the PATH of the login shell, completions and man pages. It
// also removes them.
//
// An installation is planned as a list of steps, each of which can be undone, and then
// carried out. Before it makes a file it records the file, with a hash of its content, in
// a manifest in the state directory. So an installation that was interrupted at any point
// can be uninstalled. It replaces and removes no other files. If a step fails, those
// before it are undone.
//
// What differs between systemd and launchd is behind the interface serviceManager.
// Service managers and the daemon are reached only through [Options.Run] and
// [Options.Stop]. Errors have a hint (package cmdenv) if the user can do something about
// them. The package starts no goroutine and keeps no file open.
package install
