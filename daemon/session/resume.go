package session

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/session/age"
	"holdline/daemon/session/crew"
	"holdline/daemon/session/flight"
	"holdline/daemon/session/held"
	"holdline/daemon/session/link"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/peer"
	"holdline/daemon/session/profile"
	"holdline/daemon/session/returning"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/socket"
)

// gonePoll is how often a session without a connection checks whether its client's process lives.
const gonePoll = 50 * time.Millisecond

// claim hands l to the session's reader as the next connection, makes the present one end, and
// blocks until the reader has taken l. It returns false if the session has ended or ctx is done:
// the caller then still owns l. Else the session closes l, or claim has, after a hang-up. Unread
// lines of the present one are dropped: the proxy sends them again. It takes s.mu.
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

// yields reports whether the process p may take the session over: the session has no connection,
// one from p or one hung up, or is a guest's, whose process is unseen. It takes s.mu.
func (s *session) yields(p peer.Peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur == nil || s.guest != "" || s.cur.Peer == p && p.PID > 0 || socket.HungUp(s.cur.Conn)
}

// detach takes the connection l from the session, if l is still its connection, and aborts its
// outbox: all waits for room in it end. Answers that the client has not confirmed are kept, unless
// it is anonymous; see [session.keepLocked]. They keep their room: another guest that waits for room
// cannot get it meanwhile. detach does not close l. It takes s.mu.
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
		l.Out.Abort(nil)
		return
	}
	s.keepLocked(func(held *int, size int) bool {
		s.waits.Force(held, size)
		return true
	}, l.Out.Abort(&s.keeping)...)
}

// keepLocked keeps answers until the client is back. take makes the room of a guest fit all that is
// kept, and returns false if there is none. Then, or if more than Options.MaxKept bytes are kept,
// keepLocked drops all and expels the session, which must have no connection. A stored answer is not
// kept: its flight is Finished, and the executor is asked for it later. The caller must hold s.mu.
func (s *session) keepLocked(take func(held *int, size int) bool, answers ...outbox.Answer) {
	for _, a := range answers {
		if a.Stored {
			for f := range s.flights.All() {
				if f.N == a.N {
					s.flights.Move(f, flight.Finished)
				}
			}
		}
		s.kept.Add(a)
	}
	if bytes := s.kept.Bytes(); s.state == expelled || bytes > s.srv.o.MaxKept || !take(&s.keeping, bytes) {
		if s.state != expelled {
			s.last = lastBye(protocol.ByeFull, link.ErrTooMuch)
		}
		s.setLocked(expelled, nil)
	}
}

// lastBye returns the last control line of a session that ends: a bye, with why as its message.
func lastBye(bye string, why error) protocol.Control {
	return protocol.Control{Holdline: protocol.Version, Bye: bye, Message: why.Error()}
}

// tooSlow expels the session of a guest: others wait for the room of answers that it does not take. It
// takes s.mu.
func (s *session) tooSlow() {
	s.expel(protocol.ByeSlow, outbox.ErrSlow)
	s.endWait()
}

// endWait ends the wait for a session's next connection, if it has none.
func (s *session) endWait() {
	select {
	case s.cut <- struct{}{}:
	default:
	}
}

// Full expels the session: too many answers wait. The hub calls it with hub.Mu held. It takes s.mu.
func (s *session) Full() { s.expel(protocol.ByeFull, link.ErrTooMuch) }

// expel ends the session, unless it has ended, and drops its kept answers; it does not wait. A
// connected client gets the bye in place of all that is queued, and the reader ends. Another one
// gets it when it connects again; expel does not end the wait for that. It takes s.mu.
func (s *session) expel(bye string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == ended || s.state == left {
		return
	}
	s.last = lastBye(bye, why)
	if s.cur != nil {
		s.cur.Out.Last(s.last)
		s.cur.Fail(why)
	}
	s.setLocked(expelled, s.cur)
}

