package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdline/protocol"
	"holdline/protocol/lockcheck"
	"holdline/protocol/rawio"
)

// Without a free descriptor the kernel accepts no connection, and clients would wait in the backlog
// without a word. So the server keeps some descriptors in reserve. It gives one up for a moment to
// accept one more connection: a session learns why it is not served, and a command is served, so that
// `holdline status` and `holdline stop` work.

// scarceGreeting bounds the wait for the greeting of a connection that has one of the spare descriptors:
// meanwhile no other is accepted.
const scarceGreeting = time.Second

// scarcePoll bounds a wait that the end of the server does not cut short.
const scarcePoll = 100 * time.Millisecond

// scarceMemory is how long a lack of descriptors is reported after the last refusal.
const scarceMemory = time.Minute

// spares is how many descriptors are kept in reserve. One is enough for a connection; others may be
// taken by other parts of the daemon at the moment at which they are given up.
const spares = 8

// spareFiles are the descriptors in reserve. One goroutine uses them.
type spareFiles struct{ files []*os.File }

// fill takes as many descriptors as are missing, and reports whether none is. It cannot if there are
// no free ones.
func (f *spareFiles) fill() bool {
	for len(f.files) < spares {
		file, err := os.Open(os.DevNull)
		if err != nil {
			return false
		}
		f.files = append(f.files, file)
	}
	return true
}

// release gives one descriptor up, if there is one.
func (f *spareFiles) release() {
	if last := len(f.files) - 1; last >= 0 {
		_ = f.files[last].Close()
		f.files = f.files[:last]
	}
}

// close gives all descriptors up.
func (f *spareFiles) close() {
	for len(f.files) > 0 {
		f.release()
	}
}

// isScarce reports whether an accept failed for want of a descriptor.
func isScarce(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// awaitConn waits until a connection can be accepted from ln, for scarcePoll at most, and reports whether
// one can. It needs no descriptor. An accept would need one even to find out that none can.
func awaitConn(ln syscall.Conn) (waits bool) {
	raw, err := ln.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
			int(scarcePoll/time.Millisecond))
		waits = err == nil && n > 0
	})
	return err == nil && waits
}

// serveScarce serves a command that has one of the spare descriptors, in a goroutine of conns, and refuses
// a session.
func (s *Server) serveScarce(ctx context.Context, conn *net.UnixConn, conns *sync.WaitGroup) {
	short, cancel := context.WithTimeout(ctx, scarceGreeting)
	defer cancel()
	c := &Conn{Socket: rawio.Quiet(conn)}
	var err error
	if c.Peer, err = s.PeerOf(conn); err != nil {
		_ = c.Close()
		return
	}
	if r := s.refuseUser(c.Peer.UID); r != nil {
		err = r
	} else {
		err = s.greet(short, c)
	}
	handler := s.Handlers[c.role()]
	if err == nil && c.role() == protocol.RoleControl && handler != nil {
		if leave, ok := s.enter(c, protocol.RoleControl, s.most.Load()); ok {
			conns.Go(func() {
				defer c.Close()
				defer leave()
				handler(ctx, c)
			})
			return
		}
	}
	defer c.Close()
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		Refuse(c, refusal)
		return
	}
	s.scarce.note()
	s.Log.WarnContext(ctx, "connection refused: no file descriptor is left", "client_pid", c.Peer.PID, "limit", limit())
	Refuse(c, refusal(protocol.RefusedLimit, "%s", lacking()))
}

// limit returns how many descriptors this process may have.
func limit() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return uint64(l.Cur) //nolint:unconvert // its type depends on the system
}

// lacking returns for people what the lack is and what to do about it.
func lacking() string {
	return fmt.Sprintf("the daemon has no file descriptor left for another connection (it may have %d). Raise the limit "+
		"(ulimit -n, or LimitNOFILE= of a unit), then: holdline stop && holdline start", limit())
}

// scarcity remembers which connections were refused for want of a descriptor.
type scarcity struct {
	mu      lockcheck.Mutex
	refused int       // since the daemon last had enough for scarceMemory
	last    time.Time // of the last refusal
}

// note counts a refusal.
func (l *scarcity) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.last) > scarceMemory {
		l.refused = 0
	}
	l.refused++
	l.last = time.Now()
}

// Trouble returns for people whether connections were refused lately for want of a descriptor; "" if
// none were.
func (s *Server) Trouble() string {
	s.scarce.mu.Lock()
	defer s.scarce.mu.Unlock()
	if s.scarce.refused == 0 || time.Since(s.scarce.last) > scarceMemory {
		return ""
	}
	return fmt.Sprintf("%d connections were refused: %s", s.scarce.refused, lacking())
}
