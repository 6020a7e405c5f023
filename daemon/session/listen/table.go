package listen

import (
	"fmt"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A Table has the open subscriptions of a modern client, by the ids of their requests. It has no
// lock of its own.
type Table map[string]*Subscription

// Add adds a subscription, in place of one whose request has the same id. The caller must hold
// the session's lock.
func (t Table) Add(l *Subscription) { t[l.ID.Key()] = l }

// Remove removes a subscription. It does nothing if it is not in the table, or if another one has
// taken its id. The caller must hold the session's lock.
func (t Table) Remove(l *Subscription) {
	if key := l.ID.Key(); t[key] == l {
		delete(t, key)
	}
}

// OfHolder returns the id of the request whose subscription has holder as its name; nil if there
// is none. The caller must hold the session's lock.
func (t Table) OfHolder(holder string) (id jsonrpc.ID) {
	for _, l := range t {
		if l.Holder == holder {
			id = l.ID
		}
	}
	return id
}

// Changed returns the notifications that announce the change of a list, each a line without its
// newline: one for each subscription to that list. method is that of the notification. It sends
// nothing. The caller must hold the session's lock.
func (t Table) Changed(method string) (lines [][]byte) {
	for _, l := range t {
		if l.Granted[method] {
			params := fmt.Appendf(nil, `{"_meta":{%q:%s}}`, mcp.MetaSubscription, l.ID)
			lines = append(lines, jsonrpc.AppendRequest(nil, nil, method, params))
		}
	}
	return lines
}

// Follows has the resources to which a legacy client subscribes, with the latest lines that ask
// for them. It has no lock of its own.
type Follows map[string]int64

// Add records that line n subscribes to a resource, and returns true. A resource that is there
// already gets n as its latest line. If the resource would be one more than most, Add records
// nothing and returns false. The caller must hold the session's lock.
func (f Follows) Add(uri string, n int64, most int) bool {
	if _, ok := f[uri]; !ok && len(f) >= most {
		return false
	}
	f[uri] = n
	return true
}

// Settle records whether the subscription of line n has failed. One that failed is removed,
// unless a later line asks for the same resource. It returns false if the client has unsubscribed
// meanwhile, else true, even for one that failed. The caller must hold the session's lock.
func (f Follows) Settle(uri string, n int64, failed bool) (wanted bool) {
	latest, wanted := f[uri]
	if failed && latest == n {
		delete(f, uri)
	}
	return wanted
}
