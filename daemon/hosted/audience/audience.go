// Package audience knows the sessions that hear what one process of an MCP server says by
// itself: log messages, and changes of resources to which they have subscribed. An
// [Audience] is state without a lock, which its owner guards.
package audience

import (
	"encoding/json"
	"iter"
	"strings"

	"holdline/daemon/hosted/subscription"
	"holdline/daemon/tool"
	"holdline/protocol/mcp"
)

// An Audience is the sessions that use one process.
type Audience struct {
	server        string                 // its name
	users         Users                  // which sessions use the process
	clients       map[string]tool.Client // of all sessions, by session hash
	subscriptions *subscription.Table    // of all sessions
}

// Users knows which sessions use a process.
type Users interface {
	// Uses reports whether a session uses the process, and sees its server.
	Uses(session string, c tool.Client) bool
}

// New returns the audience of a process of that server. It goes on reading the clients of
// all sessions, by session hash, and their subscriptions: both have the same owner.
func New(server string, users Users, clients map[string]tool.Client, subscriptions *subscription.Table) Audience {
	return Audience{server, users, clients, subscriptions}
}

// All yields the sessions that use the process, by their hashes.
func (a *Audience) All() iter.Seq2[string, tool.Client] {
	return func(yield func(string, tool.Client) bool) {
		for session, c := range a.clients {
			if a.users.Uses(session, c) && !yield(session, c) {
				return
			}
		}
	}
}

// Level returns the most verbose level of log messages that a session wants, or "" if none
// wants messages.
func (a *Audience) Level() string {
	level := ""
	for session, c := range a.clients {
		// Most sessions want no messages, and whether one uses the process takes longer to say.
		if more := mcp.Verbose(level, c.Level()); more != level && a.users.Uses(session, c) {
			level = more
		}
	}
	return level
}

// subscribers yields the subscriptions that the process serves and that the rules still
// allow, with the clients of their sessions.
func (a *Audience) subscribers() iter.Seq2[tool.Client, *subscription.Subscription] {
	return func(yield func(tool.Client, *subscription.Subscription) bool) {
		for session, c := range a.clients {
			if !a.subscriptions.Has(session) || !a.users.Uses(session, c) {
				continue
			}
			who := c.Caller()
			for s := range a.subscriptions.Of(session, who.Who(), a.server) {
				if !yield(c, s) {
					return
				}
			}
		}
	}
}

// URIs returns the resources to which sessions have subscribed.
func (a *Audience) URIs() map[string]struct{} {
	uris := map[string]struct{}{}
	for _, s := range a.subscribers() {
		uris[s.URI] = struct{}{}
	}
	return uris
}

// Agreed notes that the process notifies of changes to a resource from now on.
// Sessions whose subscription was in force before are notified at once: a change
// while no process watched the resource would otherwise be lost. A notification
// without a change does no harm.
func (a *Audience) Agreed(uri string) {
	params := mcp.OfResource(uri)
	for c, s := range a.subscribers() {
		if s.URI == uri && s.Hold() {
			c.Updated(s.Holder, params)
		}
	}
}

// Updated notifies the subscribers of a resource that it has changed, with the params of
// that notification. Subscribers of a resource that contains it are notified, too, each
// holder once.
func (a *Audience) Updated(uri string, params json.RawMessage) {
	type place struct {
		c      tool.Client
		holder string
	}
	told := map[place]struct{}{}
	for c, s := range a.subscribers() {
		at := place{c, s.Holder}
		if _, ok := told[at]; ok || !covers(s.URI, uri) {
			continue
		}
		told[at] = struct{}{}
		c.Updated(s.Holder, params)
	}
}

// covers reports whether a subscription to the resource of covers a change of the
// resource uri: they are the same, or uri is below of.
func covers(of, uri string) bool {
	rest, ok := strings.CutPrefix(uri, of)
	return ok && (rest == "" || strings.HasSuffix(of, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}
