// Package subscription knows to which resources sessions have subscribed. A [Table] is
// state without a lock, which its owner guards.
package subscription

import (
	"iter"

	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// most bounds the subscriptions of one session.
const most = 256

// A Subscription is that of a session to a resource of a server. Holder is "" for the
// session itself, or the id of the request that subscribed.
type Subscription struct {
	Holder, URI string

	server string
	names  []string // by which rules know the resource
	held   bool     // it was in force: what has changed since must be told
}

// key identifies a subscription of a session.
type key struct{ holder, uri string }

// A Table has the subscriptions of all sessions.
type Table struct {
	rules    tool.Rules                       // nil allows everything
	sessions map[string]map[key]*Subscription // by session hash
}

// New returns an empty table. rules decide which resources an identity may use; nil allows
// everything.
func New(rules tool.Rules) Table { return Table{rules, map[string]map[key]*Subscription{}} }

// Add records that a session wants to know of changes of a resource of a server, which
// rules know by names. It reports, as fresh, whether that is new. The error is a fault: the
// session has too many subscriptions.
func (t *Table) Add(
	session, holder, uri, server string, names []string,
) (s *Subscription, fresh bool, err error) {
	all, k := t.sessions[session], key{holder, uri}
	if s := all[k]; s != nil {
		return s, false, nil
	}
	if len(all) >= most {
		return nil, false, fault.New(fault.ResourceExhausted, fault.Host, mcp.Subscribe,
			"this session has %d subscriptions to resources, its limit: end one of them", most).
			WithLimit("subscriptions", most, len(all))
	}
	if all == nil {
		all = map[key]*Subscription{}
		t.sessions[session] = all
	}
	s = &Subscription{Holder: holder, URI: uri, server: server, names: names}
	all[k] = s
	return s, true, nil
}

// Hold records that a subscription is in force, and reports whether it was before.
func (s *Subscription) Hold() (before bool) {
	before, s.held = s.held, true
	return before
}

// Drop ends a subscription, unless it was ended and made anew.
func (t *Table) Drop(session string, s *Subscription) {
	if k := (key{s.Holder, s.URI}); t.sessions[session][k] == s {
		delete(t.sessions[session], k)
	}
}

// End ends a subscription of a session, or all of the holder's if uri is "".
func (t *Table) End(session, holder, uri string) {
	for k := range t.sessions[session] {
		if k.holder == holder && (uri == "" || k.uri == uri) {
			delete(t.sessions[session], k)
		}
	}
}

// Forget ends all subscriptions of a session.
func (t *Table) Forget(session string) { delete(t.sessions, session) }

// Has reports whether a session has subscriptions.
func (t *Table) Has(session string) bool { return len(t.sessions[session]) > 0 }

// Of yields the subscriptions of a session to resources of a server that it may use.
func (t *Table) Of(session string, who tool.Who, server string) iter.Seq[*Subscription] {
	return func(yield func(*Subscription) bool) {
		for _, s := range t.sessions[session] {
			if s.server == server && (t.rules == nil || t.rules.May(who, server, s.names...)) && !yield(s) {
				return
			}
		}
	}
}
