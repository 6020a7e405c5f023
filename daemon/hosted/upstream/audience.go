package upstream

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"holdline/daemon/dialect"
	"holdline/daemon/lines"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// maxSubscriptions bounds the subscriptions of one session.
const maxSubscriptions = 256

// A Subscription is a session's wish to hear of the changes of a resource. It is held over the
// processes of its server, and is guarded by the hub's mutex.
type Subscription struct {
	Holder, URI string

	server string
	names  []string // by which rules know the resource
	held   bool     // it was in force: what has changed since must be told
	missed bool     // the client must be notified of a change still
}

// SubscribeLocked records that a session wants to hear of a resource, under the name holder. It
// returns the subscription that is there already, or a fresh one, or a fault if there are too many.
// The caller must hold h.Mu.
func (h *Hub) SubscribeLocked(session, holder, uri, server string, names []string) (
	s *Subscription, fresh bool, err error,
) {
	all := h.subscriptions[session]
	if i := slices.IndexFunc(all, func(s *Subscription) bool { return s.Holder == holder && s.URI == uri }); i >= 0 {
		return all[i], false, nil
	}
	if len(all) >= maxSubscriptions {
		return nil, false, fault.New(fault.ResourceExhausted, fault.Host, mcp.Subscribe,
			"this session has %d subscriptions to resources, its limit: end one of them", maxSubscriptions).
			WithLimit("subscriptions", maxSubscriptions, len(all))
	}
	s = &Subscription{Holder: holder, URI: uri, server: server, names: names}
	h.subscriptions[session] = append(all, s)
	return s, true, nil
}

// ExpectLocked records that a subscription will be in force once its server can be asked.
func (s *Subscription) ExpectLocked() { s.held = true }

// UnsubscribeLocked ends the subscriptions of a session that match. The caller must hold h.Mu.
func (h *Hub) UnsubscribeLocked(session string, matches func(*Subscription) bool) {
	if h.subscriptions[session] = slices.DeleteFunc(h.subscriptions[session], matches); len(h.subscriptions[session]) == 0 {
		delete(h.subscriptions, session)
	}
}

// usersLocked returns the sessions that use the process. The caller must hold hub.Mu.
func (u *Process) usersLocked() iter.Seq2[string, tool.Client] {
	return func(yield func(string, tool.Client) bool) {
		for session, c := range u.hub.Clients {
			if u.Instance.Uses(session, c) && !yield(session, c) {
				return
			}
		}
	}
}

// levelLocked returns the most verbose log level that a session of the process wants, or "". It looks
// only at sessions that want more than those before. The caller must hold hub.Mu.
func (u *Process) levelLocked() string {
	level := ""
	for session, c := range u.hub.Clients {
		if more := mcp.Verbose(level, c.Level()); more != level && u.Instance.Uses(session, c) {
			level = more
		}
	}
	return level
}

// subscribersLocked returns the subscriptions to resources of the process that their sessions may
// use. The caller must hold hub.Mu.
func (u *Process) subscribersLocked() iter.Seq2[tool.Client, *Subscription] {
	return func(yield func(tool.Client, *Subscription) bool) {
		for session, all := range u.hub.subscriptions {
			c := u.hub.Clients[session]
			if c == nil || !u.Instance.Uses(session, c) {
				continue
			}
			for _, s := range all {
				if u.offersLocked(c, s) && !yield(c, s) {
					return
				}
			}
		}
	}
}

// offersLocked reports whether a subscription is to a resource of the process that its client may use.
// The caller must hold hub.Mu.
func (u *Process) offersLocked(c tool.Client, s *Subscription) bool {
	if s.server != u.Server || u.hub.o.Rules == nil {
		return s.server == u.Server
	}
	who := c.Caller()
	return u.hub.o.Rules.May(who.Who(), u.Server, s.names...)
}

// urisLocked returns the resources to which sessions have subscribed. hub.Mu must be held.
func (u *Process) urisLocked() map[string]struct{} {
	uris := map[string]struct{}{}
	for _, s := range u.subscribersLocked() {
		uris[s.URI] = struct{}{}
	}
	return uris
}

// agreedLocked records that the process notifies of changes to a resource from now on. Those who had
// subscribed before are notified: they may have missed one. The caller, the reader, must hold hub.Mu.
func (u *Process) agreedLocked(uri string, w *watch) {
	w.state, w.recorded = agreed, false
	w.changed, u.standing.untold = max(w.changed, endOf(u.output.Last())), true
	for _, s := range u.subscribersLocked() {
		s.missed = s.missed || s.URI == uri && s.held
	}
	u.Wake() // it may be unwanted by now
}

// updated forwards the server's notification that a resource has changed, in the line l, to the sessions
// that have subscribed to it, or to a resource that contains it. Of those from before the attach each
// subscription gets one, unless an earlier daemon has forwarded them. A malformed one is dropped. It takes hub.Mu.
func (u *Process) updated(msg jsonrpc.Message, l *lines.Line) {
	uri, ok := mcp.String(jsonrpc.Field(msg.Params, "uri"))
	params, err := dialect.DropSubscription(msg.Params)
	if !ok || uri == "" || err != nil {
		return
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if l.Old {
		u.missedLocked(uri, placeOf(l))
		return
	}
	u.changedLocked(uri, placeOf(l))
	u.updatedLocked(uri, params)
}

// updatedLocked notifies each holder once. The caller must hold hub.Mu.
func (u *Process) updatedLocked(uri string, params json.RawMessage) {
	type place struct {
		c      tool.Client
		holder string
	}
	told := map[place]bool{}
	for c, s := range u.subscribersLocked() {
		if !covers(s.URI, uri) {
			continue
		}
		at := place{c, s.Holder}
		queued, ok := told[at]
		if !ok {
			queued = c.Updated(s.Holder, params)
			told[at] = queued
		}
		s.missed = s.missed || !queued
	}
}

// covers reports whether a resource is that of a URI, or below it.
func covers(of, uri string) bool {
	rest, ok := strings.CutPrefix(uri, of)
	return ok && (rest == "" || strings.HasSuffix(of, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}
