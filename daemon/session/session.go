package session

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"holdline/daemon/session/agents"
	"holdline/daemon/session/flight"
	"holdline/daemon/session/held"
	"holdline/daemon/session/link"
	"holdline/daemon/session/listen"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/peer"
	"holdline/daemon/session/profile"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/lockcheck"
)

// errBye is the end of a connection whose client said bye.
var errBye = fmt.Errorf("%w: it said bye", link.ErrGone)

// session is the state of one client. It outlives its connections: while the client is not
// connected, its calls go on and their answers wait. The handler of its first connection is the
// reader: it runs serveLinks, and owns the goroutines of the requests in flight.
//
// Locks are taken in this order: session.looking, Server.mu, session.mu, the lock of an outbox. No goroutine holds
// one while it reads or writes a connection, or calls an executor.
type session struct {
	srv       *Server
	anonymous bool   // the client sent no greeting: it cannot resume the session
	hash      string // of the session's uuid
	number    int64  // shown to users; counts the sessions of this daemon from 1
	since     time.Time
	log       *slog.Logger  // set by serveLinks
	guest     string        // socket of the configuration by which the client came; "" for the daemon's own
	client    int           // pid of the client; 0 if unknown
	agent     *agents.Agent // the client process; set before the session is served
	calls     atomic.Int64  // calls of targets so far, replayed ones included
	running   atomic.Int64  // goroutines for requests that have not ended
	quiet     chan struct{} // holds a token when running may have become 0
	turn      chan struct{} // holds a token while a stored answer is loaded and queued

	claims chan *link.Link // connections that take the session over
	over   chan struct{}   // closed when the session has ended
	cut    chan struct{}   // holds a token when the user has ended the session

	// Only the reader uses these fields, without a lock. A session has one reader.
	n         int64              // number of the client's last line
	handshake handshake          // of a legacy client
	known     map[int64]struct{} // lines whose requests this daemon had before the connection; nil before the first one
	spills    bool               // the client names files
	numbers   bool               // its proxy takes the numbers of lines with answers
	keeps     bool               // its proxy keeps what it is told for the next daemon
	store     string             // id of the records with which the client came back first; "" if it did not
	waits     *outbox.Guest      // bounds the answers that wait; nil unless the client is a guest
	release   func()             // gives back the room that the present line of a guest takes; nil for none
	replays   int                // lines that its proxy is still to send again
	uncertain int64              // lines below it may have run without a record that this daemon can read; 0 for none

	lists   held.Lists      // the lists that the client holds; has a lock of its own
	notes   held.Notes      // what the client was told in its subscriptions; has a lock of its own
	looking lockcheck.Mutex // held while lists are looked at and a change of them is announced; guards nothing

	mu        lockcheck.Mutex   // guards all below
	last      protocol.Control  // the bye of a session that is expelled
	state     sessionState      // changed by setLocked alone
	came      chan struct{}     // closed and replaced when the session is attached
	cur       *link.Link        // nil unless the session is attached
	kept      outbox.Kept       // answers to give again when the client is back
	keeping   int               // of the room of a guest, for kept
	peer      peer.Peer         // of the latest connection
	version   string            // of the proxy
	profile   profile.Profile   // of the client, as far as it is known
	flights   *flight.Table     // requests that are not answered; set with agent
	listens   listen.Table      // open subscriptions of a modern client
	follows   listen.Follows    // subscriptions of a legacy client to resources
	told      map[string]string // what its proxy keeps of the changes of resources, by server
	replaying bool              // its proxy sends lines again
	info      json.RawMessage   // of the one server that the session is for
}

// sessionState is where a session stands.
//
//	attached -> detached: its connection broke, or the client has made another one
//	attached -> expelled: too many answers waited, or the user ends it; the client gets a bye
//	detached -> attached: the client is back
//	detached -> expelled: as above; the client gets the bye when it is back
//	attached, detached, expelled -> ended: the client is gone, or does not come back
//	attached, detached, expelled -> left:  the daemon stops; the next one goes on
type sessionState int

const (
	attached sessionState = iota
	detached
	expelled
	ended
	left
)

// setLocked changes the state and the connection; l is nil for none. A change to attached wakes the
// waiters on s.came; one to expelled drops the kept answers. The caller must hold s.mu.
func (s *session) setLocked(to sessionState, l *link.Link) {
	if to == attached {
		close(s.came)
		s.came = make(chan struct{})
	}
	if to == expelled {
		s.kept = outbox.Kept{}
		s.waits.Force(&s.keeping, 0)
	}
	s.state, s.cur = to, l
}

