package process

import (
	"errors"
	"os"
)

// ErrGone is returned by [Signal] when the process meant is not there any
// more, even if its pid is.
var ErrGone = errors.New("process is gone")

// Proc is one process: a pid with its start time, which no other process of
// this boot has.
type Proc struct {
	PID   int
	Start uint64 // clock ticks or microseconds; only equality and order count
	PPID  int
	PGID  int
}

// Self is the calling process.
func Self() Proc {
	p, err := Lookup(os.Getpid())
	if err != nil {
		return Proc{PID: os.Getpid()}
	}
	return p
}

// Descendants lists all that come from root, whatever session or group they
// are in, parents before children. A process whose parent died counts only if
// root is (on Linux) its subreaper.
func Descendants(root int) ([]Proc, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	return below(all, root), nil
}

func below(all []Proc, root int) []Proc {
	children := make(map[int][]Proc)
	for _, p := range all {
		children[p.PPID] = append(children[p.PPID], p)
	}
	var found []Proc
	seen := map[int]bool{root: true}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			if !seen[p.PID] { // a reused pid could make a ring of what was read
				seen[p.PID] = true
				found = append(found, p)
				next = append(next, p.PID)
			}
		}
	}
	return found
}
