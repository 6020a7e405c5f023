// Package service holds what holdline shares with a service manager: the socket that it
// passes to the daemon, reports about the daemon's state (sd_notify(3)), the format of
// the journal, and the states of the units. It is the only package that knows systemd's
// protocols; package install of the command line writes and enables the units. It starts
// no goroutine.
//
// The daemon uses [Handed] and [Notifier]. Proxies and commands use [Units] and
// [LaunchAgent], to find out which service manager starts the daemon, if any, and why
// it does not run.
package service
