// Package service holds what holdline shares with a service manager: the socket that it
// passes to the daemon, reports about the daemon's state (sd_notify(3)), the format of
// the journal, and the states of the units. It is the only package that knows systemd. It
// starts no goroutine.
package service
