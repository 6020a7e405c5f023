// Package listen reads and writes what subscriptions/listen of the modern era says on
// the wire: which notifications a client wants, which it gets, and for which request.
package listen

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A Subscription is what one request subscribes to: changes of lists and of resources. It
// has no lock of its own. ID is a copy: the request's line need not stay in memory.
type Subscription struct {
	ID      jsonrpc.ID      // of the request
	Holder  string          // the session's name for it, for hosted servers
	Granted map[string]bool // the changes of lists, by the method of the notification
	URIs    []string        // the resources whose servers have agreed
	Tasks   []string        // the tasks of which the client is notified
	granted []string        // the members of the acknowledgement, for Granted
}

// Parse reads notifications, the member of that name in the params of a request. id is the id of
// the request, n the number of its line. Parse returns the subscription with the changes of lists
// that the client wants, and the resources that it lists. It asks no server: the caller must do
// that, and add the resources that are granted to URIs.
//
// The fault names operation. It is invalid_input for a malformed member, or for a URI that is too
// long, and resource_exhausted for more than most resources; the other results are nil then.
func Parse(id jsonrpc.ID, n int64, operation string, notifications json.RawMessage, most int) (
	*Subscription, []string, *fault.Record,
) {
	invalid := func(format string, args ...any) *fault.Record {
		return fault.New(fault.InvalidInput, fault.Protocol, operation, "params.notifications"+format, args...)
	}
	if notifications == nil || notifications[0] != '{' {
		return nil, nil, invalid(" must be an object")
	}
	var uris []string
	raw := jsonrpc.Field(notifications, "resourceSubscriptions")
	switch {
	case raw != nil && json.Unmarshal(raw, &uris) != nil:
		return nil, nil, invalid(".resourceSubscriptions must be a list of strings")
	case slices.ContainsFunc(uris, func(uri string) bool { return len(uri) > mcp.MaxURI }):
		return nil, nil, invalid(".resourceSubscriptions has a URI of more than %d bytes", mcp.MaxURI)
	case len(uris) > most:
		return nil, nil, fault.New(fault.ResourceExhausted, fault.Protocol, operation,
			"params.notifications.resourceSubscriptions names more than %d resources: ask for fewer", most).
			WithLimit("subscriptions", most, len(uris))
	}
	s := &Subscription{ID: slices.Clone(id), Holder: strconv.FormatInt(n, 10), Granted: map[string]bool{}}
	for _, wish := range []struct{ member, method string }{
		{"toolsListChanged", mcp.ToolsChanged},
		{"promptsListChanged", mcp.PromptsChanged},
		{"resourcesListChanged", mcp.ResourcesChanged},
	} {
		if string(jsonrpc.Field(notifications, wish.member)) == "true" {
			s.Granted[wish.method] = true
			s.granted = append(s.granted, fmt.Sprintf("%q:true", wish.member))
		}
	}
	return s, uris, nil
}

// Acknowledgement returns the notification that lists what the client gets, without a
// newline: the changes of lists, the resources in URIs, and the tasks in Tasks.
func (s *Subscription) Acknowledgement() []byte {
	members := slices.Clip(s.granted)
	add := func(member string, names []string) {
		if list, err := json.Marshal(names); err == nil && len(names) > 0 { // strings encode
			members = append(members, fmt.Sprintf("%q:%s", member, list))
		}
	}
	add("resourceSubscriptions", s.URIs)
	add("taskIds", s.Tasks)
	params := fmt.Appendf(nil, `{"_meta":{%q:%s},"notifications":{%s}}`,
		mcp.MetaSubscription, s.ID, strings.Join(members, ","))
	return jsonrpc.AppendRequest(nil, nil, mcp.Acknowledged, params)
}

// Tag returns a copy of params, those of a notification, with the id of its subscription in
// _meta. It keeps all other members as they are spelled. A _meta that is not an object stays as
// it is. It returns an error if params has a _meta but cannot be rewritten.
func Tag(params json.RawMessage, id jsonrpc.ID) (json.RawMessage, error) {
	ours := fmt.Sprintf("%q:%s", mcp.MetaSubscription, id)
	if jsonrpc.Field(params, "_meta") == nil {
		return jsonrpc.Prepend(params, `"_meta":{`+ours+`}`), nil
	}
	return jsonrpc.Rewrite(params, func(key string, value []byte) []byte {
		if key == "_meta" && value[0] == '{' {
			return jsonrpc.Prepend(value, ours)
		}
		return value
	})
}
