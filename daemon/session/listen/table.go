package listen

import (
	"fmt"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A Table has the open subscriptions of a modern client, by the ids of their requests. It has no
// lock of its own.
type Table map[string]*Subscription

// Add adds a subscription.
func (t Table) Add(l *Subscription) { t[l.ID.Key()] = l }

// Remove removes a subscription; it does nothing if another one has its id.
func (t Table) Remove(l *Subscription) {
	if key := l.ID.Key(); t[key] == l {
		delete(t, key)
	}
}

// OfHolder returns the id of the request whose subscription has that name; nil if there is none.
func (t Table) OfHolder(holder string) (id jsonrpc.ID) {
	for _, l := range t {
		if l.Holder == holder {
			id = l.ID
		}
	}
	return id
}

// WithResources returns the subscriptions to resources.
func (t Table) WithResources() (all []*Subscription) {
	for _, l := range t {
		if len(l.URIs) > 0 {
			all = append(all, l)
		}
	}
	return all
}

// Changed returns the notifications, each a line, that announce the change of a list: one for
// each subscription to it. method is that of the notification.
func (t Table) Changed(method string) (lines [][]byte) {
	for _, l := range t {
		if l.Granted[method] {
			params := fmt.Appendf(nil, `{"_meta":{%q:%s}}`, mcp.MetaSubscription, l.ID)
			lines = append(lines, append(jsonrpc.AppendRequest(nil, nil, method, params), '\n'))
		}
	}
	return lines
}

// Follows has the resources to which a legacy client subscribes, with the latest lines that ask
// for them. It has no lock of its own.
type Follows map[string]int64

// Add adds the subscription of line n. It returns false, and adds nothing, if that would be more
// than most.
func (f Follows) Add(uri string, n int64, most int) bool {
	if _, ok := f[uri]; !ok && len(f) >= most {
		return false
	}
	f[uri] = n
	return true
}

// Settle records what came of the subscription of line n. One that failed is removed, unless a
// later line asks for the same resource. It returns false if the client has unsubscribed meanwhile.
func (f Follows) Settle(uri string, n int64, failed bool) (wanted bool) {
	latest, wanted := f[uri]
	if failed && latest == n {
		delete(f, uri)
	}
	return wanted
}
