package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"holdline/protocol/bootclock"
	"holdline/protocol/lockcheck"
)

// ErrGone is returned by [Signal] when the process meant is not there any
// more, even if its pid is.
var ErrGone = errors.New("process is gone")

// Proc is one process: a pid with its start time, which no other process of
// this boot has.
type Proc struct {
	PID   int
	Start uint64 // clock ticks or microseconds; only equality and order count
	PPID  int    // pid of the parent
	PGID  int    // process group
}

// Self returns the calling process. If it cannot be looked up, only its pid is set.
func Self() Proc {
	p, err := Lookup(os.Getpid())
	if err != nil {
		return Proc{PID: os.Getpid()}
	}
	return p
}

// IsAlive reports whether the process with this pid and start time runs.
func IsAlive(pid int, start uint64) bool {
	now, err := Lookup(pid)
	return err == nil && now.Start == start
}

// HasEnded reports whether no thread of the process with this pid and start time runs any more. It
// returns false if that cannot be known.
func HasEnded(pid int, start uint64) bool {
	now, err := Lookup(pid)
	switch {
	case start == 0:
		return false
	case err == nil:
		return now.Start != start
	}
	return errors.Is(err, ErrGone) && !hasThreads(pid)
}

// WorkerIn returns the process that the state of a worker's directory names, if that runs and is the worker
// by its own words. That it returns none says nothing: the state may be damaged.
func WorkerIn(dir string) (Proc, bool) {
	st, err := ReadState(dir)
	if err != nil || st.Phase == PhaseExited || st.BootID == "" || st.BootID != bootclock.ID() {
		return Proc{}, false
	}
	return Proc{PID: st.PID, Start: st.Start}, IsAlive(st.PID, st.Start) && IsWorker(st.PID, dir)
}

// IsWorker reports whether a process is the worker of dir by its own words. Its path to that may lead over
// a link.
func IsWorker(pid int, dir string) bool {
	of := WorkerDir(Args(pid))
	if of == dir || of == "" || filepath.Base(of) != filepath.Base(dir) {
		return of == dir
	}
	at, err := os.Stat(of)
	here, herr := os.Stat(dir)
	return err == nil && herr == nil && os.SameFile(at, here)
}

// WorkerDir returns the directory of the worker that has these arguments, or "" if they
// are not those of a worker.
func WorkerDir(args []string) string {
	if len(args) != 4 || args[1] != "worker" || args[2] != "--run" {
		return ""
	}
	return args[3]
}

// Descendants returns all processes below root, parents before children. Sessions and
// groups do not matter. A process whose parent died counts only if root is its subreaper
// (on Linux).
func Descendants(root int) ([]Proc, error) {
	lockcheck.Blocking("list processes")
	all, err := List()
	if err != nil {
		return nil, err
	}
	return below(all, root), nil
}

// below returns the processes of all that descend from root, parents before children.
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

// AnyStopped reports whether a process, or one that comes from it, is stopped, by a signal or a debugger. It
// returns false if that cannot be known.
func AnyStopped(root int) bool {
	if root <= 0 {
		return false
	}
	all, _ := Descendants(root) // without these, root itself says what is known
	return isStopped(root) || slices.ContainsFunc(all, func(p Proc) bool { return isStopped(p.PID) })
}
