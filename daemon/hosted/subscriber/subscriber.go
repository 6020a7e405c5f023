// Package subscriber subscribes sessions to resources of the hosted servers.
package subscriber

import (
	"context"
	"encoding/json"
	"errors"

	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/standing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Servers are the configured servers. Their functions are safe for concurrent use.
type Servers struct {
	// Find returns the server that has a name now, or a fault.
	Find func(name string) (dispatch.Server, error)
	// View returns what a caller sees of all servers. It may wait a moment, at most
	// until ctx ends.
	View func(ctx context.Context, c *tool.Caller) *listing.View
	// Resource returns the offer of a resource, or nil if no server has it. It may wait
	// for servers that have never listed.
	Resource func(ctx context.Context, c tool.Caller, uri string) *listing.Offer
}

// A Subscriber makes and ends subscriptions. It is safe for concurrent use. The
// subscriptions are those of the hub; its processes reconcile them with their servers.
type Subscriber struct {
	hub     *upstream.Hub
	servers Servers
	rules   tool.Rules // nil allows everything
}

// New returns a subscriber to resources of servers, whose processes are those of the hub.
func New(hub *upstream.Hub, servers Servers, rules tool.Rules) *Subscriber {
	return &Subscriber{hub, servers, rules}
}

// Subscribe notifies a session whenever the resource of that URI has changed, until
// [Subscriber.Unsubscribe] or the session's end, over as many processes of its
// server as it takes. It waits until the server has agreed. again says that the
// session had subscribed with an earlier daemon; then it stays subscribed if
// the server is not there now. A failure is the server's refusal, an error of
// JSON-RPC; an error is a fault, or [tool.ErrStopping].
func (b *Subscriber) Subscribe(
	ctx context.Context, c tool.Caller, holder, uri string, again bool,
) (failure json.RawMessage, err error) {
	s, names, err := b.find(ctx, &c, uri)
	if err != nil {
		return nil, err
	}
	server, timeout := s.Entry().Name, s.Entry().Timeout
	b.hub.Mu.Lock()
	sub, fresh, err := b.hub.Subscriptions.Add(c.Session, holder, uri, server, names)
	b.hub.Mu.Unlock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fault.New(fault.Timeout, fault.Server, mcp.Subscribe,
		"server %s has not answered within %v", server, timeout))
	defer cancel()
	failure, err = b.await(ctx, s, c, uri, again)
	b.hub.Mu.Lock()
	defer b.hub.Mu.Unlock()
	switch {
	case err == nil && failure == nil, again && err != nil:
		sub.Hold()
	case fresh:
		b.hub.Subscriptions.Drop(c.Session, sub)
		b.hub.ReconcileLocked()
	}
	return failure, dispatch.AsFault(err, &listing.Offer{Method: mcp.Subscribe})
}

// find returns the server of a resource, and the names by which rules know the
// resource. It returns a fault if the server does not offer subscriptions, or if the
// caller may not use the resource.
func (b *Subscriber) find(
	ctx context.Context, c *tool.Caller, uri string,
) (s dispatch.Server, names []string, err error) {
	server := c.Only // says itself that it does not notify of changes, if it does not list the resource
	if o := b.servers.Resource(ctx, *c, uri); o != nil {
		server, names = o.Remote.Server, o.Remote.Names
		if b.rules != nil {
			err = b.rules.Check(c.Who(), server, names...)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	view := b.servers.View(ctx, c).Server(server)
	switch {
	case view == nil:
		return nil, nil, fault.New(fault.InvalidInput, fault.Host, mcp.Subscribe,
			"no hosted server offers the resource %s", fault.Quote([]byte(uri)))
	case !listing.Subscribable(view.Offering.About()):
		return nil, nil, fault.New(fault.UnknownMethod, fault.Host, mcp.Subscribe,
			"server %s does not tell changes of its resources", server)
	}
	s, err = b.servers.Find(server)
	return s, names, err
}

// await waits until a process of the server has agreed to a subscription. It tries
// again with the next process if one exits meanwhile.
func (b *Subscriber) await(
	ctx context.Context, s dispatch.Server, c tool.Caller, uri string, again bool,
) (failure json.RawMessage, err error) {
	for range dispatch.MaxAttempts {
		u, err := s.Ready(ctx, nil, c)
		if err != nil {
			return nil, err
		}
		u.Standing.Wake()
		failure, err := u.Standing.Await(ctx, uri, again)
		if !errors.Is(err, standing.ErrExited) {
			return failure, err
		}
	}
	return nil, fault.New(fault.TransportFailure, fault.Server, mcp.Subscribe, "server %s ended %d times",
		s.Entry().Name, dispatch.MaxAttempts)
}

// Unsubscribe ends a subscription of a session, or all of the holder's if uri is "".
// It does not wait for the server.
func (b *Subscriber) Unsubscribe(session, holder, uri string) {
	b.hub.Mu.Lock()
	defer b.hub.Mu.Unlock()
	b.hub.Subscriptions.End(session, holder, uri)
	b.hub.ReconcileLocked()
}
