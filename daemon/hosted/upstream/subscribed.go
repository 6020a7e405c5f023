package upstream

import (
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/subscription"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// URIs returns the resources to which sessions of the process have subscribed.
func (u *Process) URIs() map[string]struct{} {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	uris := map[string]struct{}{}
	u.eachSubscriptionLocked(func(_ tool.Client, s *subscription.Subscription) { uris[s.URI] = struct{}{} })
	return uris
}

// eachSubscriptionLocked calls f for each subscription that this process serves and that
// the rules still allow.
func (u *Process) eachSubscriptionLocked(f func(c tool.Client, s *subscription.Subscription)) {
	for session, c := range u.hub.Clients {
		if !u.hub.Subscriptions.Has(session) || !u.Instance.Uses(session, c) {
			continue
		}
		for s := range u.hub.Subscriptions.Of(session, c.Caller().Identity, u.Server) {
			f(c, s)
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
	u.eachSubscriptionLocked(func(c tool.Client, s *subscription.Subscription) {
		if s.URI != uri {
			return
		}
		if s.Hold() {
			c.Updated(s.Holder, params)
		}
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
		c      tool.Client
		holder string
	}
	told := map[place]struct{}{}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.eachSubscriptionLocked(func(c tool.Client, s *subscription.Subscription) {
		at := place{c, s.Holder}
		if _, ok := told[at]; ok || !dialect.Covers(s.URI, uri) {
			return
		}
		told[at] = struct{}{}
		c.Updated(s.Holder, params)
	})
}
