package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdline/protocol/bootclock"
)

// Exact reports whether the tree of a worker is known exactly: a worker is a
// subreaper, so nothing leaves it, and the environment of a process tells
// whose it was.
const Exact = true

// Lookup finds the process that now has pid. It returns a zombie with [ErrGone]. Any other
// error, for example a lack of descriptors, says nothing about the process.
func Lookup(pid int) (Proc, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return Proc{}, fmt.Errorf("%w: %w", ErrGone, err)
	}
	if err != nil {
		return Proc{}, err
	}
	// The name is in parentheses and may hold anything, parentheses too.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return Proc{}, fmt.Errorf("process %d: malformed stat", pid)
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 {
		return Proc{}, fmt.Errorf("process %d: malformed stat", pid)
	}
	p := Proc{PID: pid}
	p.PPID, _ = strconv.Atoi(string(f[1]))
	p.PGID, _ = strconv.Atoi(string(f[2]))
	p.Start, err = strconv.ParseUint(string(f[19]), 10, 64)
	if err != nil {
		return Proc{}, fmt.Errorf("process %d: malformed stat", pid)
	}
	if f[0][0] == 'Z' || f[0][0] == 'X' {
		return p, fmt.Errorf("%w: it is a zombie", ErrGone)
	}
	return p, nil
}

// isStopped reports whether a process is stopped, by a signal or a debugger.
func isStopped(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	return err == nil && len(f) > 0 && (f[0][0] == 'T' || f[0][0] == 't')
}

// hasThreads reports whether threads run of a process whose first one has ended: until they have
// ended, too, they hold its files.
func hasThreads(pid int) bool {
	threads, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task") // there is none of a process that is gone
	return len(threads) > 1
}

// Space returns the name of the set of processes in which a pid means something: this boot of this
// machine, and the namespace. It is "" if that cannot be known.
func Space() string {
	boot := bootclock.ID()
	names, err := os.Readlink("/proc/self/ns/pid")
	if boot == "" || err != nil {
		return ""
	}
	return boot + " " + names
}

// LockHolders returns the processes of this user that hold a lock of flock(2) on the file at path. The
// one that took it may have ended: those that it has passed the file on to hold the lock, too.
func LockHolders(path string) (holders []Proc) {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	all, _ := pids()
	for _, pid := range all {
		fds := "/proc/" + strconv.Itoa(pid) + "/fd"
		open, _ := os.ReadDir(fds) // those of other users cannot be read
		for _, fd := range open {
			file, err := os.Stat(filepath.Join(fds, fd.Name()))
			if err != nil || !os.SameFile(file, info) {
				continue
			}
			state, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/fdinfo/" + fd.Name())
			if p, err := Lookup(pid); err == nil && bytes.Contains(state, []byte("FLOCK")) {
				holders = append(holders, p)
				break
			}
		}
	}
	return holders
}

// Name returns what a process calls itself, for people; "" if that is not known.
func Name(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return strings.TrimSpace(string(b))
}

// Signal sends sig to p and to no other process: through a file descriptor of the
// process, opened before its start time is compared.
func Signal(p Proc, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM) { // before 5.3, or forbidden by a sandbox
		if !IsAlive(p.PID, p.Start) {
			return ErrGone
		}
		return killed(syscall.Kill(p.PID, sig))
	}
	if err != nil {
		return killed(err)
	}
	defer func() { _ = unix.Close(fd) }()
	switch now, err := Lookup(p.PID); {
	case err != nil:
		return err
	case now.Start != p.Start:
		return ErrGone
	}
	return killed(unix.PidfdSendSignal(fd, sig, nil, 0))
}

// Group lists the processes of group pgid.
func Group(pgid int) ([]Proc, error) {
	all, err := List()
	if err != nil {
		return nil, err
	}
	var found []Proc
	for _, p := range all {
		if p.PGID == pgid {
			found = append(found, p)
		}
	}
	return found, nil
}

