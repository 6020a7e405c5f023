package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"holdline/daemon/clienttable"
	"holdline/daemon/listener"
	"holdline/daemon/session/agents"
	"holdline/daemon/session/crew"
	"holdline/daemon/session/executor"
	"holdline/daemon/session/flight"
	"holdline/daemon/session/link"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/peer"
	"holdline/daemon/session/returning"
	"holdline/daemon/statedir"
	"holdline/daemon/tasks"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
	"holdline/protocol/mcp"
)

// hangupPoll is how often a half-closed connection is checked: its client may wait, or be gone.
const hangupPoll = 100 * time.Millisecond

// Telemetry counts and logs requests. Its methods must not block for long.
type Telemetry interface {
	// Request counts one request; a nil fault is a success.
	Request(op telemetry.Operation, took time.Duration, replays int, f *fault.Record)
	// ToolCall logs one call of a tool, refused ones too.
	ToolCall(telemetry.Call)
	// SessionEnded forgets the session of that hash.
	SessionEnded(hash string)
}

// Hosted are the hosted MCP servers, as sessions reach them besides with calls.
type Hosted interface {
	// Opened begins to reach a session; it may be called again.
	Opened(session string, c tool.Client)
	// Respond passes line n, the client's answer, to the server that asked; false if none waits.
	Respond(session string, n int64, msg jsonrpc.Message) bool
	// Notified passes on a notification of the client: changed roots, or progress of a request.
	Notified(session string, msg jsonrpc.Message)
	// Tuned says that a session has set another level of log messages.
	Tuned()
	// Subscribe subscribes the session to a resource, and blocks until the server has agreed or
	// refused. A change calls [tool.Client] Updated with that holder: "" for the session, else its
	// name for a subscription. again is true if an earlier daemon had the same request. A failure
	// is the server's JSON-RPC error; err is a fault or [tool.ErrStopping].
	Subscribe(ctx context.Context, c tool.Caller, holder, uri string, again bool) (failure json.RawMessage, err error)
	// Unsubscribe ends the holder's subscription to a resource; all of them if the URI is "".
	Unsubscribe(session, holder, uri string)
	// Back says that the client of a session is back, and what its proxy keeps is known.
	Back(session string)
	// Retell says that the session takes notifications that it may have dropped before, or keeps
	// what it did not.
	Retell(session string)
}

// Options are a server's settings.
type Options struct {
	Log          *slog.Logger
	Catalog      *tool.Catalog
	Telemetry    Telemetry
	Info         mcp.Implementation
	Instructions [][2]string // what sessions are told that have an own tool, behind its name
	// Authorise checks what a greeting claims; an error is refused aloud.
	Authorise func(identity, token string) error
	// CheckView returns what is wrong with the view that a greeting wants; it is refused aloud.
	CheckView func(name string) error
	// Reserved reports whether an identity needs a token: its name alone is not enough.
	Reserved func(identity string) bool
	// Welcome is the daemon's part of a welcome line.
	Welcome     func() protocol.Welcome
	MaxInFlight int // calls at once of a client, in all its sessions; see [Server.Limit]
	// Came is told in which directory a client is, and how that was named; see launch.Grants. It may be nil.
	Came func(cwd, named string)
	// Client returns the process that started a proxy, and the sessions' common key, or "".
	Client func(proxy int) (pid int, key string)
	// MaxKept bounds the bytes of answers kept for an absent client; a session with more ends.
	MaxKept int
	// Executors are all that answer calls and keep records of them.
	Executors executor.List
	// Hosted are the hosted MCP servers.
	Hosted Hosted
	// Tasks are the calls of which clients ask by tasks.
	Tasks tasks.Store
	// RuntimeDir has the socket, and files that clients open by their names in it.
	RuntimeDir string
	// Lost reports whether the record may be lost of a call that a session has made while the
	// records had the id since: of a server, or of an own tool, whose server is "". why names the
	// damaged file; it is "" if that is not known. If it is nil nothing is lost.
	Lost func(since, server, project, session string) (why string, lost bool)
	// Still reports whether clients reach this daemon. If not, it records and calls nothing more.
	Still func() bool
	// Begun is when the daemon began, by the clock and by the wall. For [protocol.StartWindow] the
	// records of sessions that it has not seen are kept.
	Begun time.Time
	// Ended are the sessions of earlier daemons whose records are given up already.
	Ended []string
	// Alive reports whether a client's process is still there.
	Alive func(peer.Peer) bool
}

