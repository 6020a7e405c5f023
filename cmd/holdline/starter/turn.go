package starter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"holdline/daemon/waiting"
	"holdline/protocol/ownfile"
	"holdline/protocol/socket"
	"holdline/proxy"
)

// When a daemon dies, all its proxies want to start the next one at the same moment. One start
// at a time is enough: who starts a daemon holds the lock on [socket.StartLock], and the daemon
// inherits it. The daemon releases it when it listens, and the kernel when it has ended. So
// the others wait for the lock, and dial when they have it.
//
// The lock saves work, and nothing depends on it: two daemons that start at the same time settle
// that by another lock. So whatever is wrong with it, a daemon is started without it.

// LockEnv is the variable that tells a daemon which descriptor is the lock of its start. The
// daemon must remove it from its environment.
const LockEnv = "HOLDLINE_START_LOCK"

// lockFD is that descriptor.
const lockFD = 3

// patience is how long a process that starts a daemon, and the daemon until it listens, may hold up
// the others. Then one of these replaces the lock's file, and starts another daemon: who holds
// the lock may be stopped, or hang.
const patience = time.Second

// takeTurn takes the lock of a start. The error is [proxy.ErrStarting] while another process holds
// it, but no longer than for [patience]. The lock is nil if it cannot be had at all.
func (s *Starter) takeTurn() (*os.File, error) {
	s.socket = s.paths.Start() // a daemon of an agent with another environment may have served elsewhere meanwhile
	if waiting.IsClosed(s.settled) {
		s.refusedBy, s.settled = nil, nil
	}
	for {
		lock, err := ownfile.OpenFile(s.lockPath(), os.O_RDWR|os.O_CREATE)
		if errors.Is(err, os.ErrNotExist) {
			var dir *socket.Dir
			if dir, err = socket.OpenDir(s.socket); err == nil { // which makes the directory
				_ = dir.Close()
				lock, err = ownfile.OpenFile(s.lockPath(), os.O_RDWR|os.O_CREATE)
			}
		}
		if err != nil {
			return nil, nil //nolint:nilnil,nilerr // the daemon will say what is wrong with the directory
		}
		err = flock(lock, syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			s.refusedBy = nil
			return lock, nil
		}
		file, serr := lock.Stat()
		_ = lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) || serr != nil {
			return nil, nil //nolint:nilnil,nilerr // a file system without locks
		}
		if s.refusedBy == nil || !os.SameFile(s.refusedBy, file) {
			s.refusedBy, s.refused = file, time.Now()
		}
		if time.Since(s.refused) < patience {
			return nil, proxy.ErrStarting
		}
		if err := os.Remove(s.lockPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, nil //nolint:nilnil // the daemon will say what is wrong with the directory
		}
	}
}

// Settled returns a channel that is closed when no daemon is being started any more: one listens,
// or the start has failed. It returns nil if none is being started, as far as can be known.
func (s *Starter) Settled() <-chan struct{} {
	if s.settled != nil && !waiting.IsClosed(s.settled) {
		return s.settled // one goroutine waits, however often a caller asks
	}
	s.socket = s.paths.Start()
	lock, err := ownfile.Open(s.lockPath())
	if err != nil {
		return nil
	}
	if flock(lock, syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		_ = lock.Close()
		return nil
	}
	settled := make(chan struct{})
	s.settled = settled
	go func() { // it ends when the lock is free, or with this process
		defer close(settled)
		defer lock.Close()
		_ = flock(lock, syscall.LOCK_SH)
	}()
	return settled
}

// lockPath returns the path of the lock.
func (s *Starter) lockPath() string { return filepath.Join(filepath.Dir(s.socket), socket.StartLock) }

// flock applies flock(2) to the file.
func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// TakeLock takes over the lock of this process's start, for a daemon, and returns the function
// that releases it. value is that of [LockEnv]. No child of the daemon inherits the lock.
func TakeLock(value string) (release func(), err error) {
	if value == "" {
		return func() {}, nil
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd != lockFD {
		return nil, fmt.Errorf("%s=%s is not a descriptor that a starter passes on", LockEnv, value)
	}
	syscall.CloseOnExec(fd)
	lock := os.NewFile(uintptr(fd), socket.StartLock)
	return func() {
		_ = flock(lock, syscall.LOCK_UN) // also for a child that is being forked and has a copy
		_ = lock.Close()
	}, nil
}
