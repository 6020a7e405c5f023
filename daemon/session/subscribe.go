package session

import (
	"context"
	"encoding/json"
	"errors"

	"holdline/daemon/session/crew"
	"holdline/daemon/session/flight"
	"holdline/daemon/session/listen"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// maxSubscriptions bounds the resources that a legacy client has subscribed to
// at once, as far as the session itself remembers them.
const maxSubscriptions = 256

// refusal is the JSON-RPC error with which a server refused a request, as it came.
type refusal struct{ raw json.RawMessage }

// subscribe passes a legacy client's subscription to the server that has the resource. A
// goroutine of calls waits for that server and answers the client once it has agreed or
// refused; subscribe itself returns at once. A session that has too many subscriptions
// gets a fault, and the server is not asked.
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

// unsubscribe ends a legacy client's subscription to a resource, without waiting for the server,
// and answers r with an empty result, even if there was no such subscription. It answers with a
// fault if the URI is not valid. It takes s.mu.
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

// subscribeAgain repeats the subscription of request r, which the client made at an earlier
// daemon or before its connection broke. It returns at once, and sends no answer, since the
// client has one. A goroutine of calls asks the server; when that has subscribed, the client gets
// a notification that the resource may have changed. If the server refuses or r is malformed, the
// client is not notified, and nothing is retried. It takes s.mu.
func (s *session) subscribeAgain(ctx context.Context, r *request, calls *crew.Crew) {
	uri, f := s.uri(r)
	if f != nil || s.addFollow(r, uri) != nil {
		return
	}
	s.running.Add(1)
	calls.Go(func() {
		defer s.ended()
		failure, err := s.subscribeTarget(ctx, r, uri)
		if err != nil || failure != nil {
			s.log.DebugContext(ctx, "subscription is not in force again", "err", err)
			return
		}
		s.Updated("", mcp.OfResource(uri))
	})
}

// uri returns params.uri of a request about a resource. It returns an invalid_input fault if that
// is not a string or is empty, and an unknown_method fault for an anonymous session. It asks no
// server. It takes s.mu.
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

// addFollow records that the client subscribes to a resource, with the number of the line that
// asks for it. It returns a resource_exhausted fault, and records nothing, if the session has too
// many subscriptions. It takes s.mu.
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

// subscribeTarget subscribes to a resource, and blocks until its server has agreed or refused. It
// returns the results of [Hosted].Subscribe. If the client has unsubscribed meanwhile, it ends
// the subscription at once. A subscription that failed is forgotten, unless a later line asks for
// the same resource. One that failed with an error, not by the server's refusal, is also kept if
// r.standing is true: the client believes that it has it. It takes s.mu.
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

// beginListen begins a subscription of a modern client, which stays in flight until the client
// cancels it or disconnects. It is acknowledged at once, or, if it names resources or tasks, by a
// goroutine of calls after their servers have answered. A malformed one, one that exceeds a
// limit, and one that fails is answered with a fault, and ends. A replayed one is acknowledged
// again. It takes s.mu.
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

// grantResources subscribes to each of uris for a modern client, one after the other, and blocks
// until their servers have answered. It adds those whose servers have agreed to l.URIs and skips
// the others: the acknowledgement shows the client what it gets. A replayed request keeps a
// resource whose server cannot answer now. It returns the cause of ctx once that is done, and an
// error, such as a resource_exhausted fault, that stops it early; the caller must then end the
// subscription.
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

// takesTasks reports whether the client of r understands tasks and sees the daemon's own tools,
// which alone may become tasks. It is false for a legacy request.
func (s *session) takesTasks(r *request) bool {
	who := s.who()
	return r.modern && r.params.Meta.TakesTasks() && who.SeesOwn()
}

// watchTask notifies the client of a task: how it stands now, and of its changes. It blocks until
// ctx, that of the subscription, is done or there is no such task any more. A notification is
// dropped if the client is not connected; the end of the task is repeated when the client
// connects again. It takes s.mu.
func (s *session) watchTask(ctx context.Context, l *listen.Subscription, id string) {
	tasks.Watch(ctx, s.srv.o.Tasks, s.who(), id, func() <-chan struct{} {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.came
	}, func(params json.RawMessage) {
		if tagged, err := listen.Tag(params, l.ID); err == nil {
			wanted := func() bool { return ctx.Err() == nil }
			s.offerLine(append(jsonrpc.AppendRequest(nil, nil, mcp.TasksNote, tagged), '\n'), wanted)
		}
	})
}

// acknowledge counts r as a success, sends the client which notifications it gets from now on,
// and registers l. For a replayed request it then announces the resources of l as changed. It
// returns false if the client has ended the subscription, before or meanwhile: then l is not
// registered. It may block until there is room for the line. It takes s.mu.
func (s *session) acknowledge(ctx context.Context, r *request, l *listen.Subscription) bool {
	if r.flight.At() != flight.Running {
		return false
	}
	s.countRequest(r, 0, nil)
	s.queueLine(ctx, 0, l.Acknowledgement())
	s.mu.Lock()
	wanted := r.flight.At() == flight.Running
	if wanted {
		s.listens.Add(l)
	}
	s.mu.Unlock()
	if wanted && r.replay {
		s.mayHaveChanged(l)
	}
	return wanted
}

// unlisten removes the subscription l, and ends its subscriptions at the servers, without waiting
// for them. It may be called again. It takes s.mu.
func (s *session) unlisten(l *listen.Subscription) {
	s.mu.Lock()
	s.listens.Remove(l)
	s.mu.Unlock()
	s.srv.o.Hosted.Unsubscribe(s.hash, l.Holder, "")
}

// mayHaveChanged sends the client a notification for each resource of l that the resource has
// changed: an earlier one may have been lost.
func (s *session) mayHaveChanged(l *listen.Subscription) {
	for _, uri := range l.URIs {
		s.Updated(l.Holder, mcp.OfResource(uri))
	}
}

// listenOn sends the acknowledgement of each subscription to resources again, to a client that is
// back, and announces the resources as changed: notifications may be lost with a connection. It
// takes s.mu.
func (s *session) listenOn() {
	s.mu.Lock()
	all := s.listens.WithResources()
	s.mu.Unlock()
	for _, l := range all {
		s.offerLine(append(l.Acknowledgement(), '\n'), nil)
		s.mayHaveChanged(l)
	}
}

// Updated queues a notification that a resource has changed: to the legacy client if holder is
// "", else in the modern client's subscription of that name. It does not block. The notification
// is dropped if there is no such subscription, or it is not yet acknowledged, if the client is
// not connected, or if there is no room. It takes s.mu.
func (s *session) Updated(holder string, params json.RawMessage) {
	if holder == "" {
		s.offerLine(append(jsonrpc.AppendRequest(nil, nil, mcp.ResourceUpdated, params), '\n'), nil)
		return
	}
	s.mu.Lock()
	id := s.listens.OfHolder(holder)
	s.mu.Unlock()
	if id == nil {
		return // it is not acknowledged yet, or has ended
	}
	if tagged, err := listen.Tag(params, id); err == nil {
		s.offerLine(append(jsonrpc.AppendRequest(nil, nil, mcp.ResourceUpdated, tagged), '\n'), nil)
	}
}
