package process

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdline/protocol/bootclock"
)

// Exact reports whether the tree of a worker is known exactly. Here it is not:
// there is no subreaper, and what left the group is found only while its
// parent lives.
const Exact = false

// These are SSTOP and SZOMB of sys/proc.h.
const (
	stopped = 4
	zombie  = 5
)

// isStopped reports whether a process is stopped, by a signal or a debugger.
func isStopped(pid int) bool {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err == nil && int(k.Proc.P_pid) == pid && k.Proc.P_stat == stopped
}

// Lookup finds the process that now has pid. A zombie is gone.
func Lookup(pid int) (Proc, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid || k.Proc.P_stat == zombie {
		return Proc{}, fmt.Errorf("%w: pid %d", ErrGone, pid)
	}
	return proc(k), nil
}

// hasThreads returns false: a process that is gone has none.
func hasThreads(int) bool { return false }

// Space returns the name of the set of processes in which a pid means something: this boot of this
// machine. It is "" if that cannot be known.
func Space() string { return bootclock.ID() }

// LockHolders returns no process: who holds a lock cannot be known on this system.
func LockHolders(string) []Proc { return nil }

// Name returns what a process is called, for people; "" if that is not known.
func Name(pid int) string {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(k.Proc.P_comm[:])
}

// Signal sends sig to p if its pid still has the start time.
func Signal(p Proc, sig syscall.Signal) error {
	if !IsAlive(p.PID, p.Start) {
		return ErrGone
	}
	if err := syscall.Kill(p.PID, sig); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return ErrGone
}

// Group lists the processes of group pgid.
func Group(pgid int) ([]Proc, error) { return procs("kern.proc.pgrp", pgid) }

// Carriers returns no process: the environment of other processes cannot be read
// on this system.
func Carriers() (*Carried, error) { return &Carried{}, nil }

// HasWorker returns true: whether the worker is among the ancestors cannot be
// known without its environment.
func HasWorker(Proc, string) bool { return true }

// Args returns the command line of process pid, or nil if it cannot be read.
func Args(pid int) []string {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return nil
	}
	return procArgs(b)
}

// Variable returns "": the environment of other processes cannot be read on this system.
func Variable(int, string) string { return "" }

// List returns all processes of the machine, in no order.
func List() ([]Proc, error) { return procs("kern.proc.all") }

// Children returns the children of a process, with those that have ended and were not
// waited for. It returns none if it cannot read them.
func Children(parent int) []int {
	all, _ := unix.SysctlKinfoProcSlice("kern.proc.all")
	var found []int
	for i := range all {
		if int(all[i].Eproc.Ppid) == parent {
			found = append(found, int(all[i].Proc.P_pid))
		}
	}
	return found
}

// procs returns the processes that a sysctl lists, zombies left out.
func procs(name string, args ...int) ([]Proc, error) {
	ks, err := unix.SysctlKinfoProcSlice(name, args...)
	if err != nil {
		return nil, err
	}
	all := make([]Proc, 0, len(ks))
	for i := range ks {
		if ks[i].Proc.P_stat != zombie {
			all = append(all, proc(&ks[i]))
		}
	}
	return all, nil
}

// proc returns the process of a kernel record. Its start time is in microseconds.
func proc(k *unix.KinfoProc) Proc {
	t := k.Proc.P_starttime
	return Proc{
		PID:   int(k.Proc.P_pid),
		Start: uint64(t.Sec)*1_000_000 + uint64(t.Usec),
		PPID:  int(k.Eproc.Ppid),
		PGID:  int(k.Eproc.Pgid),
	}
}

// CPUTime would be how long the processes that come from root have run on a
// processor; the system does not show it without cgo.
func CPUTime(int) time.Duration { return 0 }
