package session

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"holdline/daemon/session/crew"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/peer"
	"holdline/daemon/tool"
)

// Causes that end a call's context.
var (
	errGone = errors.New("client disconnected")
)

// Ways in which a connection ends.
var (
	errBye        = fmt.Errorf("%w: it said bye", errGone)
	errLost       = errors.New("the connection broke")
	errSuperseded = errors.New("the client has connected again")
	errTooMuch    = errors.New("more answers waited for this client than are kept")
)

// lastWrites bounds the sending of what is still queued when a session ends.
const lastWrites = 2 * time.Second

// session is one client's. It outlives its connections: while there is none,
// calls go on and their answers wait.
type session struct {
	srv       *Server
	anonymous bool
	named     bool   // the greeting gave the identity
	claimed   string // identity that the greeting gave
	hash      string // of the session's uuid
	number    int64
	since     time.Time
	log       *slog.Logger
	client    int    // pid of the client, 0 if it is not known
	agent     *agent // what the client's sessions share; set before it is served
	calls     atomic.Int64
	running   atomic.Int64  // calls whose goroutines have not ended
	quiet     chan struct{} // holds a token when running may have become 0
	turn      chan struct{} // holds a token while a stored answer is loaded and queued

	claims chan *link    // connections that take the session over
	left   bool          // to the next daemon; written before over is closed
	over   chan struct{} // closed when it has ended

	// Only the reader touches these; there is one at a time.
	n       int64              // number of the client's last line
	asked   bool               // initialize was answered
	ready   bool               // and notifications/initialized was seen
	settled bool               // the identity is fixed
	known   map[int64]struct{} // lines that were taken on before this connection
	lost    int64              // what lines below it have begun may not be on record any more; 0 is none

	mu           sync.Mutex
	came         chan struct{}        // closed and replaced when there is another connection; guarded by mu
	cur          *link                // nil while detached; guarded by mu
	kept         []outbox.Answer      // answers to give again; guarded by mu
	keeps        int                  // bytes of them; guarded by mu
	full         bool                 // they were too many, and are gone; guarded by mu
	peer         peer.Peer            // of the latest connection; guarded by mu
	version      string               // of the proxy; guarded by mu
	caller       tool.Caller          // guarded by mu
	era          string               // guarded by mu
	flights      map[string]*flight   // requests that are not answered, by id; guarded by mu
	listens      map[string]listening // open subscriptions to changes of lists, by id; guarded by mu
	capabilities json.RawMessage      // that the client declared; guarded by mu
	has          map[string]bool      // lists that the client has and that hold, by the notification of their change; guarded by mu
	follows      map[string]int64     // resources that a legacy client has subscribed to, with the number of the latest line; guarded by mu
	level        string               // of log messages, that the client has set; guarded by mu
	given        []byte               // digest of the list of tools, if no hosted ones are in it; guarded by mu
	wanted       string               // the most verbose that a modern request has asked for; guarded by mu
	info         json.RawMessage      // of the one server that the session is for; guarded by mu
}

func newSession(srv *Server, l *link) *session {
	g := &l.greeting
	one := &session{
		srv: srv, anonymous: l.anonymous, since: time.Now(), claimed: g.Identity,
		quiet: make(chan struct{}, 1), turn: make(chan struct{}, 1), came: make(chan struct{}), claims: make(chan *link), over: make(chan struct{}),
		cur: l, peer: l.peer, version: clip(g.Version), flights: map[string]*flight{}, listens: map[string]listening{}, follows: map[string]int64{}, has: map[string]bool{},
	}
	uuid := g.Session
	if l.anonymous {
		uuid = rand.Text()
	}
	one.hash = Hash(uuid)
	one.caller = tool.Caller{
		Session:  one.hash,
		Identity: g.Identity,
		Project:  g.Project,
		Cwd:      g.Cwd,
		Root:     peer.ProjectRoot(g.Cwd),
		Only:     g.Server,
		Logins:   g.Logins,
	}
	one.caller.Agent = one.hash
	if s := srv.o.Client; s != nil && !l.anonymous {
		if pid, key := s(l.peer.PID); key != "" {
			one.client, one.caller.Agent = pid, key
		}
	}
	one.named = g.Identity != ""
	if l.anonymous {
		one.caller.Identity, one.named = tool.Anonymous, true
	}
	return one
}

func (s *session) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := Attached
	if s.cur == nil {
		state = Detached
	}
	calls := 0
	for _, f := range s.flights {
		if f.at() == running && !f.subscription {
			calls++
		}
	}
	return Status{
		ID: strconv.FormatInt(s.number, 10), Identity: s.caller.Identity, Client: s.caller.Client, Era: s.era,
		Project: s.caller.Project, Cwd: s.caller.Cwd, PID: s.peer.PID, ClientPID: s.client, Server: s.caller.Only, State: state,
		InFlight: calls, Calls: s.calls.Load(), SinceMS: time.Since(s.since).Milliseconds(), Proxy: s.version,
	}
}

// serve runs the session on l and on the connections that follow it.
func (s *session) serve(ctx context.Context, l *link) {
	s.log = s.srv.o.Log.With("client_pid", l.peer.PID, "session", s.number)
	s.log.InfoContext(ctx, "session opened", "identity", s.identity(), "anonymous", s.anonymous, "resumed", l.greeting.Resume)
	outer := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(errGone)
	// Whatever ends the daemon, calls are told so.
	stop := context.AfterFunc(outer, func() { cancel(tool.ErrStopping) })
	defer stop()
	calls := crew.New()
	var end error
	for {
		end = s.attached(ctx, l, calls)
		if !errors.Is(end, errLost) && !errors.Is(end, errSuperseded) || s.anonymous {
			break
		}
		s.detach(l)
		l.drop()
		next := s.detached(ctx, end)
		if next == nil {
			break
		}
		l = next
	}
	cause := errGone
	if errors.Is(end, tool.ErrStopping) || outer.Err() != nil {
		cause = tool.ErrStopping
	}
	s.left = errors.Is(cause, tool.ErrStopping)
	cancel(cause)
	calls.Wait()
	l.finish()
	s.log.InfoContext(ctx, "session closed", "dur", time.Since(s.since), "calls", s.calls.Load(), "err", end)
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
	who := s.caller
	who.PID, who.Start = s.peer.PID, s.peer.Start
	return who
}
