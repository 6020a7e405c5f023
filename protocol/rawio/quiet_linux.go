//go:build amd64 || arm64

package rawio

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// quiet is a unix socket that wakes this process when there is something to read, and for nothing
// else. The runtime asks its poller for output, too (runtime/netpoll_epoll.go, netpollopen): each
// time the peer has read, the process would wake up for nothing, which is a tenth of the CPU time of
// a call. So the runtime does not know the socket. It waits for an epoll(7) instance, which waits
// for the socket's input alone.
type quiet struct {
	local, remote net.Addr
	in            *os.File // the epoll instance: it can be read while the socket can
	wait          syscall.RawConn
	step          func(uintptr) bool    // calls read with the socket
	read          func(fd uintptr) bool // of the Read under way

	using sync.RWMutex // held for reading while fd is used; no system call waits meanwhile
	fd    int          // of the socket, which is non-blocking; -1 after Close

	writing sync.Mutex // held by a Write, also while it waits

	mu    sync.Mutex // guards all below
	until time.Time  // deadline of writes; zero is none
	out   *os.File   // the epoll instance of the Write that waits; nil without one
}

// Quiet returns a connection over the socket of conn that wakes this process only when there is
// something to read. It takes conn over: the caller must not use that any more. One goroutine at a
// time may read the result. If no more descriptors can be opened, Quiet returns conn itself.
func Quiet(conn *net.UnixConn) Socket {
	q := &quiet{local: conn.LocalAddr(), remote: conn.RemoteAddr(), fd: -1}
	raw, err := conn.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { q.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	}
	if err != nil || q.fd < 0 {
		return conn
	}
	if q.in, q.wait, err = q.poll(unix.EPOLLIN | unix.EPOLLRDHUP); err != nil {
		_ = unix.Close(q.fd)
		return conn
	}
	q.step = func(uintptr) bool {
		done, err := q.use(q.read)
		return done || err != nil
	}
	_ = conn.Close() // its descriptor: the socket has another one
	return q
}

// poll returns an epoll instance that can be read while one of events is true of the socket. The
// caller must close it.
func (q *quiet) poll(events uint32) (*os.File, syscall.RawConn, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, nil, os.NewSyscallError("epoll_create1", err)
	}
	add := func(fd uintptr) bool {
		err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: events})
		return true
	}
	if _, closed := q.use(add); closed != nil {
		err = closed
	}
	if err == nil {
		err = unix.SetNonblock(ep, true) // else the runtime does not wait for it
	}
	if err != nil {
		_ = unix.Close(ep)
		return nil, nil, os.NewSyscallError("epoll_ctl", err)
	}
	f := os.NewFile(uintptr(ep), "epoll")
	raw, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(time.Time{}) // an error says that the runtime does not wait for it
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, raw, nil
}

// use calls f with the socket and returns its result. It returns [net.ErrClosed], and does not call
// f, once q is closed. f must not wait.
func (q *quiet) use(f func(fd uintptr) bool) (done bool, err error) {
	q.using.RLock()
	defer q.using.RUnlock()
	if q.fd < 0 {
		return false, net.ErrClosed
	}
	return f(uintptr(q.fd)), nil
}

// isClosed reports whether Close was called.
func (q *quiet) isClosed() bool {
	_, err := q.use(func(uintptr) bool { return true })
	return err != nil
}

// Close closes the socket. It ends the Read and the Write under way.
func (q *quiet) Close() error {
	q.using.Lock()
	fd := q.fd
	q.fd = -1
	q.using.Unlock()
	if fd < 0 {
		return q.failed("close", net.ErrClosed)
	}
	_ = q.in.Close()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.out != nil {
		_ = q.out.Close()
	}
	return os.NewSyscallError("close", unix.Close(fd))
}

// Read is that of [net.Conn].
func (q *quiet) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	t := transfer{buf: b}
	err := (*quietRaw)(q).Read(t.receive)
	switch {
	case t.n > 0:
		return t.n, nil
	case t.err != nil:
		return 0, q.failed("read", t.err)
	case err != nil:
		return 0, q.failed("read", err)
	}
	return 0, io.EOF
}

