// Package listener accepts connections on the daemon's socket, checks the user of
// the other side, reads the greeting, and hands each connection to the handler of
// its role.
//
// [Server.Serve] owns a goroutine for each connection and returns when all of
// them have ended.
package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"holdline/protocol"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
	"holdline/protocol/rawio"
	"holdline/protocol/socket"
)

// Conn is a connection whose greeting has been read.
type Conn struct {
	rawio.Socket
	Lines    *jsonrpc.Lines    // to go on reading from
	Greeting protocol.Greeting // zero if Anonymous
	Peer     socket.Peer
	// Anonymous means that there was no greeting: First is the first line and
	// already part of the protocol.
	Anonymous bool
	First     []byte
	Guest     *Guest // nil at the daemon's own socket
}

// role returns the role of the other side.
func (c *Conn) role() string {
	if c.Anonymous {
		return protocol.RoleMCP
	}
	return c.Greeting.Role
}

// Guest is what a client is by the socket at which it connected, whatever its greeting says.
type Guest struct {
	Socket   string // name in the configuration
	InFlight int    // calls at once of all guests of the socket
	Room     *Share // for long messages of all guests of the socket
}

// Handler serves one connection until it ends. It must return soon after ctx
// is done. The connection is closed after it returns.
type Handler func(ctx context.Context, c *Conn)

// Options are a server's settings.
type Options struct {
	Log      *slog.Logger
	UIDs     []int // the users who may connect
	MaxConns int   // sessions, and connections of another role, at once; see [Server.Limit]
	Strict   bool  // sessions that resume may not exceed MaxConns, as those of guests
	// States are the state directories of this daemon's home, see [socket.Serves]. None is for guests, who
	// may have any.
	States   []string
	Handlers map[string]Handler // by role; role "mcp" also takes connections without greeting
	// Greeting bounds the wait for the first line; 0 takes
	// [protocol.GreetingTimeout].
	Greeting time.Duration
	// PeerOf asks the kernel for the process on the other side; nil takes [socket.PeerOf].
	PeerOf func(*net.UnixConn) (socket.Peer, error)
}

// Listener is where connections come from; [socket.Listener] is one.
type Listener interface {
	AcceptUnix() (*net.UnixConn, error)
	Close() error
}

// Server accepts connections.
type Server struct {
	Options
	most   atomic.Int64  // sessions at once, and connections of another role
	open   atomic.Int64  // connections, those without a greeting included
	paused chan struct{} // holds a token while [Server.Pause] is in force
	scarce scarcity

	mu     lockcheck.Mutex
	places map[string]map[string]int // connections by role, and by session; guarded by mu
}

// maxStrangers bounds the connections whose greeting has not been read yet, when
// all others are at their limits.
const maxStrangers = 64

// New makes a server.
func New(o Options) *Server {
	if o.PeerOf == nil {
		o.PeerOf = socket.PeerOf
	}
	if o.Greeting == 0 {
		o.Greeting = protocol.GreetingTimeout
	}
	s := &Server{Options: o, paused: make(chan struct{}, 1), places: map[string]map[string]int{}}
	for role := range o.Handlers {
		s.places[role] = map[string]int{}
	}
	s.Limit(o.MaxConns)
	return s
}

// Limit bounds the connections that may be open at once from now on; none is
// closed for it. Sessions and commands are counted apart, so that a command
// never takes the last place of a session. All connections of a session have one place. A
// session that resumes may have had its place at an earlier daemon: unless the server is
// Strict, these may exceed the limit as often again.
func (s *Server) Limit(conns int) { s.most.Store(int64(conns)) }

// Back-off of accept errors, for example a lack of descriptors.
const (
	firstBackoff   = time.Millisecond
	longestBackoff = time.Second
)

// writeTimeout bounds the writing of a refusal.
const writeTimeout = time.Second

// Serve accepts until ctx is done, then waits for the handlers. It closes ln.
func (s *Server) Serve(ctx context.Context, ln Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()

	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel() // runs before Wait, so that handlers see it when Accept fails
	backoff := firstBackoff
	var spare spareFiles
	defer spare.close()
	spare.fill()
	for {
		conn, err := ln.AcceptUnix()
		s.awaitResume(ctx)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // by Pause
			continue
		case err == nil && spare.fill():
			backoff = firstBackoff
			conns.Go(func() { s.serveConn(ctx, conn) })
			continue
		case err == nil:
			backoff = firstBackoff
			s.serveScarce(ctx, conn, &conns)
			spare.fill()
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept: %w", err)
		}
		if waits, ok := ln.(syscall.Conn); ok && isScarce(err) && (spare.fill() || len(spare.files) > 0) {
			if awaitConn(waits) {
				spare.release()
			}
			continue
		}
		s.Log.WarnContext(ctx, "accept refused by the system, trying again", "err", err, "after", backoff)
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, longestBackoff)
	}
}

// Pausable is a listener whose accepts a deadline can end.
type Pausable interface{ SetDeadline(t time.Time) error }

// Pause makes [Server.Serve], which accepts from ln, accept nothing until Resume is
// called. Clients that connect meanwhile wait in the socket's backlog, for this program or
// for its successor: no connection is refused during a hand-over. One that is accepted at
// the same moment waits, too.
func (s *Server) Pause(ln Pausable) error {
	s.paused <- struct{}{}
	return ln.SetDeadline(time.Unix(1, 0)) // wakes a blocked accept
}

