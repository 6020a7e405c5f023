package session

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"holdline/daemon/catalog"
	"holdline/daemon/listener"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/socket"
)

// Causes that end a call's context.
var (
	errCancelled = errors.New("cancelled by the client")
	errGone      = errors.New("the client is gone")
	errStopping  = errors.New("the daemon is stopping")
)

// lastWrites bounds the sending of what is still queued when a session ends.
const lastWrites = 2 * time.Second

// session is one client's.
type session struct {
	srv       *Server
	conn      *net.UnixConn
	lines     *jsonrpc.Lines
	first     []byte // a line already read; nil if none
	anonymous bool
	named     bool // the greeting gave the identity
	number    int64
	pid       int
	since     time.Time
	version   string // of the proxy
	log       *slog.Logger
	out       *outbox
	calls     atomic.Int64

	// Only the reader touches these.
	n       int64 // number of the client's last line
	asked   bool  // initialize was answered
	ready   bool  // and notifications/initialized was seen
	settled bool  // the identity is fixed

	mu       sync.Mutex
	caller   tool.Caller          // guarded by mu
	era      string               // guarded by mu
	inFlight map[string]*inFlight // by id; guarded by mu
}

// inFlight is a request that is not answered yet.
type inFlight struct {
	cancel   context.CancelCauseFunc
	progress *progress // nil if the client did not ask
}

func newSession(srv *Server, c *listener.Conn) *session {
	one := &session{
		srv: srv, conn: c.UnixConn, lines: c.Lines, first: c.First,
		anonymous: c.Anonymous, pid: c.Peer.PID, since: time.Now(), version: clip(c.Greeting.Version),
		out: newOutbox(), inFlight: map[string]*inFlight{},
	}
	uuid := c.Greeting.Session
	if c.Anonymous {
		uuid = rand.Text()
	}
	one.caller = tool.Caller{
		Session:  Hash(uuid),
		Identity: c.Greeting.Identity,
		Project:  c.Greeting.Project,
		Cwd:      c.Greeting.Cwd,
		Root:     ProjectRoot(c.Greeting.Cwd),
	}
	one.named = c.Greeting.Identity != ""
	if c.Anonymous {
		one.caller.Identity, one.named = catalog.Anonymous, true
	}
	one.log = srv.o.Log.With("client_pid", one.pid)
	return one
}

// ProjectRoot is the nearest parent of cwd with .git, else cwd itself; "" if
// cwd is no absolute path of a directory that exists.
func ProjectRoot(cwd string) string {
	if !filepath.IsAbs(cwd) {
		return ""
	}
	cwd, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		return ""
	}
	for dir := cwd; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return cwd
		}
	}
}

func (s *session) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{
		ID: strconv.FormatInt(s.number, 10), Identity: s.caller.Identity, Client: s.caller.Client, Era: s.era,
		Project: s.caller.Project, Cwd: s.caller.Cwd, PID: s.pid, State: "attached",
		InFlight: len(s.inFlight), Calls: s.calls.Load(), SinceMS: time.Since(s.since).Milliseconds(), Proxy: s.version,
	}
}

// serve runs the session: the reader here, the writer beside it.
func (s *session) serve(ctx context.Context) {
	s.log = s.log.With("session", s.number)
	s.log.InfoContext(ctx, "session opened", "identity", s.identity(), "anonymous", s.anonymous)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errGone)

	var calls, parts sync.WaitGroup
	parts.Go(func() {
		if err := s.out.write(s.conn); err != nil {
			cancel(fmt.Errorf("%w: %w", errGone, err))
		}
	})
	// A done context, be it the daemon's or the writer's doing, wakes the reader.
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	err := s.read(ctx, &calls)
	if err == nil {
		// The client closed its side only: it may still wait for answers.
		s.drain(ctx, &calls, cancel)
	}
	cause := errGone
	if errors.Is(err, errStopping) {
		cause = errStopping
	}
	cancel(cause)
	calls.Wait()
	s.out.close()
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	late := time.AfterFunc(lastWrites, func() { _ = s.conn.Close() })
	parts.Wait()
	late.Stop()
	s.log.InfoContext(ctx, "session closed", "dur", time.Since(s.since), "calls", s.calls.Load(), "err", err)
}

// drain waits until the calls in flight are answered, or the client is gone.
func (s *session) drain(ctx context.Context, calls *sync.WaitGroup, cancel context.CancelCauseFunc) {
	watch, enough := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		tick := time.NewTicker(hangupPoll)
		defer tick.Stop()
		for !socket.HungUp(s.conn) {
			select {
			case <-tick.C:
			case <-watch.Done():
				return
			}
		}
		cancel(errGone)
	})
	calls.Wait()
	enough()
	watcher.Wait()
}

// read takes lines until the client closes its side (nil), says bye or is
// lost, or ctx is done.
func (s *session) read(ctx context.Context, calls *sync.WaitGroup) error {
	if s.first != nil {
		s.line(ctx, s.first, calls)
		s.first = nil
	}
	for {
		line, err := s.lines.Next()
		switch {
		case err == nil:
		case errors.Is(err, jsonrpc.ErrTooLong):
			f := fault.New(fault.ParseError, fault.Protocol, "jsonrpc.parse", "%v", err)
			s.refuse(ctx, nil, f)
			continue
		case ctx.Err() != nil:
			if cause := context.Cause(ctx); errors.Is(cause, errGone) {
				return cause
			}
			return errStopping
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
		if protocol.IsControl(line) {
			control, err := protocol.ParseControl(line)
			if err == nil && control.Bye != "" {
				return fmt.Errorf("%w: it said bye", errGone)
			}
			continue // got, replay: only a resumable session has use for them
		}
		s.line(ctx, bytes.Clone(line), calls)
	}
}

func (s *session) identity() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller.Identity
}

// who is the caller as it is known now.
func (s *session) who() tool.Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller
}
