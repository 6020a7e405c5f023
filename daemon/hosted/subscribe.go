package hosted

import (
	"context"
	"encoding/json"
	"errors"

	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Subscribe subscribes a session to a resource, and blocks until the server has agreed or refused:
// see [session.Hosted].
func (m *Manager) Subscribe(
	ctx context.Context, c tool.Caller, holder, uri string, again bool,
) (failure json.RawMessage, err error) {
	s, names, err := m.subscribable(ctx, &c, uri)
	if err != nil {
		return nil, err
	}
	server, timeout := s.Entry().Name, s.Entry().Timeout
	m.hub.Mu.Lock()
	sub, fresh, err := m.hub.SubscribeLocked(c.Session, holder, uri, server, names)
	m.hub.Mu.Unlock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fault.New(fault.Timeout, fault.Server, mcp.Subscribe,
		"server %s has not answered within %v", server, timeout))
	defer cancel()
	err = fault.New(fault.TransportFailure, fault.Server, mcp.Subscribe, "server %s ended %d times", server,
		dispatch.MaxAttempts)
	var u *upstream.Process
	for range dispatch.MaxAttempts {
		var rerr error
		if u, rerr = s.Ready(ctx, nil, c); rerr == nil {
			u.Wake()
			failure, rerr = u.AwaitWatch(ctx, uri, again)
		}
		if !errors.Is(rerr, upstream.ErrExited) {
			err = rerr
			break
		}
	}
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	switch {
	case err == nil && failure == nil:
		u.HoldLocked(c.Session, sub, again && fresh)
	case again && err != nil:
		sub.ExpectLocked()
	case fresh:
		m.hub.UnsubscribeLocked(c.Session, func(s *upstream.Subscription) bool { return s == sub })
		m.hub.ReconcileLocked()
	}
	return failure, dispatch.AsFault(err, &listing.Offer{Method: mcp.Subscribe})
}

// subscribable returns the server that offers a resource, and the names by which rules know it.
func (m *Manager) subscribable(ctx context.Context, c *tool.Caller, uri string) (*server, []string, error) {
	server := c.Only // says itself that it does not notify of changes, if it does not list the resource
	var names []string
	if o := m.Resource(ctx, *c, uri); o != nil {
		server, names = o.Remote.Server, o.Remote.Names
		if m.o.Rules != nil {
			err := m.o.Rules.Check(c.Who(), server, names...)
			if err == nil && o.Remote.Unlisted {
				err = m.o.Rules.CheckURI(c.Who(), server, uri)
			}
			if err != nil {
				return nil, nil, err
			}
		}
	}
	view := m.view(ctx, c).Server(server)
	switch {
	case view == nil:
		return nil, nil, fault.New(fault.InvalidInput, fault.Host, mcp.Subscribe,
			"no hosted server offers the resource %s", fault.Quote([]byte(uri)))
	case !listing.Subscribable(view.Offering.About()):
		return nil, nil, fault.New(fault.UnknownMethod, fault.Host, mcp.Subscribe,
			"server %s does not tell changes of its resources", server)
	}
	s, err := m.lookup(server)
	return s, names, err
}

// Back has a session notified of what it has missed while it had no connection.
func (m *Manager) Back(session string) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	m.hub.BackLocked(session)
}

// Retell notifies a session of changes for which it had no subscription in force, or no room, before.
func (m *Manager) Retell(session string) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	m.hub.RetellLocked(session)
}

// Unsubscribe ends the holder's subscription to a resource; all of them if the URI is "".
func (m *Manager) Unsubscribe(session, holder, uri string) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	m.hub.UnsubscribeLocked(session, func(s *upstream.Subscription) bool {
		return s.Holder == holder && (uri == "" || s.URI == uri)
	})
	m.hub.ReconcileLocked()
}