// awaitLink blocks until the client has connected again, and returns the connection, for
// [session.serveLink]. It returns nil if the client's process has ended, the user has ended the
// session, ctx is done, or after [protocol.ResumeWindow]. why is why the last connection ended:
// after [link.ErrSuperseded] the process is not checked, since it has connected again. The first
// checks follow each other fast: most connections end because the process does. It takes s.mu.
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

// welcome queues w, the daemon's first line, unless the client is anonymous. It must be the first
// in the queue: call it before l is the session's connection, or the session is registered.
func (s *session) welcome(l *link.Link, w protocol.Welcome) {
	if s.anonymous {
		return
	}
	w.Holdline, w.Resumed = protocol.Version, s.known != nil
	l.Out.Control(w)
}

// sayFarewellLocked queues the bye of [Server.Farewell], if there is one, for a client that is
// connected and not anonymous. The caller must hold s.mu.
func (s *session) sayFarewellLocked() {
	if bye := s.srv.farewell.Load(); bye != nil && s.cur != nil && !s.anonymous {
		s.cur.Out.Control(*bye)
	}
}

// attachLink makes l the session's connection, and queues the welcome unless it is the first, and
// the kept answers to the lines for which the client still waits, by its greeting. Before that it
// cancels the other requests: their answers must not reach the client. It tells the hosted servers
// that the session is open; if the client resumes, it also reports those lines to the executors and
// acknowledges subscriptions of which the client may not know. It returns true if the session was expelled and must end; the
// bye is then queued. Only the reader calls it; it takes s.mu.
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
		s.replays = g.Replays
	}
	var gone map[string]string
	s.mu.Lock()
	over = s.state == expelled
	s.setLocked(attached, l)
	s.peer, s.version = l.Peer, profile.Clip(g.Version)
	if s.replaying = g.Resume; g.Resume {
		s.lists.Restore(g.Kept, fresh)
		gone = s.notes.Restore(g.Kept, func(subscription string) bool {
			n, err := strconv.ParseInt(subscription, 10, 64)
			_, ok := pending[n]
			return ok && err == nil
		})
		s.told = held.Told(g.Kept)
	}
	subscribed := len(s.follows)+len(s.listens) > 0
	s.known = map[int64]struct{}{}
	again := s.kept.Take(pending)
	s.waits.Force(&s.keeping, 0)
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
	s.markUncertain(g, fresh)
	if g.Resume {
		s.log.InfoContext(ctx, "session resumed",
			"pending", len(pending), "answers", len(again), "cancelled", len(dropped))
		s.srv.o.Executors.Resumed(s.hash, pending)
		s.offerKeep(gone)
		s.listenOn()
		if !fresh && subscribed {
			s.srv.o.Hosted.Back(s.hash)
		}
		if !fresh && s.keeps { // if it is fresh, it is not known yet who the client is
			s.lookAtLists()
		}
	}
	return over
}

// replayed handles a line that the client had sent on an earlier connection; c is the control line
// before it. If c says that the client has the answer, only the state that the line had set is
// restored, such as a subscription, or an answer to a server passed on. Else the line is handled
// like a new one, unless its request or answer was here (s.known). Only the reader calls it.
func (s *session) replayed(ctx context.Context, c *protocol.Control, l bulk.Line, calls *crew.Crew) {
	n := *c.Replay
	faultpoint.At("session.replayed")
	if !isTrue(c.Answered) {
		if _, ok := s.known[n]; ok {
			return
		}
		s.handleMessage(ctx, n, l, c, calls)
		return
	}
	msg, err := jsonrpc.Parse(l.Text)
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
			if s.keeps {
				s.lookAtLists()
			}
		}
	case msg.Method == mcp.Subscribe:
		// A session holds the names of its subscriptions, so those of a replay have the same bounds.
		if params, err := mcp.ParseParams(msg.Params); err == nil && params.CheckNames(&msg) == nil {
			s.subscribeAgain(ctx, &request{n: n, msg: msg, params: params, standing: true}, calls)
		}
	case msg.Method == mcp.SetLevel:
		if params, err := mcp.ParseParams(msg.Params); err == nil && mcp.IsLevel(params.Level) {
			s.setLogLevel(&request{n: n, msg: msg, params: params})
		}
	}
}

