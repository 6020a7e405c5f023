package upstream

import (
	"holdline/daemon/dialect"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A want identifies a subscription of a session. holder is "" for the session itself,
// or the id of the request that subscribed.
type want struct{ holder, uri string }

// A Wanted is the server that a subscription goes to.
type Wanted struct {
	key    want
	server string
	names  []string // by which rules know the resource
	held   bool     // it was in force: what has changed since must be told
}

// maxwants bounds the subscriptions of one session.
const maxwants = 256

// Subscribe records that a session wants to know of changes of a resource of a server,
// which rules know by names. It reports, as fresh, whether that is new.
func (h *Hub) Subscribe(c *tool.Caller, holder, uri, server string, names []string) (w *Wanted, fresh bool, err error) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	all, key := h.wants[c.Session], want{holder, uri}
	if w := all[key]; w != nil {
		return w, false, nil
	}
	if len(all) >= maxwants {
		return nil, false, fault.New(fault.ResourceExhausted, fault.Host, mcp.Subscribe,
			"this session has %d subscriptions to resources, its limit: end one of them", maxwants).
			WithLimit("subscriptions", maxwants, len(all))
	}
	if all == nil {
		all = map[want]*Wanted{}
		h.wants[c.Session] = all
	}
	w = &Wanted{key: key, server: server, names: names}
	all[key] = w
	return w, true, nil
}

// Subscribed records how a subscription has ended: held says that it is in force. One
// that is not goes if it is fresh.
func (h *Hub) Subscribed(session string, w *Wanted, fresh, held bool) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	switch {
	case held:
		w.held = true
	case fresh && h.wants[session][w.key] == w:
		delete(h.wants[session], w.key)
		h.ReconcileLocked()
	}
}

// Unsubscribe ends a subscription of a session, or all of the holder's if uri is "".
// It does not wait for the server.
func (h *Hub) Unsubscribe(session, holder, uri string) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	for key := range h.wants[session] {
		if key.holder == holder && (uri == "" || key.uri == uri) {
			delete(h.wants[session], key)
		}
	}
	h.ReconcileLocked()
}

// URIs returns the resources to which sessions of the process have subscribed.
func (u *Process) URIs() map[string]struct{} {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	uris := map[string]struct{}{}
	u.eachWantLocked(func(_ tool.Client, w *Wanted) { uris[w.key.uri] = struct{}{} })
	return uris
}

// eachWantLocked calls f for each subscription that this process serves and that the
// rules still allow.
func (u *Process) eachWantLocked(f func(c tool.Client, w *Wanted)) {
	for session, all := range u.hub.wants {
		c := u.hub.Clients[session]
		if c == nil || len(all) == 0 || !u.Instance.Uses(session, c) {
			continue
		}
		identity := c.Caller().Identity
		for _, w := range all {
			if w.server == u.Server &&
				(u.hub.o.Rules == nil || u.hub.o.Rules.May(identity, w.server, w.names...)) {
				f(c, w)
			}
		}
	}
}

// Agreed notes that the process notifies of changes to a resource from now on.
// Sessions whose subscription was in force before are notified at once: a change
// while no process watched the resource would otherwise be lost. A notification
// without a change does no harm.
func (u *Process) Agreed(uri string) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	params := mcp.OfResource(uri)
	u.eachWantLocked(func(c tool.Client, w *Wanted) {
		if w.key.uri != uri {
			return
		}
		if w.held {
			c.Updated(w.key.holder, params)
		}
		w.held = true
	})
}

// updated notifies the subscribers of a resource that it has changed. Subscribers of
// a resource that contains it are notified, too, each holder once.
func (u *Process) updated(msg jsonrpc.Message) {
	uri, ok := mcp.String(jsonrpc.Field(msg.Params, "uri"))
	if !ok {
		return
	}
	params, err := dialect.DropSubscription(msg.Params)
	if err != nil {
		return
	}
	type place struct {
		c        tool.Client
		Instance string
	}
	told := map[place]struct{}{}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.eachWantLocked(func(c tool.Client, w *Wanted) {
		at := place{c, w.key.holder}
		if _, ok := told[at]; ok || !dialect.Covers(w.key.uri, uri) {
			return
		}
		told[at] = struct{}{}
		c.Updated(w.key.holder, params)
	})
}
