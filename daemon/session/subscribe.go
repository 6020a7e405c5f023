package session

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"holdline/daemon/session/crew"
	"holdline/daemon/session/flight"
	"holdline/daemon/session/held"
	"holdline/daemon/session/listen"
	"holdline/daemon/session/outbox"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// maxSubscriptions bounds the resources to which a client is subscribed at once.
const maxSubscriptions = 256

// refusal is the JSON-RPC error with which a server refused a request, as it came.
type refusal struct{ raw json.RawMessage }

// subscribe passes a legacy client's subscription to the server that has the resource, and returns
// at once. A goroutine of calls answers once the server has agreed or refused. A session with too
// many subscriptions gets a fault, and the server is not asked.
func (s *session) subscribe(ctx context.Context, r *request, calls *crew.Crew) {
	uri, f := s.uri(r)
	s.mu.Lock()
	before := s.follows[uri] // 0 for none
	s.mu.Unlock()
	if f == nil {
		f = s.addFollow(r, uri)
	}
	if f != nil {
		s.fail(ctx, r, f)
		return
	}
	s.answerAside(ctx, r, calls, func(ctx context.Context) any {
		failure, err := s.subscribeTarget(ctx, r, uri)
		switch {
		case errors.Is(err, tool.ErrStopping):
			return tool.ErrStopping
		case err != nil:
			return fault.From(err, fault.Host, r.operation())
		case failure != nil:
			return refusal{failure}
		}
		return struct{}{}
	})
	if r.flight == nil { // too many calls are in flight, so no server is asked
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.follows.Settle(uri, r.n, true); before > 0 {
			s.follows[uri] = before
		}
	}
}

// unsubscribe ends a legacy client's subscription, without waiting for the server, and answers r,
// even if there was none; with a fault if the URI is not valid. It takes s.mu.
func (s *session) unsubscribe(ctx context.Context, r *request) {
	uri, f := s.uri(r)
	if f != nil {
		s.fail(ctx, r, f)
		return
	}
	s.mu.Lock()
	delete(s.follows, uri)
	s.mu.Unlock()
	s.srv.o.Hosted.Unsubscribe(s.hash, "", uri)
	s.answer(ctx, r, json.RawMessage(`{}`))
}

// subscribeAgain repeats the subscription of r, an earlier request whose answer the client has. It
// returns at once. If the server refuses or r is malformed, nothing is sent or retried. It takes s.mu.
func (s *session) subscribeAgain(ctx context.Context, r *request, calls *crew.Crew) {
	uri, f := s.uri(r)
	if s.guest != "" && s.running.Load() >= maxSubscriptions { // it may claim any number of earlier ones
		return
	}
	if f != nil || s.addFollow(r, uri) != nil {
		return
	}
	s.running.Add(1)
	calls.Go(func() {
		defer s.ended()
		failure, err := s.subscribeTarget(ctx, r, uri)
		if err != nil || failure != nil {
			s.log.DebugContext(ctx, "subscription is not in force again", "err", err)
		}
	})
}

// uri returns params.uri of r. It returns an invalid_input fault if that is not a string or is
// empty, and an unknown_method fault for an anonymous session. It takes s.mu.
func (s *session) uri(r *request) (string, *fault.Record) {
	uri, ok := mcp.String(r.params.URI)
	switch {
	case s.who().Identity == tool.Anonymous:
		return "", fault.New(fault.UnknownMethod, fault.Protocol, r.operation(), "unknown method %q", r.msg.Method)
	case !ok || uri == "":
		return "", fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "params.uri must be a string")
	}
	return uri, nil
}

// addFollow records that line r.n subscribes to a resource. If the session has too many
// subscriptions, it returns a resource_exhausted fault instead. It takes s.mu.
func (s *session) addFollow(r *request, uri string) *fault.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.follows.Add(uri, r.n, maxSubscriptions) {
		return fault.New(fault.ResourceExhausted, fault.Host, r.operation(),
			"this session has %d subscriptions to resources, its limit: end one of them", maxSubscriptions).
			WithLimit("subscriptions", maxSubscriptions, len(s.follows))
	}
	return nil
}