// isTrue reports whether p points to true.
func isTrue(p *bool) bool { return p != nil && *p }

// tooLarge handles a line that was too large to be had again: c has only its number and id. A
// recorded call goes on in a goroutine of work; another request is answered with a fault. If the
// line answered a server's request, the server gets an error. A line without an id, or whose
// request this daemon still has, is ignored. Only the reader calls it.
func (s *session) tooLarge(ctx context.Context, c *protocol.Control, work *crew.Crew) {
	n := *c.Replay
	if _, ok := s.known[n]; ok || len(c.ID) == 0 {
		return
	}
	if isTrue(c.Answered) { // it was the client's answer to a server, which must not wait for ever
		s.forwardResponse(n, jsonrpc.Message{Kind: jsonrpc.Response, ID: jsonrpc.ID(c.ID), Error: returning.LostAnswer})
		return
	}
	r := s.requestFromReplay(c)
	find := func(context.Context) (*tool.Remote, error) { // what the line said of the answer's form is lost
		if t := s.srv.o.Executors.Recall(s.hash, n, mcp.ToolsCall); t != nil {
			return t, nil
		}
		_, lost := s.lost(r, calls.AnyServer)
		return nil, returning.LostLine(s.srv.o.Executors.Recorded(s.hash, n), lost)
	}
	t, err := find(ctx)
	switch who := s.who(); {
	case err == nil:
		r.tool, r.target = t.Name, t
		s.pursue(ctx, r, work, find)
	case c.Call && s.srv.o.Executors.Unread(calls.AnyServer, who.Project, who.Session, n) != nil:
		s.pursue(ctx, r, work, find)
	default:
		if !c.Call {
			r.msg.Method = ""
		}
		s.queueLine(ctx, n, s.formOf(r).Fault(fault.From(err, fault.Host, r.operation())))
	}
}

// requestFromReplay returns a call of a tool without params, for a replayed line whose bytes are
// lost. It counts as modern without a legacy handshake, which is replayed before all calls.
func (s *session) requestFromReplay(c *protocol.Control) *request {
	modern := s.handshake == notInitialized
	return &request{
		n: *c.Replay, msg: jsonrpc.Message{Kind: jsonrpc.Request, ID: jsonrpc.ID(c.ID), Method: mcp.ToolsCall},
		modern: modern, replay: true, since: s.store, doubt: *c.Replay < s.uncertain, sent: age.Sent(c),
	}
}

// markUncertain records what may have become of the records of a client that comes back. Its session
// may be new here (fresh), and its records discarded: then calls up to line g.Next may have run
// without a record that this daemon can read. Or the records have another id now: see
// [session.doubtful]. Call it after the hosted servers know the session: until then its records may
// expire. Only the reader calls it; it takes the server's mutex.
func (s *session) markUncertain(g *protocol.Greeting, fresh bool) {
	if g.Resume && s.store == "" {
		s.store = g.Store
	}
	if g.Resume && fresh && s.srv.discarded(s.hash) {
		s.uncertain = max(s.uncertain, g.Next)
	}
}

// doubtful returns an outcome_unknown fault for a replayed call that cannot be made and whose record
// by an earlier daemon may be lost, else nil. The law decides. The call cannot be made if it must not
// run twice, or if may is false: then its target is not known, or not allowed any more.
func (s *session) doubtful(r *request, may bool) *fault.Record {
	if !r.replay || s.srv.o.Executors.Recorded(s.hash, r.n) {
		return nil
	}
	return s.unrecorded(r, may)
}

// unrecorded is [session.doubtful] for a replayed call of which there is no record.
func (s *session) unrecorded(r *request, may bool) *fault.Record {
	server, op := calls.AnyServer, r.operation()
	if r.target != nil {
		server = r.target.Server
		if r.tool != "" {
			op = operation(r.target.Name)
		}
	}
	why, lost := s.lost(r, server)
	f := calls.Facts{Pending: true, Call: true, Damaged: lost, Convergent: may && r.target.Contract == tool.Convergent}
	if calls.Decide(f) != calls.Unknown {
		return nil
	}
	return returning.LostRecord(op, server, why)
}