// Write is that of [net.Conn].
func (q *quiet) Write(b []byte) (int, error) {
	t := transfer{buf: b}
	err := (*quietRaw)(q).Write(t.sendSocket)
	if t.err != nil {
		err = t.err
	}
	if err != nil {
		return t.n, q.failed("write", err)
	}
	return t.n, nil
}

// failed returns the error of an operation as package net returns it.
func (q *quiet) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "unix", Source: q.local, Addr: q.remote, Err: err}
}

// LocalAddr is that of [net.Conn].
func (q *quiet) LocalAddr() net.Addr { return q.local }

// RemoteAddr is that of [net.Conn].
func (q *quiet) RemoteAddr() net.Addr { return q.remote }

// SetDeadline is that of [net.Conn].
func (q *quiet) SetDeadline(t time.Time) error {
	return errors.Join(q.SetReadDeadline(t), q.SetWriteDeadline(t))
}

// SetReadDeadline is that of [net.Conn].
func (q *quiet) SetReadDeadline(t time.Time) error { return q.in.SetReadDeadline(t) }

// SetWriteDeadline is that of [net.Conn].
func (q *quiet) SetWriteDeadline(t time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.until = t
	if q.out != nil {
		return q.out.SetReadDeadline(t)
	}
	return nil
}

// isLate reports whether the deadline of writes has passed.
func (q *quiet) isLate() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.until.IsZero() && !time.Now().Before(q.until)
}

// CloseRead is that of [net.UnixConn].
func (q *quiet) CloseRead() error { return q.shutdown(unix.SHUT_RD) }

// CloseWrite is that of [net.UnixConn].
func (q *quiet) CloseWrite() error { return q.shutdown(unix.SHUT_WR) }

// shutdown closes one direction of the socket.
func (q *quiet) shutdown(how int) (err error) {
	_, closed := q.use(func(fd uintptr) bool {
		err = os.NewSyscallError("shutdown", unix.Shutdown(int(fd), how))
		return true
	})
	return errors.Join(closed, err)
}

// SyscallConn is that of [syscall.Conn].
func (q *quiet) SyscallConn() (syscall.RawConn, error) { return (*quietRaw)(q), nil }

// quietRaw is a quiet as a [syscall.RawConn].
type quietRaw quiet

// Control is that of [syscall.RawConn]. f must not wait.
func (r *quietRaw) Control(f func(fd uintptr)) error {
	_, err := (*quiet)(r).use(func(fd uintptr) bool { f(fd); return true })
	return err
}

// Read is that of [syscall.RawConn].
func (r *quietRaw) Read(f func(fd uintptr) (done bool)) error {
	q := (*quiet)(r)
	q.read = f
	err := q.wait.Read(q.step)
	q.read = nil
	if q.isClosed() {
		return net.ErrClosed
	}
	return err
}

// Write is that of [syscall.RawConn]. It returns [os.ErrDeadlineExceeded] without a call of f if
// that is due.
func (r *quietRaw) Write(f func(fd uintptr) (done bool)) error {
	q := (*quiet)(r)
	q.writing.Lock()
	defer q.writing.Unlock()
	if q.isLate() {
		return os.ErrDeadlineExceeded
	}
	if done, err := q.use(f); done || err != nil {
		return err
	}
	return q.awaitRoom(f)
}

// awaitRoom calls f whenever the socket can be written, until f returns true. It returns an error
// if q is closed, or when the deadline of writes comes. q.writing must be held.
func (q *quiet) awaitRoom(f func(fd uintptr) (done bool)) error {
	out, raw, err := q.poll(unix.EPOLLOUT)
	if err != nil {
		return err
	}
	q.mu.Lock()
	q.out = out
	err = out.SetReadDeadline(q.until)
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.out = nil
		_ = out.Close()
	}()
	if err == nil {
		err = raw.Read(func(uintptr) bool {
			done, closed := q.use(f)
			return done || closed != nil
		})
	}
	if q.isClosed() {
		return net.ErrClosed
	}
	return err
}