// Server serves MCP clients, with one session for each. It is safe for concurrent use.
type Server struct {
	o          Options
	serverInfo json.RawMessage
	agents     *agents.Table // the clients that have sessions
	pool       crew.Pool     // runs the calls of all sessions
	answers    outbox.Room   // bounds the answers that wait for guests

	mu       lockcheck.Mutex
	next     int64
	sessions map[*session]struct{} // guarded by mu
	returns  *returning.Window     // which sessions of an earlier daemon may come back; guarded by mu

	farewell atomic.Pointer[protocol.Control] // the bye, once the daemon stops; set under mu
}

// New makes a server.
func New(o Options) *Server {
	info, err := json.Marshal(o.Info)
	if err != nil { // plain strings encode
		info = []byte(`{"name":"holdline","version":""}`)
	}
	s := &Server{
		o: o, serverInfo: info, agents: agents.New(), sessions: map[*session]struct{}{},
		returns: returning.New(o.Begun, protocol.StartWindow),
	}
	for _, session := range o.Ended {
		s.returns.Ended(session)
	}
	s.Limit(o.MaxInFlight)
	return s
}

// Limit bounds the calls of each client at once, in all its sessions; those in flight go on.
func (s *Server) Limit(inFlight int) { s.agents.SetLimit(inFlight) }

// Sessions describes each session, oldest first. It takes s.mu, then the mutex of each session.
func (s *Server) Sessions() []control.Session {
	s.mu.Lock()
	list := make([]*session, 0, len(s.sessions))
	for one := range s.sessions {
		list = append(list, one)
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(a.number, b.number) })
	out := make([]control.Session, len(list))
	for i, one := range list {
		out[i] = one.status()
	}
	return out
}

// Flushed reports whether all is sent to connected clients. It takes s.mu, then each session's.
func (s *Server) Flushed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.sessions {
		one.mu.Lock()
		l := one.cur
		one.mu.Unlock()
		if l != nil && !l.Out.Empty() {
			return false
		}
	}
	return true
}

// Expel ends the session with that number, if not 0, and those of all guests of that socket, if not
// "", and returns how many. Connected clients get a bye; their calls are cancelled soon afterwards.
// It takes s.mu, then the mutex of each such session.
func (s *Server) Expel(number int64, socket string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for one := range s.sessions {
		if one.number != number && (socket == "" || one.guest != socket) {
			continue
		}
		one.expel(protocol.ByeEnded, link.ErrExpelled)
		one.endWait()
		n++
	}
	return n
}

// Farewell queues a bye with that reason and message for every connected client, and returns at
// once. The clients then close their connections; others are closed when the context of
// [Server.ServeConn] is done. From then on new clients are refused with [protocol.RefusedStopping]:
// see [Server.dismiss]. It takes s.mu, then the mutex of each session.
func (s *Server) Farewell(reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.farewell.Store(&protocol.Control{Holdline: protocol.Version, Bye: reason, Message: message})
	for one := range s.sessions {
		one.mu.Lock()
		one.sayFarewellLocked()
		one.mu.Unlock()
	}
}

// dismiss tells a client why a stopping daemon does not serve it: one that resumes gets a welcome
// and the bye, since it must not look for another daemon, others a refusal. It ignores errors, and
// blocks for a second at most. Call it after Farewell, then close c.
func (s *Server) dismiss(c *listener.Conn) {
	bye := s.farewell.Load()
	if !c.Greeting.Resume {
		listener.Refuse(c.Socket, &protocol.Refusal{Code: protocol.RefusedStopping, Message: bye.Message})
		return
	}
	w := s.o.Welcome()
	w.Holdline = protocol.Version
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(protocol.Append(protocol.Append(nil, w), bye)) // a client that is gone needs no word
}

// Hash returns the hex-encoded SHA-256 sum of a session's uuid: the form in which the uuid may be
// recorded. The uuid itself is a secret: a connection that knows it can take over the session.
func Hash(uuid string) string {
	sum := sha256.Sum256([]byte(uuid))
	return hex.EncodeToString(sum[:])
}