// lost reports whether a record of r, a replayed call of a server, may be lost. why names the damaged
// file, if one is known.
func (s *session) lost(r *request, server string) (why string, lost bool) {
	if !r.doubt && s.srv.o.Lost != nil {
		who := s.who()
		return s.srv.o.Lost(r.since, server, who.Project, who.Session)
	}
	return "", r.doubt
}

// Seen queues a control line that tells the proxy that it need not keep line n, a response to a
// server. It does nothing if the client is anonymous or not connected. It takes s.mu.
func (s *session) Seen(n int64) {
	s.mu.Lock()
	l := s.cur
	s.mu.Unlock()
	if l != nil && !s.anonymous {
		l.Out.Control(protocol.Control{Holdline: protocol.Version, Seen: &n})
	}
}

// offerLine queues a line that is no answer. It never blocks. It drops the line, and returns false, if
// the client is not connected, if there is no room, or if allowed returns false. allowed may be nil;
// the outbox calls it under s.mu and its own lock, after all lines that were queued before. It takes
// s.mu.
func (s *session) offerLine(line []byte, allowed func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock() // so that no other connection replaces s.cur meanwhile
	return s.cur != nil && s.cur.Out.Offer(line, allowed)
}

// queueLine queues the answer to line n, which has no newline, or keeps it until the client is
// back. It blocks while the queue is full; once ctx is done, it drops the line. It takes s.mu.
func (s *session) queueLine(ctx context.Context, n int64, line []byte) {
	s.queueAnswer(ctx, outbox.Answer{N: n, Line: line}, nil)
}

// deliver queues or keeps the answer to r like [session.queueLine], and finishes its flight. If r
// is cancelled before, it drops the answer; see [session.confirmCancelled]. It takes s.mu.
func (s *session) deliver(ctx context.Context, r *request, a outbox.Answer) {
	if a.N = r.n; r.flight == nil {
		s.queueAnswer(ctx, a, nil)
		return
	}
	if a.Work = true; r.flight.Late {
		f, queued := r.flight, a.Queued // the answer may be kept for long: it must not hold r, with the client's line
		a.Queued = func() {
			if f.Leave(); queued != nil {
				queued()
			}
		}
	}
	if s.queueAnswer(ctx, a, r.flight.MayAnswer) {
		s.mu.Lock()
		s.flights.Move(r.flight, flight.Finished)
		s.mu.Unlock()
	}
	s.confirmCancelled(r)
}

// queueAnswer queues or keeps an answer, and blocks, like [session.queueLine]. It returns false,
// and queues nothing, if allowed returns false. allowed may be nil; it is called under s.mu or the
// outbox's lock. It returns true also if ctx is done and the answer dropped. It takes s.mu.
func (s *session) queueAnswer(ctx context.Context, a outbox.Answer, allowed func() bool) bool {
	a.Line = append(append(s.numbered(a.Line, a.N), '\n'), a.Behind...)
	for {
		s.mu.Lock()
		l := s.cur
		if l == nil {
			wanted := allowed == nil || allowed()
			if wanted {
				s.keepLocked(s.waits.Take, a)
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

// numbered returns a line about line n of the client, an answer to it or progress, with that number
// if the client's proxy takes it. n is 0 if there is none.
func (s *session) numbered(line []byte, n int64) []byte {
	if !s.numbers || n == 0 {
		return line
	}
	return protocol.AppendNumber(line, n)
}

// takeTurn blocks until a stored answer may be loaded: the client is connected, little else waits
// for it, and no other stored answer of the session is in memory. The caller must call done after
// it has queued the answer. If ctx is done first, err is its cause, done nil. For a guest, room says
// how much is taken of its room for the answer, which has size bytes. It takes s.mu.
func (s *session) takeTurn(ctx context.Context, room *int, size int) (done func(), err error) {
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
		if err == nil && s.waits != nil {
			err = s.waits.Await(ctx, room, size)
		}
		if err != nil {
			<-s.turn
			return nil, err
		}
		return func() { s.waits.Force(room, 0); <-s.turn }, nil
	}
}