// subscribeTarget calls [Hosted].Subscribe, blocks with it, and returns its results. It ends the
// subscription if the client has unsubscribed meanwhile. It forgets a failed one, unless a later
// line asks for it, or it failed by err and r.standing is true. It takes s.mu.
func (s *session) subscribeTarget(ctx context.Context, r *request, uri string) (json.RawMessage, error) {
	failure, err := s.srv.o.Hosted.Subscribe(ctx, s.who(), "", uri, r.standing)
	s.mu.Lock()
	wanted := s.follows.Settle(uri, r.n, failure != nil || err != nil && !r.standing)
	s.mu.Unlock()
	if !wanted {
		s.srv.o.Hosted.Unsubscribe(s.hash, "", uri)
	}
	return failure, err
}

// beginListen begins a modern client's subscription, which is in flight until the client cancels it
// or disconnects. It is acknowledged at once, or by a goroutine of calls once the servers of its
// resources and tasks have answered. A malformed or failed one, or one that exceeds a limit, is
// answered with a fault, and ends. It takes s.mu.
func (s *session) beginListen(ctx context.Context, r *request, calls *crew.Crew) {
	l, uris, f := listen.Parse(r.msg.ID, r.n, r.operation(), r.params.Notifications, maxSubscriptions)
	var ids []string
	if f == nil && s.takesTasks(r) {
		ids, f = tasks.Wanted(r.params.Notifications)
	}
	if f != nil {
		s.fail(ctx, r, f)
		return
	}
	callCtx, cancel := context.WithCancelCause(ctx)
	f = s.enterFlight(r, true, func(why error) {
		cancel(why)
		s.unlisten(l)
	})
	if f != nil {
		cancel(f)
		s.fail(ctx, r, f)
		return
	}
	if s.who().Identity == tool.Anonymous {
		uris = nil
	}
	if len(uris)+len(ids) == 0 {
		s.acknowledge(ctx, r, l)
		return
	}
	s.running.Add(1)
	calls.Go(func() {
		defer s.ended()
		err := s.grantResources(callCtx, r, l, uris)
		if err == nil {
			l.Tasks, err = tasks.Known(callCtx, s.srv.o.Tasks, s.who(), ids)
		}
		switch {
		case err == nil && s.acknowledge(ctx, r, l):
			for _, id := range l.Tasks {
				calls.Go(func() { s.watchTask(callCtx, l, id) })
			}
			return
		case err != nil && !errors.Is(err, tool.ErrStopping) && s.endWork(callCtx, r) == nil:
			s.fail(ctx, r, fault.From(err, fault.Host, r.operation()))
		}
		cancel(nil)
		s.unlisten(l)
	})
}

// grantResources subscribes to each of uris for a modern client, and blocks until the servers have
// answered. It adds those that were agreed to l.URIs and skips the others; a replayed request keeps
// one whose server cannot answer now. It returns the cause of ctx once that is done, or an error
// that stops it early, such as a resource_exhausted fault: the caller must end the subscription.
func (s *session) grantResources(ctx context.Context, r *request, l *listen.Subscription, uris []string) error {
	for _, uri := range uris {
		failure, err := s.srv.o.Hosted.Subscribe(ctx, s.who(), l.Holder, uri, r.replay)
		f, _ := errors.AsType[*fault.Record](err)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && failure == nil:
			l.URIs = append(l.URIs, uri)
		case failure != nil:
		case f == nil || f.Fault.Code == fault.ResourceExhausted:
			return err
		case f.Fault.Code == fault.InvalidInput, f.Fault.Code == fault.UnknownMethod:
		case r.replay: // an earlier daemon granted it; it is in force again after the server has restarted
			l.URIs = append(l.URIs, uri)
		}
	}
	return nil
}

// takesTasks reports whether r's client knows tasks and sees own tools: no others become tasks.
func (s *session) takesTasks(r *request) bool {
	who := s.who()
	return r.modern && r.params.Meta.TakesTasks() && who.SeesOwn()
}

// watchTask notifies the client of a task's state and changes, and blocks until ctx, the
// subscription's, is done or the task is gone. Of a state of which the client was told last it is not
// notified again, whichever daemon did that. Without a connection a notification is dropped, but that of
// the end of the task is made up for when the client is back. It takes s.mu.
func (s *session) watchTask(ctx context.Context, l *listen.Subscription, id string) {
	tasks.Watch(ctx, s.srv.o.Tasks, s.who(), id, func() <-chan struct{} {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.came
	}, func(state string, params json.RawMessage) {
		note := held.NewNote(l.Holder, id, []byte(state))
		tagged, err := listen.Tag(params, l.ID)
		if err != nil || s.notes.Has(note) {
			return
		}
		line := append(jsonrpc.AppendRequest(nil, nil, mcp.TasksNote, tagged), '\n')
		s.offerLine(append(line, s.keepLine(note.Keep())...), func() bool {
			wanted := ctx.Err() == nil
			if wanted {
				s.notes.Add(note)
			}
			return wanted
		})
	})
}

