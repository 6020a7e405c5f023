// Package rawio makes the system calls that each line takes without telling the
// Go runtime of them: those on sockets, pipes and files in memory.
//
// The runtime wants to know of each system call, since it may take long: it
// then has another thread go on meanwhile. If all was idle before, it wakes its
// monitor thread for that (runtime/proc.go, entersyscall and sysmon), which
// looks around for a while on whatever processor is free. A process of the line
// is idle before each line, so that each hop would cost two threads. A call on
// a descriptor that never waits need not be watched: the runtime's poller does
// the waiting.
package rawio

import (
	"io"
	"net"
	"runtime"
	"syscall"

	"holdline/protocol/lockcheck"
)

// Stream is a socket or a pipe. One goroutine at a time may read, and one at a
// time write. It has no descriptor of its own: the caller that made plain closes
// that and sets its deadlines.
type Stream struct {
	plain  io.ReadWriter
	raw    syscall.RawConn // nil if all is left to plain
	in     transfer
	out    transfer
	try    func(fd uintptr) bool // out.step once, without a wait
	socket bool                  // else a pipe; it counts if raw is not nil
}

// transfer is a Read or a Write under way.
type transfer struct {
	step func(fd uintptr) bool // makes the system calls; false if the descriptor is not ready
	buf  []byte
	n    int   // bytes of buf that were transferred
	err  error // of the last system call
	pipe int   // usual size in bytes of a pipe that SendFile has enlarged; 0 if it has not
}

// New returns a stream over plain, a socket or a file of package net or os. If
// system calls on it could block, or on a system that has no such calls here,
// each Read and Write is that of plain.
func New(plain io.ReadWriter) *Stream {
	s := &Stream{plain: plain}
	if c, ok := plain.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			s.init(raw)
		}
	}
	return s
}

// Read is that of [io.Reader].
func (s *Stream) Read(p []byte) (int, error) {
	lockcheck.Blocking("read")
	if s.raw == nil || len(p) == 0 {
		return s.plain.Read(p)
	}
	t := &s.in
	t.buf, t.n, t.err = p, 0, nil
	runtime.Gosched() // who was woken by what was read before goes first: this may only come to wait
	waited := s.raw.Read(t.step)
	n, err := t.n, t.err
	t.buf = nil
	switch {
	case err != nil:
		return 0, err
	case n > 0:
		return n, nil
	case waited != nil: // closed, or too late: plain has the words for it
		return s.plain.Read(p)
	}
	return 0, io.EOF
}

// Write is what [io.Writer] says.
func (s *Stream) Write(p []byte) (int, error) {
	lockcheck.Blocking("write")
	if s.raw == nil || len(p) == 0 {
		return s.plain.Write(p)
	}
	t := &s.out
	t.buf, t.n, t.err = p, 0, nil
	waited := s.raw.Write(t.step)
	n, err := t.n, t.err
	t.buf = nil
	if err == nil && waited != nil {
		more, err := s.plain.Write(p[n:])
		return n + more, err
	}
	return n, err
}

// TryWrite writes as much of p as is taken at once, and returns how much that was.
// It returns 0 where it cannot know, and on an error, which the next Write returns.
func (s *Stream) TryWrite(p []byte) int {
	if s.raw == nil || len(p) == 0 {
		return 0
	}
	t := &s.out
	t.buf, t.n, t.err = p, 0, nil
	_ = s.raw.Write(s.try)
	t.buf = nil
	return t.n
}

// Conn is a connection that is read and written as a [Stream] over it.
type Conn struct {
	net.Conn
	stream *Stream
}

// NewConn makes a [Conn] of conn, which it does not own.
func NewConn(conn net.Conn) *Conn { return &Conn{conn, New(conn)} }

// Read is [Stream.Read].
func (c *Conn) Read(p []byte) (int, error) { return c.stream.Read(p) }

// Write is [Stream.Write].
func (c *Conn) Write(p []byte) (int, error) { return c.stream.Write(p) }

// TryWrite is [Stream.TryWrite].
func (c *Conn) TryWrite(p []byte) int { return c.stream.TryWrite(p) }

// Gather writes all of bufs, as one where that can be.
func (s *Stream) Gather(bufs *net.Buffers) (int64, error) {
	lockcheck.Blocking("write")
	return bufs.WriteTo(s.plain)
}