// Resume makes Serve accept again after a Pause, even one that has failed.
func (s *Server) Resume(ln Pausable) error {
	err := ln.SetDeadline(time.Time{})
	<-s.paused
	return err
}

// awaitResume blocks while a Pause is in force and ctx is not done.
func (s *Server) awaitResume(ctx context.Context) {
	select {
	case s.paused <- struct{}{}:
		<-s.paused
	case <-ctx.Done():
	}
}

// serveConn checks the peer and its greeting, and calls the handler of its role. It closes
// the connection.
func (s *Server) serveConn(ctx context.Context, unix *net.UnixConn) {
	var conn rawio.Socket = unix
	defer func() { _ = conn.Close() }()
	most := s.most.Load()
	defer s.open.Add(-1)
	if s.open.Add(1) > 3*most+maxStrangers {
		s.refuseFull(ctx, conn, most)
		return
	}
	peer, err := s.PeerOf(unix)
	if err != nil {
		s.Log.WarnContext(ctx, "connection refused: peer unknown", "err", err)
		return
	}
	if r := s.refuseUser(peer.UID); r != nil {
		s.Log.WarnContext(ctx, "connection refused: another user", "uid", peer.UID, "client_pid", peer.PID)
		Refuse(conn, r)
		return
	}
	conn = rawio.Quiet(unix)
	c := &Conn{Socket: conn, Peer: peer}
	if err := s.greet(ctx, c); err != nil {
		if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
			Refuse(conn, refusal)
		}
		s.Log.InfoContext(ctx, "connection without a usable greeting closed", "client_pid", peer.PID, "err", err)
		return
	}
	role := c.role()
	handler := s.Handlers[role]
	if handler == nil {
		Refuse(conn, refusal(protocol.RefusedGreeting, "role %q is not served here", role))
		return
	}
	leave, ok := s.enter(c, role, most)
	if !ok {
		s.refuseFull(ctx, conn, most)
		return
	}
	defer leave()
	handler(ctx, c)
}

// refuseUser returns the refusal of a user who may not connect; nil for one who may.
func (s *Server) refuseUser(uid int) *protocol.Refusal {
	if slices.Contains(s.UIDs, uid) {
		return nil
	}
	return refusal(protocol.RefusedIdentity, "this socket serves uid %s only, not %d",
		strings.Trim(fmt.Sprint(s.UIDs), "[]"), uid)
}

// enter takes a place for a connection of that role, and reports whether there was one. The caller
// must call leave at its end. most is what the configuration allows.
func (s *Server) enter(c *Conn, role string, most int64) (leave func(), ok bool) {
	limit, key := most, fmt.Sprintf("%p", c)
	if role == protocol.RoleMCP {
		if c.Greeting.Resume && !s.Strict {
			limit = 2 * most
		}
		key = cmp.Or(c.Greeting.Session, key) // one without a greeting is a session of its own
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	places := s.places[role]
	if places[key] == 0 && int64(len(places)) >= limit {
		return nil, false
	}
	places[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if places[key]--; places[key] == 0 {
			delete(places, key)
		}
	}, true
}

// refuseFull refuses a connection, since there are too many. most is what the configuration allows.
func (s *Server) refuseFull(ctx context.Context, conn net.Conn, most int64) {
	s.Log.WarnContext(ctx, "connection refused: too many", "limit", most)
	Refuse(conn, refusal(protocol.RefusedLimit, "the daemon already serves %d connections, which is "+
		"its limit (limits.connections in the configuration)", most))
}

// greet reads the first line.
func (s *Server) greet(ctx context.Context, c *Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.SetReadDeadline(time.Now().Add(s.Greeting)); err != nil {
		return err
	}
	c.Lines = jsonrpc.NewLines(rawio.New(c.Socket), protocol.MaxGreeting)
	c.Lines.AtOnce = true
	line, err := c.Lines.Next()
	switch {
	case errors.Is(err, jsonrpc.ErrTooLong):
		return refusal(protocol.RefusedGreeting, "greeting of more than %d bytes", protocol.MaxGreeting)
	case err != nil:
		return fmt.Errorf("reading the greeting: %w", err)
	}
	c.Greeting, err = protocol.ParseGreeting(line)
	switch {
	case errors.Is(err, protocol.ErrNoGreeting):
		c.Anonymous = true
		c.First = append([]byte(nil), line...)
	case err != nil:
		return err
	case len(s.States) > 0 && !socket.Serves(s.States, c.Greeting.State):
		return refusal(protocol.RefusedHome, "%s", socket.OtherHome(c.Socket.LocalAddr().String(), s.States[0],
			c.Greeting.State))
	}
	c.Lines.AtOnce = false
	c.Lines.SetLimit(jsonrpc.MaxFrame)
	return c.SetReadDeadline(time.Time{})
}

// refusal returns a refusal with this message.
func refusal(code, format string, args ...any) *protocol.Refusal {
	return &protocol.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Refuse says to the peer why it is not served. A failed write is ignored: the
// connection is closed anyway.
func Refuse(conn net.Conn, r *protocol.Refusal) {
	_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, _ = conn.Write(protocol.Append(nil, protocol.Welcome{Holdline: protocol.Version, Error: r}))
}
