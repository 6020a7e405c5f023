package hosted

import (
	"context"
	"encoding/json"
	"errors"

	"holdline/daemon/dialect"
	"holdline/daemon/listing"
	"holdline/daemon/standing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// maxWants bounds the subscriptions of one session.
const maxWants = 256

// A want identifies a subscription of a session. holder is "" for the session itself,
// or the id of the request that subscribed.
type want struct{ holder, uri string }

// A wanted is the server that a subscription goes to.
type wanted struct {
	server string
	names  []string // by which rules know it
	held   bool     // it was in force: what has changed since must be told
}

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
	key := want{holder, uri}
	w, fresh, err := m.want(&c, key, &wanted{server: s.spec.Name, names: names})
	if err != nil {
		return nil, err
	}
	timeout := s.now().Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fault.New(fault.Timeout, fault.Server, mcp.Subscribe,
		"server %s has not answered within %v", s.spec.Name, timeout))
	defer cancel()
	failure, err = m.subscribe(ctx, s, c, uri, again)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil && failure == nil, again && err != nil:
		w.held = true
	case fresh && m.wants[c.Session][key] == w:
		delete(m.wants[c.Session], key)
		m.reconcileLocked()
	}
	return failure, asFault(err, &listing.Offer{Method: mcp.Subscribe})
}

// subscribedServer returns the server of a resource, and the names by which rules
// know the resource. It returns a fault if the server does not offer subscriptions,
// or if the caller may not use the resource.
func (m *Manager) subscribedServer(
	ctx context.Context, c *tool.Caller, uri string,
) (s *server, names []string, err error) {
	if o := m.resource(ctx, *c, uri); o != nil {
		names = o.Remote.Names
		s, err = m.server(o.Remote.Server)
		if err == nil && m.o.Rules != nil {
			err = m.o.Rules.Check(c.Identity, s.spec.Name, names...)
		}
	} else if c.Only != "" { // its server may tell that it does not tell changes
		s, err = m.server(c.Only)
	}
	if err != nil {
		return nil, nil, err
	}
	if s == nil || !m.sees(ctx, s, c) {
		return nil, nil, fault.New(fault.InvalidInput, fault.Host, mcp.Subscribe,
			"no hosted server offers the resource %s", fault.Quote([]byte(uri)))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !listing.Subscribable(s.offersLocked(c).About()) {
		return nil, nil, fault.New(fault.UnknownMethod, fault.Host, mcp.Subscribe,
			"server %s does not tell changes of its resources", s.spec.Name)
	}
	return s, names, nil
}

// want records what a session wants. It reports, as fresh, whether that is new.
func (m *Manager) want(c *tool.Caller, key want, is *wanted) (w *wanted, fresh bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.wants[c.Session]
	if w := all[key]; w != nil {
		return w, false, nil
	}
	if len(all) >= maxWants {
		return nil, false, fault.New(fault.ResourceExhausted, fault.Host, mcp.Subscribe,
			"this session has %d subscriptions to resources, its limit: end one of them", maxWants).
			WithLimit("subscriptions", maxWants, len(all))
	}
	if all == nil {
		all = map[want]*wanted{}
		m.wants[c.Session] = all
	}
	all[key] = is
	return all[key], true, nil
}

// subscribe waits until a process of the server has agreed to a subscription. It
// tries again with the next process if one exits meanwhile.
func (m *Manager) subscribe(
	ctx context.Context, s *server, c tool.Caller, uri string, again bool,
) (json.RawMessage, error) {
	for range maxAttempts {
		u, err := s.ready(ctx, c)
		if err != nil {
			return nil, err
		}
		u.standing.Wake()
		failure, err := u.standing.Await(ctx, uri, again)
		if !errors.Is(err, standing.ErrExited) {
			return failure, err
		}
	}
	return nil, fault.New(fault.TransportFailure, fault.Server, mcp.Subscribe, "server %s ended %d times", s.spec.Name,
		maxAttempts)
}

// Unsubscribe ends a subscription of a session, or all of the holder's if uri is "".
// It does not wait for the server.
func (m *Manager) Unsubscribe(session, holder, uri string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.wants[session] {
		if key.holder == holder && (uri == "" || key.uri == uri) {
			delete(m.wants[session], key)
		}
	}
	m.reconcileLocked()
}

// URIs returns the resources to which sessions of the process have subscribed.
func (u *upstream) URIs() map[string]struct{} {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	uris := map[string]struct{}{}
	u.eachWantLocked(func(_ tool.Client, key want, _ *wanted) { uris[key.uri] = struct{}{} })
	return uris
}

// eachWantLocked calls f for each subscription that this process serves and that the
// rules still allow.
func (u *upstream) eachWantLocked(f func(c tool.Client, key want, w *wanted)) {
	for session, all := range u.m.wants {
		c := u.m.clients[session]
		if c == nil || len(all) == 0 || !u.inst.usedByLocked(session, c) {
			continue
		}
		identity := c.Caller().Identity
		for key, w := range all {
			if w.server == u.inst.key.server &&
				(u.m.o.Rules == nil || u.m.o.Rules.May(identity, w.server, w.names...)) {
				f(c, key, w)
			}
		}
	}
}

// Agreed notes that the process notifies of changes to a resource from now on.
// Sessions whose subscription was in force before are notified at once: a change
// while no process watched the resource would otherwise be lost. A notification
// without a change does no harm.
func (u *upstream) Agreed(uri string) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	params := mcp.OfResource(uri)
	u.eachWantLocked(func(c tool.Client, key want, w *wanted) {
		if key.uri != uri {
			return
		}
		if w.held {
			c.Updated(key.holder, params)
		}
		w.held = true
	})
}

// updated notifies the subscribers of a resource that it has changed. Subscribers of
// a resource that contains it are notified, too, each holder once.
func (u *upstream) updated(msg jsonrpc.Message) {
	uri, ok := mcp.String(jsonrpc.Field(msg.Params, "uri"))
	if !ok {
		return
	}
	params, err := dialect.DropSubscription(msg.Params)
	if err != nil {
		return
	}
	type place struct {
		c      tool.Client
		holder string
	}
	told := map[place]struct{}{}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	u.eachWantLocked(func(c tool.Client, key want, _ *wanted) {
		at := place{c, key.holder}
		if _, ok := told[at]; ok || !dialect.Covers(key.uri, uri) {
			return
		}
		told[at] = struct{}{}
		c.Updated(key.holder, params)
	})
}
