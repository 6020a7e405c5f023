package hosted

import (
	"context"
	"encoding/json"
	"errors"

	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/listing"
	"holdline/daemon/standing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Subscribe has a session told when the resource of that URI has changed, until
// [Manager.Unsubscribe] or the session's end, over as many processes of its
// server as it takes. It waits until the server has agreed. again says that the
// session had subscribed with an earlier daemon; then it stays subscribed if
// the server is not there now. A failure is the server's refusal, an error of
// JSON-RPC; an error is a fault, or [tool.ErrStopping].
func (m *Manager) Subscribe(
	ctx context.Context, c tool.Caller, holder, uri string, again bool,
) (failure json.RawMessage, err error) {
	s, names, err := m.subscribedServer(ctx, &c, uri)
	if err != nil {
		return nil, err
	}
	m.hub.Mu.Lock()
	sub, fresh, err := m.hub.Subscriptions.Add(c.Session, holder, uri, s.spec.Name, names)
	m.hub.Mu.Unlock()
	if err != nil {
		return nil, err
	}
	timeout := s.now().Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fault.New(fault.Timeout, fault.Server, mcp.Subscribe,
		"server %s has not answered within %v", s.spec.Name, timeout))
	defer cancel()
	failure, err = m.subscribe(ctx, s, c, uri, again)
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	switch {
	case err == nil && failure == nil, again && err != nil:
		sub.Hold()
	case fresh:
		m.hub.Subscriptions.Drop(c.Session, sub)
		m.hub.ReconcileLocked()
	}
	return failure, dispatch.AsFault(err, &listing.Offer{Method: mcp.Subscribe})
}

// subscribedServer returns the server of a resource, and the names by which rules
// know the resource. It returns a fault if the server does not offer subscriptions,
// or if the caller may not use the resource.
func (m *Manager) subscribedServer(
	ctx context.Context, c *tool.Caller, uri string,
) (s *server, names []string, err error) {
	if o := m.Resource(ctx, *c, uri); o != nil {
		names = o.Remote.Names
		s, err = m.lookup(o.Remote.Server)
		if err == nil && m.o.Rules != nil {
			err = m.o.Rules.Check(c.Identity, s.spec.Name, names...)
		}
	} else if c.Only != "" { // its server may tell that it does not tell changes
		s, err = m.lookup(c.Only)
	}
	if err != nil {
		return nil, nil, err
	}
	if s == nil || !m.sees(ctx, s, c) {
		return nil, nil, fault.New(fault.InvalidInput, fault.Host, mcp.Subscribe,
			"no hosted server offers the resource %s", fault.Quote([]byte(uri)))
	}
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	if !listing.Subscribable(s.offersLocked(c).About()) {
		return nil, nil, fault.New(fault.UnknownMethod, fault.Host, mcp.Subscribe,
			"server %s does not tell changes of its resources", s.spec.Name)
	}
	return s, names, nil
}

// subscribe waits until a process of the server has agreed to a subscription. It
// tries again with the next process if one exits meanwhile.
func (m *Manager) subscribe(
	ctx context.Context, s *server, c tool.Caller, uri string, again bool,
) (json.RawMessage, error) {
	for range dispatch.MaxAttempts {
		u, err := s.Ready(ctx, c)
		if err != nil {
			return nil, err
		}
		u.Standing.Wake()
		failure, err := u.Standing.Await(ctx, uri, again)
		if !errors.Is(err, standing.ErrExited) {
			return failure, err
		}
	}
	return nil, fault.New(fault.TransportFailure, fault.Server, mcp.Subscribe, "server %s ended %d times", s.spec.Name,
		dispatch.MaxAttempts)
}

// Unsubscribe ends a subscription of a session, or all of the holder's if uri is "".
// It does not wait for the server.
func (m *Manager) Unsubscribe(session, holder, uri string) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	m.hub.Subscriptions.End(session, holder, uri)
	m.hub.ReconcileLocked()
}

// Tuned makes processes reconcile their log levels, since a session wants messages of
// another level than before.
func (m *Manager) Tuned() {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	m.hub.ReconcileLocked()
}

// Notified passes a notification of a session's client on to the servers that it
// concerns: that its roots have changed, or its progress with what a server has asked
// for.
func (m *Manager) Notified(session string, msg jsonrpc.Message) { m.hub.Notified(session, msg) }