// acknowledge counts r as a success, queues the acknowledgement, for which it may block, and
// registers l. An acknowledgement that an earlier daemon has sent, with the same in it, is not sent again. A client that holds no list of which it wants the changes is told of those from now
// on; a list that has changed since the client was given it is announced. It returns false, and does
// not register l, if the client has ended the subscription. It takes s.looking and s.mu.
func (s *session) acknowledge(ctx context.Context, r *request, l *listen.Subscription) bool {
	if r.flight.At() != flight.Running {
		return false
	}
	s.countRequest(r, 0, nil)
	var missing []string
	for notification := range l.Granted {
		missing = append(missing, s.lists.Missing(notification)...)
	}
	now := s.look(missing)
	keep, line := held.KeepTold(now), l.Acknowledgement()
	if note := held.NewNote(l.Holder, "", line); s.notes.Has(note) {
		s.lists.Follow(now)
		s.offerKeep(keep)
	} else {
		maps.Copy(keep, note.Keep())
		s.queueAnswer(ctx, outbox.Answer{Line: line, Behind: s.keepLine(keep), Queued: func() {
			s.lists.Follow(now)
			s.notes.Add(note)
		}}, nil)
	}
	s.mu.Lock()
	wanted := r.flight.At() == flight.Running
	if wanted {
		s.listens.Add(l)
	}
	s.mu.Unlock()
	if !wanted {
		return false
	}
	for notification := range l.Granted {
		s.ListChanged(notification)
	}
	if len(l.URIs) > 0 {
		s.srv.o.Hosted.Retell(s.hash)
	}
	return true
}

// unlisten ends l here and, without waiting, at the servers. It is idempotent. It takes s.mu.
func (s *session) unlisten(l *listen.Subscription) {
	s.mu.Lock()
	s.listens.Remove(l)
	s.mu.Unlock()
	s.offerKeep(s.notes.End(l.Holder))
	s.srv.o.Hosted.Unsubscribe(s.hash, l.Holder, "")
}

// listenOn acknowledges each subscription again whose acknowledgement was lost with a connection. It
// takes s.mu.
func (s *session) listenOn() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.listens))
	s.mu.Unlock()
	for _, l := range all {
		line := l.Acknowledgement()
		note := held.NewNote(l.Holder, "", line)
		if s.notes.Has(note) {
			continue
		}
		s.offerLine(append(append(line, '\n'), s.keepLine(note.Keep())...), func() bool {
			s.notes.Add(note)
			return true
		})
	}
}

// offerKeep queues a control line that has the proxy keep facts, or forget those that are "". It takes s.mu.
func (s *session) offerKeep(facts map[string]string) {
	if !s.keeps || len(facts) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur != nil {
		s.cur.Out.Control(protocol.Control{Holdline: protocol.Version, Keep: facts})
	}
}

// Updated queues a notification that a resource has changed: to the legacy client if holder is "",
// else in the modern client's subscription of that name. It never blocks: without a connection,
// room or an acknowledged subscription the notification is dropped, and Updated returns false. It
// takes s.mu.
func (s *session) Updated(holder string, params json.RawMessage) bool {
	if holder != "" {
		s.mu.Lock()
		id := s.listens.OfHolder(holder)
		s.mu.Unlock()
		if id == nil {
			return false // it is not acknowledged yet, or has ended
		}
		tagged, err := listen.Tag(params, id)
		if err != nil {
			return true // nothing of it can be sent, ever
		}
		params = tagged
	}
	return s.offerLine(append(jsonrpc.AppendRequest(nil, nil, mcp.ResourceUpdated, params), '\n'), nil)
}

// Told returns what the proxy keeps of the changes of a server's resources. It takes s.mu.
func (s *session) Told(server string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told[server]
}

// Tell has the proxy keep what the client was told of the changes of a server's resources. While the
// client's lines are sent again it does nothing: of a subscription that is still to come the client
// may not have been told what it missed. It takes s.mu.
func (s *session) Tell(server, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == nil || !s.keeps || s.replaying || s.told[server] == what {
		return
	}
	if s.told == nil {
		s.told = map[string]string{}
	}
	s.told[server] = what
	s.cur.Out.Control(protocol.Control{Holdline: protocol.Version, Keep: map[string]string{held.Updates + server: what}})
}
