package session

import (
	"context"
	"errors"
	"net"
	"time"

	"holdline/daemon/session/age"
	"holdline/daemon/session/crew"
	"holdline/daemon/session/flight"
	"holdline/daemon/session/link"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/peer"
	"holdline/daemon/session/profile"
	"holdline/daemon/session/returning"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/socket"
)

// gonePoll is the interval in which a session without a connection checks whether its
// client's process still lives.
const gonePoll = 50 * time.Millisecond

// claim hands l to the session's reader as the next connection, and ends the present one.
// It blocks until the reader has taken l. It returns false if the session or ctx has ended
// meanwhile: then the caller still owns l. After true the session closes l, or claim has
// closed it because the client had hung up.
//
// Lines that the reader has not read from the present connection are dropped: the client
// has closed it, and its proxy sends them again.
func (s *session) claim(ctx context.Context, l *link.Link) bool {
	again := time.NewTicker(gonePoll)
	defer again.Stop()
	for {
		s.mu.Lock()
		gone := socket.HungUp(l.Conn) // if a later one is the session's already, this is true
		if s.cur != nil && !gone {
			s.cur.Supersede()
		}
		s.mu.Unlock()
		if gone {
			l.Drop()
			return true
		}
		select {
		case s.claims <- l:
			return true
		case <-s.over:
			return false
		case <-ctx.Done():
			return false
		case <-again.C: // another connection may have come in between
		}
	}
}

// yields reports whether a connection of p may take the session over: the session has
// none, or one of the same process, or one whose other end is gone. Of guests, whose processes
// cannot be seen, the later connection counts.
func (s *session) yields(p peer.Peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur == nil || s.guest != "" || s.cur.Peer == p && p.PID > 0 || socket.HungUp(s.cur.Conn)
}

// detach takes the connection l from the session. It does nothing if l is no longer the
// session's connection. Answers that the client has not confirmed are kept for its next
// connection, unless the client is anonymous. All waits for room in the outbox of l end.
func (s *session) detach(l *link.Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur != l {
		return
	}
	to := s.state
	if to == attached {
		to = detached
	}
	s.setLocked(to, nil)
	if s.anonymous {
		l.Out.Abort()
		return
	}
	for _, a := range l.Out.Abort() {
		s.keepLocked(a)
	}
}

// keepLocked keeps an answer until the client is back, within limits. The caller must hold s.mu.
func (s *session) keepLocked(a outbox.Answer) {
	if s.state != expelled && s.kept.Add(a) > s.srv.o.MaxKept {
		s.last = lastBye(protocol.ByeFull, link.ErrTooMuch)
		s.setLocked(expelled, nil)
	}
}

// lastBye returns the last line to a client whose session ends for that reason.
func lastBye(bye string, why error) protocol.Control {
	return protocol.Control{Holdline: protocol.Version, Bye: bye, Message: why.Error()}
}

// Full ends the session since too many answers wait for its client.
func (s *session) Full() { s.expel(protocol.ByeFull, link.ErrTooMuch) }

// expel ends the session with that bye: at once if the client is connected, else as soon as it
// connects again.
func (s *session) expel(bye string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = lastBye(bye, why)
	if s.cur != nil {
		s.cur.Out.Last(s.last)
		s.cur.Fail(why)
	}
	s.setLocked(expelled, s.cur)
}