// ServeConn serves one connection, and returns after it is closed or refused, or if ctx is done
// before it has a session. With a session's first connection it serves the whole session, and
// returns after its end. A later one it hands to the goroutine that does that, and blocks until it
// is closed. A client is refused if its identity or view is not allowed, if its session belongs to
// another identity or is connected elsewhere, or after [Server.Farewell].
func (s *Server) ServeConn(ctx context.Context, c *listener.Conn) {
	c.Greeting.Identity = clienttable.Identity(c.Greeting.Identity)
	g := c.Greeting
	if !c.Anonymous && c.Guest == nil {
		if err := s.o.Authorise(g.Identity, g.Token); err != nil {
			s.o.Log.WarnContext(ctx, "identity refused", "identity", g.Identity, "client_pid", c.Peer.PID, "err", err)
			listener.Refuse(c.Socket, &protocol.Refusal{Code: protocol.RefusedIdentity, Message: err.Error()})
			return
		}
	}
	// A session that resumes keeps a removed view: its calls are denied until the view is back.
	if err := s.o.CheckView(g.View); err != nil && !g.Resume {
		s.o.Log.WarnContext(ctx, "view refused", "view", g.View, "client_pid", c.Peer.PID)
		listener.Refuse(c.Socket, &protocol.Refusal{Code: protocol.RefusedView, Message: err.Error()})
		return
	}
	if s.o.Came != nil && c.Guest == nil && !c.Anonymous {
		s.o.Came(g.Cwd, g.Named)
	}
	faultpoint.At("session.greeted")
	greeting := &c.Greeting
	if c.Anonymous {
		greeting = nil
	}
	l := link.New(c.Socket, c.Lines, greeting, peer.Of(c.Peer.PID), s.confirmer(&g))
	l.First = c.First
	if c.Guest != nil {
		l.Guest = c.Guest.Socket
		l.Bound(c.Guest.Room.Resize)
	}
	for ctx.Err() == nil {
		one, fresh, refusal := s.openSession(l, c.Guest)
		switch {
		case refusal != nil:
			listener.Refuse(c.Socket, refusal)
			return
		case one == nil:
			s.dismiss(c)
			return
		case fresh:
			one.serveLinks(ctx, l)
			s.closeSession(one)
			return
		case one.claim(ctx, l):
			<-l.Done
			return
		}
		// The session has ended meanwhile: the connection opens another one.
	}
	if s.farewell.Load() != nil {
		s.dismiss(c)
	}
}

// confirmer returns a function that reports confirmed answers to all executors; nil for no session.
func (s *Server) confirmer(g *protocol.Greeting) func(n int64) {
	if g.Session == "" {
		return nil
	}
	hash := Hash(g.Session)
	return func(n int64) { s.o.Executors.Confirmed(hash, n) }
}

// openSession returns the session that the greeting of l names, or else, with fresh true, a new
// one, which it registers after it has queued the welcome. It returns a refusal if the session
// belongs to another identity or socket, or is connected with another live process. After
// [Server.Farewell] all results are zero in place of a new one. guest is nil at the daemon's own
// socket. It takes s.mu, then the mutex of the session that it finds.
func (s *Server) openSession(l *link.Link, guest *listener.Guest) (
	one *session, fresh bool, refusal *protocol.Refusal,
) {
	made, w := newSession(s, l), s.o.Welcome()
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.sessions {
		switch {
		case other.hash != made.hash:
			continue
		case other.profile.Claimed != made.profile.Claimed, other.guest != made.guest:
			return nil, false, &protocol.Refusal{
				Code: protocol.RefusedIdentity, Message: "this session belongs to another identity",
			}
		case !other.yields(l.Peer):
			return nil, false, &protocol.Refusal{
				Code: protocol.RefusedBusy, Message: "this session is already connected",
			}
		}
		return other, false, nil
	}
	if s.farewell.Load() != nil {
		return nil, false, nil
	}
	s.next++
	made.number = s.next
	made.profile.Caller.Number = s.next
	made.welcome(l, w)
	limit := 0
	if guest != nil {
		limit = guest.InFlight
		made.waits = s.answers.Join(guest.Socket, made.tooSlow)
	}
	made.agent = s.agents.Join(made.profile.Caller.Agent, limit)
	made.flights = flight.NewTable(made.agent)
	s.sessions[made] = struct{}{}
	return made, true, nil
}

// discarded reports whether the records of a session that is new here may be gone. It takes s.mu.
func (s *Server) discarded(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.returns.Discarded(session)
}

// closeSession finishes the flights of a session that is no longer served, removes it, and closes
// one.over, which wakes [session.claim]. Before that, since the client may then open it anew, it
// reports the end to telemetry, and, if the client is gone, to the executors: after a stop the next
// daemon goes on with the session. It takes one.mu and s.mu, one after the other.
func (s *Server) closeSession(one *session) {
	one.mu.Lock()
	for f := range one.flights.All() {
		one.flights.Move(f, flight.Finished)
	}
	final := one.state == ended // else the next daemon goes on
	one.mu.Unlock()
	one.waits.Leave()
	over := one.agent.Part()
	if final && one.spills { // a proxy that was killed has left its files
		statedir.Sweep(s.o.RuntimeDir, false)
	}
	if final {
		s.o.Executors.Closed(one.hash, over)
	}
	s.o.Telemetry.SessionEnded(one.hash)
	s.mu.Lock()
	delete(s.sessions, one)
	s.returns.Ended(one.hash)
	s.mu.Unlock()
	close(one.over)
}
