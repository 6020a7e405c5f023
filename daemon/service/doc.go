// Package service is what holdline shares with a service manager: the socket
// that was handed in, the notices that are owed (sd_notify(3)), the journal's
// way of logging, and how its units are. It is the only package that knows
// systemd. It owns no goroutine.
package service
