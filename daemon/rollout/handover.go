package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdline/daemon/filewatch"
	"holdline/protocol/faultpoint"
)

// Env is the variable that tells the successor of a daemon what it inherits: a [Handover]
// as JSON. The successor must remove it from the environment at once, so that no child
// sees it.
const Env = "HOLDLINE_HANDOVER"

// Version is the version of [Handover]. A program that does not know it would wait for the
// lock that it holds itself.
const Version = 1

// Handover is what a daemon hands over to the image that replaces it.
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
	// Children are processes that the older image has started and not waited for. [Take]
	// finds them.
	Children []int `json:"-"`
}

// Exec makes the program at path the image of this process. The listening socket and the
// lock stay open, all else is closed. Exec returns only if that failed, and then nothing
// has changed. No process is forked while a child could inherit the two descriptors.
func Exec(path string, argv, env []string, ln, lock syscall.Conn, h Handover) error {
	return withFD(ln, func(lnFD int) error {
		return withFD(lock, func(lockFD int) error {
			h.Listener, h.Lock = lnFD, lockFD
			b, err := json.Marshal(h)
			if err != nil {
				return fmt.Errorf("encoding what is handed over: %w", err)
			}
			env := append(without(env, Env), Env+"="+string(b))
			return execInheriting(path, argv, env, lnFD, lockFD)
		})
	})
}

// execInheriting executes a program that inherits some descriptors. It holds the fork lock,
// so that no child inherits them, too. If the exec fails they are closed to children again.
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

// withFD calls f with the descriptor of c, which stays open until f returns.
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

// without returns a copy of env that lacks a variable.
func without(env []string, name string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, name+"=") {
			out = append(out, kv)
		}
	}
	return out
}

// Take reads the value of [Env], which the image before this one has left for process pid.
// Call it before any code that opens a file or starts a process: it closes the inherited
// descriptors to children, and takes all children that exist for those of the older
// image. It returns nil without a value, and for one that is meant for another process.
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
	h.Children = children(pid)
	return &h, nil
}

// Files returns the inherited socket and lock file, which the caller owns. It may be
// called once.
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