// Carriers returns the processes of this user that belong to workers: those that have [EnvWorker] in
// their environment, and those that have a [Mark] and run under no worker.
func Carriers() (*Carried, error) {
	all, err := pids()
	if err != nil {
		return nil, err
	}
	// Thousands of processes take milliseconds, for which the sessions of a daemon that starts wait.
	shares := min(max(len(all)/carriersShare, 1), runtime.GOMAXPROCS(0))
	parts, errs := make([]Carried, shares), make([]error, shares)
	var looked sync.WaitGroup
	for i := range shares {
		share := all[i*len(all)/shares : (i+1)*len(all)/shares]
		looked.Go(func() { parts[i], errs[i] = carriersOf(share) })
	}
	looked.Wait()
	found := &parts[0]
	for _, part := range parts[1:] {
		for dir, procs := range part.byDir {
			found.byDir[dir] = append(found.byDir[dir], procs...)
		}
		found.marked = append(found.marked, part.marked...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return found, nil
}

// carriersShare is how many processes one goroutine of [Carriers] looks at, at least.
const carriersShare = 40

// carriersOf returns those of the processes that belong to workers.
func carriersOf(pids []int) (Carried, error) {
	found := Carried{byDir: map[string][]Proc{}}
	var buf []byte
	var err error
	// A daemon that starts does this, and few processes are carriers. So the environment comes
	// first, and again when it is known which process that is: another one may have the number
	// meanwhile.
	for _, pid := range pids {
		var dir string
		var mark Mark
		var p Proc
		if dir, err = variable(pid, EnvWorker, &buf); dir == "" {
			mark = MarkOf(pid)
		}
		if dir != "" || mark != 0 {
			if p, err = Lookup(pid); err == nil && mark != 0 {
				mark = MarkOf(pid)
			} else if err == nil {
				dir, err = variable(pid, EnvWorker, &buf)
			}
		}
		switch {
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			return found, err // a process may be there that was not seen
		case err != nil:
		case dir != "":
			found.byDir[dir] = append(found.byDir[dir], p)
		case mark != 0 && isStray(p):
			found.marked = append(found.marked, Marked{p, mark})
		}
	}
	return found, nil
}

// Args returns the command line of process pid, or nil if it cannot be read.
func Args(pid int) []string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// Variable returns the value that a variable had in the environment with which process
// pid started, or "". The environment of another user's process cannot be read.
func Variable(pid int, name string) string {
	value, _ := variable(pid, name, new([]byte))
	return value
}

// variable is [Variable] with the error of reading the environment. It reads into buf, which grows
// as needed.
func variable(pid int, name string, buf *[]byte) (string, error) {
	b, err := readFile("/proc/"+strconv.Itoa(pid)+"/environ", buf)
	prefix := []byte(name + "=")
	if !bytes.Contains(b, prefix) {
		return "", err
	}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if value, ok := bytes.CutPrefix(v, prefix); ok {
			return string(value), nil
		}
	}
	return "", err
}

// readFile returns what a file of /proc holds, in buf, which grows as needed. It makes the system
// calls alone that this takes, unlike [os.ReadFile]: there may be thousands of processes.
func readFile(path string, buf *[]byte) ([]byte, error) {
	fd, err := uninterrupted(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	for n := 0; ; {
		if n == len(*buf) {
			*buf = append(*buf, make([]byte, max(len(*buf), 8<<10))...)
		}
		more, err := uninterrupted(func() (int, error) { return unix.Read(fd, (*buf)[n:]) })
		if err != nil || more == 0 {
			return (*buf)[:n], err
		}
		n += more
	}
}

// uninterrupted calls f until no signal interrupts it.
func uninterrupted(f func() (int, error)) (n int, err error) {
	for {
		if n, err = f(); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// HasWorker reports whether the worker of the directory dir is among p's
// ancestors. It also returns true if that cannot be known, since what runs under a
// living worker must not be taken for an orphan.
func HasWorker(p Proc, dir string) bool {
	for pid, steps := p.PPID, 0; steps < 1000; steps++ {
		if pid == 0 { // outside of what this process can see
			return true
		}
		isWorker := WorkerDir(Args(pid)) == dir
		if isWorker || pid == 1 {
			return isWorker
		}
		up, err := Lookup(pid)
		if err != nil { // the tree is changing; the next hunt will see
			return true
		}
		pid = up.PPID
	}
	return true
}

// List returns all processes that this user can see, in no order. It skips processes that
// end meanwhile.
func List() ([]Proc, error) {
	all, err := pids()
	var found []Proc
	for _, pid := range all {
		p, err := Lookup(pid)
		switch {
		case err == nil:
			found = append(found, p)
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			return nil, err // a process may be there that was not seen
		}
	}
	return found, err
}

// Children returns the children of a process, with those that have ended and were not
// waited for. It returns none if it cannot read them.
func Children(parent int) []int {
	all, _ := pids()
	return slices.DeleteFunc(all, func(pid int) bool {
		p, _ := Lookup(pid)
		return p.PPID != parent
	})
}

// pids returns the numbers of all processes that this user can see.
func pids() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	var all []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	return all, err
}

// killed returns ErrGone in place of ESRCH, and other errors as they are.
func killed(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return ErrGone
	}
	return err
}

// CPUTime is how long the processes that come from root have run on a processor,
// as far as they live; that of the children they have reaped counts, too.
func CPUTime(root int) time.Duration {
	all, err := Descendants(root)
	if err != nil {
		return 0
	}
	const ticks = 100 // a second, for whatever the kernel shows to programs
	sum := 0
	for _, p := range all {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "stat"))
		if err != nil {
			continue
		}
		f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		for i := 11; i < 15 && i < len(f); i++ { // utime, stime, cutime, cstime
			n, _ := strconv.Atoi(string(f[i]))
			sum += n
		}
	}
	return time.Duration(sum) * time.Second / ticks
}