// handshake is a step in the handshake of a legacy client. It never goes back.
type handshake int

const (
	notInitialized handshake = iota
	initialized              // the session has accepted initialize
	ready                    // the client has sent notifications/initialized
)

// newSession makes the session of a client whose first connection is l. [Server.openSession]
// registers it. A client without a greeting gets a random uuid: no greeting can name its session.
func newSession(srv *Server, l *link.Link) *session {
	g := &l.Greeting
	one := &session{
		srv: srv, anonymous: l.Anonymous, guest: l.Guest, cur: l, peer: l.Peer,
		since:   time.Now().Add(-time.Duration(max(g.AgeMS, 0)) * time.Millisecond),
		version: profile.Clip(g.Version),
		quiet:   make(chan struct{}, 1), turn: make(chan struct{}, 1), came: make(chan struct{}),
		claims: make(chan *link.Link), over: make(chan struct{}), cut: make(chan struct{}, 1),
		listens: listen.Table{}, follows: listen.Follows{}, numbers: g.Numbers, keeps: g.Kept != nil,
	}
	uuid := g.Session
	if l.Anonymous {
		uuid = rand.Text()
	}
	one.hash = Hash(uuid)
	one.profile = profile.New(one.hash, g, l.Anonymous, l.Guest)
	if pid, key := srv.o.Client(l.Peer.PID); key != "" && !l.Anonymous {
		one.client, one.profile.Caller.Agent = pid, key
	}
	return one
}

// status describes the session for users. Open subscriptions do not count as calls. It takes s.mu.
func (s *session) status() control.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := "attached"
	if s.cur == nil {
		state = "detached"
	}
	caller := &s.profile.Caller
	return control.Session{
		ID: strconv.FormatInt(s.number, 10), Identity: caller.Identity, Client: caller.Client, Era: s.profile.Era,
		Project: caller.Project, Cwd: caller.Cwd, Server: caller.Only, View: caller.View, Socket: s.guest,
		PID: s.peer.PID, ClientPID: s.client, State: state,
		InFlight: s.flights.Calls(), Calls: s.calls.Load(), Proxy: s.version,
		SinceMS: time.Since(s.since).Milliseconds(),
	}
}

// serveLinks serves the session, first on l, then on each connection that replaces it, until none
// can follow (see [session.awaitLink]). Then it cancels the calls, waits for their goroutines, and
// closes the connection. The state is then ended, or left if the daemon stops. If ctx, the
// daemon's, is done, the cause is [tool.ErrStopping], and the next daemon answers. It takes s.mu.
func (s *session) serveLinks(ctx context.Context, l *link.Link) {
	s.log = s.srv.o.Log.With("client_pid", l.Peer.PID, "session", s.number)
	s.log.InfoContext(ctx, "session opened",
		"identity", s.who().Identity, "anonymous", s.anonymous, "socket", s.guest, "resumed", l.Greeting.Resume)
	outer := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(link.ErrGone)
	stop := context.AfterFunc(outer, func() { cancel(tool.ErrStopping) })
	defer stop()
	calls := s.srv.pool.New()
	var end error
	for {
		end = s.serveLink(ctx, l, calls)
		if !errors.Is(end, link.ErrLost) && !errors.Is(end, link.ErrSuperseded) || s.anonymous {
			break
		}
		s.detach(l)
		l.Drop()
		next := s.awaitLink(ctx, end)
		if next == nil {
			break
		}
		l = next
	}
	cause := link.ErrGone
	if errors.Is(end, tool.ErrStopping) || outer.Err() != nil {
		cause = tool.ErrStopping
	}
	cancel(cause)
	calls.Wait()
	l.Finish()
	last := ended
	if errors.Is(cause, tool.ErrStopping) {
		last = left
	}
	s.mu.Lock()
	s.setLocked(last, nil)
	s.mu.Unlock()
	s.log.InfoContext(ctx, "session closed", "dur", time.Since(s.since), "calls", s.calls.Load(), "err", end)
}

// who returns the client as a caller, with the process of its latest connection. Its name and its
// identity may change with its first request. It takes s.mu.
func (s *session) who() tool.Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	who := s.profile.Caller
	who.PID, who.Start = s.peer.PID, s.peer.Start
	return who
}
