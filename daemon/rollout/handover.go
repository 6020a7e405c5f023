package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdline/daemon/filewatch"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// Env is the variable that tells the successor of a daemon what it inherits: a
// [Handover] as JSON. The successor must remove it from its environment at once, so
// that no child sees it.
const Env = "HOLDLINE_HANDOVER"

// Version is the version of [Handover]. A program that does not know it would not take
// over the lock, and would then wait for a lock that its own process holds.
const Version = 1

// Handover is what a daemon hands over to the program that replaces it.
type Handover struct {
	PID      int             `json:"pid"`      // of both
	Listener int             `json:"listener"` // descriptor of the listening socket
	Lock     int             `json:"lock"`     // descriptor of the daemon's lock file
	Managed  bool            `json:"managed"`  // the socket is a service manager's
	Path     string          `json:"path"`     // that is watched
	Verified filewatch.Stamp `json:"verified"` // of the file that was executed
	From     string          `json:"from"`     // version of the older daemon
	Epoch    int64           `json:"epoch"`    // of the older daemon's life
	Rollouts int64           `json:"rollouts"` // hand-overs before this one
	// Children are processes that the older program has started and not waited for.
	// They are not in the JSON: [Take] finds them.
	Children []int `json:"-"`
}

// Exec makes the program at path the program of this process. The listening socket and
// the lock stay open; all other files close. Exec returns only if that fails, and then
// nothing has changed. No process can be forked while a child could inherit the two
// descriptors.
func Exec(path string, argv, env []string, ln, lock syscall.Conn, h Handover) error {
	return withFD(ln, func(lnFD int) error {
		return withFD(lock, func(lockFD int) error {
			h.Listener, h.Lock = lnFD, lockFD
			b, err := json.Marshal(h)
			if err != nil {
				return fmt.Errorf("encoding what is handed over: %w", err)
			}
			env := slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, Env+"=") })
			env = append(env, Env+"="+string(b))
			return execInheriting(path, argv, env, lnFD, lockFD)
		})
	})
}

// execInheriting executes a program that inherits the descriptors fds. It holds the
// fork lock, so that no child of another goroutine inherits them, too. If the exec
// fails, it closes them to children again.
func execInheriting(path string, argv, env []string, fds ...int) error {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	defer func() {
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
		}
	}()
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("letting descriptor %d be inherited: %w", fd, err)
		}
	}
	faultpoint.At("rollout.exec")
	return fmt.Errorf("executing %s: %w", path, syscall.Exec(path, argv, env))
}

// withFD calls f with the descriptor of c, which stays open until f returns. Unlike
// File, it makes no copy.
func withFD(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("finding the descriptor to hand over: %w", err)
	}
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return fmt.Errorf("finding the descriptor to hand over: %w", err)
	}
	return ferr
}

// Take reads the value of [Env], which the older program has left for process pid. It
// returns nil if there is no value, or if the value is meant for another process.
//
// Call it before any code that opens a file or starts a process. It closes the
// inherited descriptors to children, and it takes all existing children of the process
// for those of the older program.
func Take(value string, pid int) (*Handover, error) {
	if value == "" {
		return nil, nil //nolint:nilnil // no hand-over is no error
	}
	var h Handover
	if err := json.Unmarshal([]byte(value), &h); err != nil {
		return nil, fmt.Errorf("reading %s: %w", Env, err)
	}
	if h.PID != pid {
		return nil, nil //nolint:nilnil // it was inherited by mistake
	}
	if h.Listener < 3 || h.Lock < 3 || h.Listener == h.Lock {
		return nil, fmt.Errorf("reading %s: descriptors %d and %d cannot be", Env, h.Listener, h.Lock)
	}
	syscall.CloseOnExec(h.Listener)
	syscall.CloseOnExec(h.Lock)
	faultpoint.At("rollout.taken")
	h.Children = process.Children(pid)
	return &h, nil
}

// Files returns the inherited socket and lock file. The caller owns both and must close
// them. Call it only once.
func (h *Handover) Files(lockName string) (*net.UnixListener, *os.File, error) {
	lock := os.NewFile(uintptr(h.Lock), lockName)
	sock := os.NewFile(uintptr(h.Listener), "socket")
	defer func() { _ = sock.Close() }()
	ln, err := net.FileListener(sock) // a copy
	if err != nil {
		_ = lock.Close()
		return nil, nil, fmt.Errorf("taking over the socket: %w", err)
	}
	unixLn, ok := ln.(*net.UnixListener)
	if !ok {
		_, _ = ln.Close(), lock.Close()
		return nil, nil, errors.New("taking over the socket: it is not a unix socket")
	}
	return unixLn, lock, nil
}
