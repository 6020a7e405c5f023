// Package peer identifies the other end of a connection: the process of a proxy, and the
// client that started it.
package peer

import (
	"errors"
	"os"
	"strconv"

	"holdline/protocol/process"
)

// A Peer is the process at the other end of a connection.
type Peer struct {
	PID   int
	Start uint64 // start time of the process; 0 if unknown
}

// Of returns the process with that pid as it is now. Its start time is 0 if the process cannot be
// looked up.
func Of(pid int) Peer {
	p := Peer{PID: pid}
	if now, err := process.Lookup(pid); pid > 0 && err == nil {
		p.Start = now.Start
	}
	return p
}

// Alive reports whether the process still runs; a later process with the same pid does not count.
// It returns true if that cannot be seen. It returns false for a process that had ended before
// [Of] looked it up.
func (p Peer) Alive() bool {
	if p.PID <= 0 {
		return true
	}
	now, err := process.Lookup(p.PID)
	if p.Start == 0 {
		_, blind := process.Lookup(os.Getpid())
		return blind != nil || !errors.Is(err, process.ErrGone)
	}
	return !errors.Is(err, process.ErrGone) && (err != nil || now.Start == p.Start)
}

// ClientOf returns the parent of the process proxy, which is the client that started it, and a
// key of that process that all its sessions share. It returns 0 and "" if the parent cannot be
// looked up, or is init, because the client has ended.
func ClientOf(proxy int) (pid int, key string) {
	p, err := process.Lookup(proxy)
	if err != nil || p.PPID <= 1 { // started by init: its client has gone
		return 0, ""
	}
	client, err := process.Lookup(p.PPID)
	if err != nil {
		return 0, ""
	}
	return client.PID, strconv.Itoa(client.PID) + "." + strconv.FormatUint(client.Start, 10)
}
