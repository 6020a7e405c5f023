// Package stream has standard streams whose reads and writes can be ended.
package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"holdline/protocol/rawio"
)

// chunk is what a pipe or socket that polls as writable takes without making
// the writer wait: POSIX promises a pipe's readers whole writes of so many
// bytes, and both systems report room only if that much is there.
const chunk = 4096

// Stream is a standard stream whose Close ends a Read or Write that waits.
//
// Where the runtime's poller can wait for it, it does. Elsewhere Stream polls
// before it reads or writes, and leaves the descriptor blocking: that flag
// belongs to the open file, which others (a shell, say) may share.
type Stream struct {
	file *os.File      // for the runtime's poller; nil if it cannot wait for f
	via  *rawio.Stream // to it
	undo func()

	f    *os.File // kept so that it is not closed by the collector
	fd   int
	wake [2]int // a pipe; closing its write end wakes all

	once sync.Once
	mu   sync.RWMutex // held to read while wake[0] is in use
	done bool         // wake[0] is closed; guarded by mu
}

// New wraps f. Close does not close f itself.
func New(f *os.File) (*Stream, error) {
	s := &Stream{f: f}
	raw, err := f.SyscallConn()
	if err == nil { // unlike f.Fd this leaves the descriptor's mode alone
		err = raw.Control(func(fd uintptr) { s.fd = int(fd) })
	}
	if err != nil {
		return nil, fmt.Errorf("descriptor of %s: %w", f.Name(), err)
	}
	if s.file, s.undo = pollable(f, s.fd); s.file != nil {
		s.via = rawio.New(s.file)
		return s, nil
	}
	if err := unix.Pipe(s.wake[:]); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	unix.CloseOnExec(s.wake[0])
	unix.CloseOnExec(s.wake[1])
	return s, nil
}

// Read reads once. After Close it returns io.EOF.
func (s *Stream) Read(b []byte) (int, error) {
	if s.file != nil {
		n, err := s.via.Read(b)
		if errors.Is(err, os.ErrClosed) {
			err = io.EOF
		}
		return n, err
	}
	for s.wait(unix.POLLIN) {
		n, err := unix.Read(s.fd, b)
		switch {
		case passing(err):
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n <= 0 && len(b) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
	return 0, io.EOF
}

// Write writes all of b. After Close it returns os.ErrClosed.
func (s *Stream) Write(b []byte) (int, error) {
	if s.file != nil {
		return s.via.Write(b)
	}
	done := 0
	for done < len(b) {
		if !s.wait(unix.POLLOUT) {
			return done, os.ErrClosed
		}
		n, err := unix.Write(s.fd, b[done:min(len(b), done+chunk)])
		switch {
		case passing(err):
		case err != nil:
			return done, os.NewSyscallError("write", err)
		default:
			done += n
		}
	}
	return done, nil
}

// SendFile is that of [rawio.Stream].
func (s *Stream) SendFile(f *os.File, off, size int64) (int64, error) {
	if s.file == nil {
		return 0, errors.ErrUnsupported
	}
	return s.via.SendFile(f, off, size)
}

// wait waits until f is ready for events, in error or at its end; false means
// that s was closed.
func (s *Stream) wait(events int16) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.done {
		return false
	}
	fds := []unix.PollFd{
		{Fd: int32(s.fd), Events: events},
		{Fd: int32(s.wake[0]), Events: unix.POLLIN},
	}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case passing(err):
			continue
		case err != nil:
			return true // Read or Write will say what is wrong
		case fds[1].Revents != 0:
			return false
		default: // also what poll does not know, such as a terminal on macOS
			return true
		}
	}
}

// passing reports whether a system call only has to be repeated.
func passing(err error) bool {
	return errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN)
}

// Close ends a Read or Write that waits. It may be called more than once and from any
// goroutine.
func (s *Stream) Close() error {
	s.once.Do(func() {
		if s.file != nil {
			_ = s.file.Close()
			s.undo()
			return
		}
		_ = unix.Close(s.wake[1])
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done = true
		_ = unix.Close(s.wake[0])
	})
	return nil
}