// awaitLink blocks until the client has connected again, and returns the new connection.
// It returns nil if the client's process has ended, after [protocol.ResumeWindow], or if
// ctx is done. why is the reason why the last connection ended; if that is that a later one
// took its place, the process is not looked at. The caller makes the connection the session's.
//
// The first checks of the process follow each other fast: most often a connection ends
// because its process does.
func (s *session) awaitLink(ctx context.Context, why error) *link.Link {
	s.log.InfoContext(ctx, "session detached", "err", why)
	limit := time.NewTimer(protocol.ResumeWindow)
	defer limit.Stop()
	look := time.NewTimer(0)
	defer look.Stop()
	s.mu.Lock()
	p := s.peer
	s.mu.Unlock()
	for wait := time.Millisecond; ; wait = min(2*wait, gonePoll) {
		select {
		case l := <-s.claims:
			if !socket.HungUp(l.Conn) { // if it is, the client may have made a later one
				return l
			}
			l.Drop()
		case <-look.C:
			if !errors.Is(why, link.ErrSuperseded) && !s.srv.o.Alive(p) {
				return nil
			}
			look.Reset(wait)
		case <-s.cut:
			return nil
		case <-limit.C:
			s.log.InfoContext(ctx, "session given up", "after", protocol.ResumeWindow)
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// welcome queues the daemon's first line. It must be the first in l's queue: call welcome
// before l becomes the session's connection, or before the session is registered.
func (s *session) welcome(l *link.Link, w protocol.Welcome) {
	if s.anonymous {
		return
	}
	w.Holdline, w.Resumed = protocol.Version, s.known != nil
	l.Out.Control(w)
}

// sayFarewellLocked queues a bye behind all other lines if the daemon stops; else it does
// nothing. The caller must hold s.mu.
func (s *session) sayFarewellLocked() {
	if bye := s.srv.farewell.Load(); bye != nil && s.cur != nil && !s.anonymous {
		s.cur.Out.Control(*bye)
	}
}

// attachLink makes l the session's connection. The greeting of l lists the lines that the
// client still waits for. The session queues the answers that it has kept for these lines,
// cancels its other requests, and reports the list to the executors. It returns true if
// the session must end, since too many answers waited.
//
// Flights are cancelled before any line is queued: an answer to a request that the client
// has given up must not reach it.
func (s *session) attachLink(ctx context.Context, l *link.Link) (over bool) {
	g := &l.Greeting
	pending := make(map[int64]struct{}, len(g.Pending))
	for _, n := range g.Pending {
		pending[n] = struct{}{}
	}
	w, fresh := s.srv.o.Welcome(), s.known == nil
	if !fresh { // else [Server.openSession] has done it
		s.welcome(l, w)
	}
	if !s.anonymous {
		s.n = max(g.Next-1, 0)
	}
	s.mu.Lock()
	over = s.state == expelled
	s.setLocked(attached, l)
	s.peer, s.version = l.Peer, profile.Clip(g.Version)
	if g.Resume {
		s.lists.Note(mcp.ToolsList, mcp.PromptsList, mcp.ResourcesList) // an earlier daemon may have sent them
	}
	s.known = map[int64]struct{}{}
	again := s.kept.Take(pending)
	for _, a := range again {
		s.known[a.N] = struct{}{}
	}
	var dropped []*flight.Flight
	for f := range s.flights.All() {
		if _, ok := pending[f.N]; ok {
			s.known[f.N] = struct{}{}
		} else if s.flights.Move(f, flight.Cancelled) { // before anything is queued for it here
			dropped = append(dropped, f)
		}
	}
	if over {
		l.Out.Control(s.last)
	}
	l.Out.Requeue(again)
	s.sayFarewellLocked()
	s.mu.Unlock()
	faultpoint.At("session.taken")
	for _, f := range dropped {
		f.Cancel(outbox.ErrCancelled)
	}
	if !s.anonymous {
		s.srv.o.Hosted.Opened(s.hash, s)
	}
	s.markUncertain(g, fresh, g.Store != "" && g.Store != w.Store)
	if g.Resume {
		s.log.InfoContext(ctx, "session resumed",
			"pending", len(pending), "answers", len(again), "cancelled", len(dropped))
		s.srv.o.Executors.Resumed(s.hash, pending)
		s.listenOn()
	}
	return over
}

// replayed handles a line that the client had sent on an earlier connection. If the client
// has the answer, the session only restores the state that the line had set, for example a
// subscription. Else it handles the line like a new one, unless the request is still in
// flight here or its answer was kept.
func (s *session) replayed(ctx context.Context, c *protocol.Control, line []byte, calls *crew.Crew) {
	n := *c.Replay
	faultpoint.At("session.replayed")
	if c.Answered == nil || !*c.Answered {
		if _, ok := s.known[n]; ok {
			return
		}
		s.handleMessage(ctx, n, line, c, calls)
		return
	}
	msg, err := jsonrpc.Parse(line)
	switch {
	case err != nil:
	case msg.Kind == jsonrpc.Response:
		s.forwardResponse(n, msg)
	case msg.Kind == jsonrpc.Notification:
		s.handleNotification(ctx, msg)
	case msg.Method == mcp.Initialize:
		s.handshake = max(s.handshake, initialized)
		if params, err := mcp.ParseParams(msg.Params); err == nil {
			s.learn(&request{n: n, msg: msg, params: params})
		}
	case msg.Method == mcp.Subscribe:
		if params, err := mcp.ParseParams(msg.Params); err == nil {
			s.subscribeAgain(ctx, &request{n: n, msg: msg, params: params, standing: true}, calls)
		}
	case msg.Method == mcp.SetLevel:
		if params, err := mcp.ParseParams(msg.Params); err == nil && mcp.IsLevel(params.Level) {
			s.setLogLevel(&request{n: n, msg: msg, params: params})
		}
	}
}

// tooLarge handles a line that the proxy could not keep, since it was too large: only its
// number and its id are known. A recorded call goes on like a replayed one. A request
// without a record fails. If the line was the client's answer to a server's request, the
// server gets an error in its place.
func (s *session) tooLarge(ctx context.Context, c *protocol.Control, calls *crew.Crew) {
	n := *c.Replay
	if _, ok := s.known[n]; ok || len(c.ID) == 0 {
		return
	}
	if c.Answered != nil && *c.Answered { // it was the client's answer to a server, which must not wait for ever
		s.forwardResponse(n, jsonrpc.Message{Kind: jsonrpc.Response, ID: jsonrpc.ID(c.ID), Error: returning.LostAnswer})
		return
	}
	r := s.requestFromReplay(c)
	if t := s.srv.o.Executors.Recall(s.hash, n); t != nil { // what the line said of the answer's form is lost
		r.tool, r.target = t.Name, t
		s.pursue(ctx, r, calls, func(context.Context) (*tool.Remote, error) { return t, nil })
		return
	}
	f := returning.LostLine(s.srv.o.Executors.Recorded(s.hash, n), n < s.uncertain)
	if !c.Call {
		r.msg.Method = ""
	}
	s.queueLine(ctx, n, s.formOf(r).Fault(f))
}

// requestFromReplay returns the call of a tool that stands for a replayed line
// whose bytes are lost.
func (s *session) requestFromReplay(c *protocol.Control) *request {
	// A legacy session's initialize is replayed before its calls.
	modern := s.handshake == notInitialized
	return &request{
		n: *c.Replay, msg: jsonrpc.Message{Kind: jsonrpc.Request, ID: jsonrpc.ID(c.ID), Method: mcp.ToolsCall},
		modern: modern, replay: true, sent: age.Sent(c), begin: time.Now(),
	}
}

// markUncertain records that calls up to line g.Next may have run without a record
// that this daemon can read. That is the case if the state directory is a new one
// (wiped), or if this daemon had already discarded the session's records (fresh).
// Replays of these lines answer outcome_unknown unless a record turns up. The mark
// never moves back.
//
// Call it after the hosted servers know the session: until then its records may still
// expire.
func (s *session) markUncertain(g *protocol.Greeting, fresh, wiped bool) {
	if g.Resume && (wiped || fresh && s.srv.discarded(s.hash)) {
		s.uncertain = max(s.uncertain, g.Next)
	}
}

// doubtful returns a fault for a replayed call that an earlier daemon may have begun, if
// the call's record may be lost and it must not run twice. Else it returns nil.
func (s *session) doubtful(r *request) *fault.Record {
	if !r.replay || r.n >= s.uncertain || r.target.Contract == tool.Convergent ||
		s.srv.o.Executors.Recorded(s.hash, r.n) {
		return nil
	}
	return returning.LostRecord(operation(r.target.Name))
}

// Seen reports to the proxy that a server has the response in line n.
func (s *session) Seen(n int64) {
	s.mu.Lock()
	l := s.cur
	s.mu.Unlock()
	if l != nil && !s.anonymous {
		l.Out.Control(protocol.Control{Holdline: protocol.Version, Seen: &n})
	}
}

// offerLine queues a line that is no answer. It drops the line if the client is not
// connected, if there is no room, or if allowed returns false. allowed may be nil; the
// outbox calls it under its lock, after all lines that were queued before.
func (s *session) offerLine(line []byte, allowed func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock() // so that no other connection replaces s.cur meanwhile
	if s.cur != nil {
		s.cur.Out.Offer(line, allowed)
	}
}

// queueLine queues the answer to line n for the client, or keeps it until the client is
// connected. It may block until there is room.
func (s *session) queueLine(ctx context.Context, n int64, line []byte) {
	s.queueAnswer(ctx, outbox.Answer{N: n, Line: line}, nil)
}

// deliver queues the answer to r, unless r is cancelled meanwhile.
func (s *session) deliver(ctx context.Context, r *request, a outbox.Answer) {
	if a.N = r.n; r.flight == nil {
		s.queueAnswer(ctx, a, nil)
		return
	}
	if s.queueAnswer(ctx, a, r.flight.MayAnswer) {
		s.mu.Lock()
		s.flights.Move(r.flight, flight.Finished)
		s.mu.Unlock()
	}
	s.confirmCancelled(r)
}

// queueAnswer queues an answer like [session.queueLine]. It queues nothing, and returns
// false, once allowed, which may be nil, returns false.
func (s *session) queueAnswer(ctx context.Context, a outbox.Answer, allowed func() bool) bool {
	a.Line = append(a.Line, '\n')
	for {
		s.mu.Lock()
		l := s.cur
		if l == nil {
			wanted := allowed == nil || allowed()
			if wanted {
				s.keepLocked(a)
			}
			s.mu.Unlock()
			return wanted
		}
		s.mu.Unlock()
		err := l.Out.Put(ctx, a, allowed)
		faultpoint.At("session.queued")
		switch {
		case errors.Is(err, outbox.ErrCancelled):
			return false
		case !errors.Is(err, net.ErrClosed):
			return true // queued, or the session is ending
		}
		s.detach(l)
	}
}

// takeTurn blocks until a stored answer may be loaded from its executor's file. That is
// the case when the client is connected, little else waits for it, and no other stored
// answer of the session is in memory. The caller must call done after it has queued the
// answer. On an error, which is the cause of ctx, done is nil.
func (s *session) takeTurn(ctx context.Context) (done func(), err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for {
		s.mu.Lock()
		l, came := s.cur, s.came
		s.mu.Unlock()
		if l == nil {
			select {
			case <-came:
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		} else if err = l.Out.AwaitRoom(ctx); errors.Is(err, net.ErrClosed) {
			s.detach(l)
			continue
		}
		if err != nil {
			<-s.turn
			return nil, err
		}
		return func() { <-s.turn }, nil
	}
}
