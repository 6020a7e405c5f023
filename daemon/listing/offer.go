package listing

import (
	"context"
	"encoding/json"
	"fmt"

	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// An Offer is one tool, prompt, resource or template of a server. It does not change
// once it is made, so sessions share it without a lock.
type Offer struct {
	Remote tool.Remote // as sessions call it
	Method string      // of the request that uses it
	Own    string      // name or URI with which the server knows it
	Alone  string      // name in a session for this server only; "" for resources
	Hash   string      // of a tool, as [Pins] compare it
	Raw    json.RawMessage
	Plain  json.RawMessage // Raw under the name Alone
}

// Operation names a use of the offer in fault records.
func (o *Offer) Operation() string {
	if o.Method != mcp.ToolsCall {
		return o.Method
	}
	return mcp.ToolsCall + ":" + o.Remote.Name
}

// Handler makes a call of an offer.
type Handler func(ctx context.Context, o *Offer, rc *tool.RemoteCall) (tool.RemoteResult, error)

// Bind makes handle the handler of the offer's Remote. Call it before the offer is
// shared.
func (o *Offer) Bind(handle Handler) {
	o.Remote.Handle = func(ctx context.Context, rc tool.RemoteCall) (tool.RemoteResult, error) {
		return handle(ctx, o, &rc)
	}
}

// Completion returns the offer to complete arguments of o, which is a prompt or a
// resource. It is convergent: a completion may run again.
func (o *Offer) Completion(handle Handler) *Offer {
	c := &Offer{Own: o.Own, Method: mcp.Complete}
	c.Remote = tool.Remote{
		Name: o.Remote.Name, Server: o.Remote.Server, Names: o.Remote.Names,
		Contract: tool.Convergent, Unlisted: o.Remote.Unlisted,
	}
	c.Bind(handle)
	return c
}

// A Source makes offers of a server's listings, by the configuration of one moment.
// After a change, [Offering.Remake] makes them again by another source.
type Source struct {
	Server   string
	Offers   func(names ...string) bool         // reports whether any session may see the entry; nil means all
	Contract func(own string) tool.Contract     // the operator's setting for a tool, or ""; may be nil
	Handle   Handler                            // of each offer
	Warn     func(kind string, malformed error) // an entry was left out
}

// Recalled returns an offer of what was called by its own name and a request of that method, and
// may not be listed any more. repeats says that it was convergent.
func (s *Source) Recalled(method, own string, repeats bool) *Offer {
	o := &Offer{Own: own, Method: method}
	o.Remote = tool.Remote{Name: tool.Shown(s.Server, own), Server: s.Server, Contract: tool.NeverReplay}
	if method != mcp.ToolsCall {
		o.Remote.Name, o.Remote.Names = own, []string{own}
	}
	if repeats {
		o.Remote.Contract = tool.Convergent
	}
	o.Bind(s.Handle)
	return o
}

// offer makes the offer of one listing. It returns nil if no session may see it.
func (s *Source) offer(k Kind, listing json.RawMessage) (*Offer, error) {
	how := k.MCP()
	own, ok := mcp.String(jsonrpc.Field(listing, how.Key))
	if !ok {
		return nil, fmt.Errorf("%s is no string", how.Key)
	}
	if s.Offers != nil && !s.Offers(own) {
		return nil, nil //nolint:nilnil // it does not exist for sessions
	}
	o := &Offer{Own: own, Method: how.Use, Raw: listing, Plain: listing}
	o.Remote = tool.Remote{Name: own, Server: s.Server, Names: []string{own}, Contract: tool.Convergent}
	o.Bind(s.Handle)
	if !k.prefixed() {
		return o, nil
	}
	o.Remote.Name = tool.Shown(s.Server, own)
	o.Alone = tool.ShownAlone(s.Server, own)
	var annotated tool.Contract // only tools have one
	if k == Tools {
		o.Hash = Likenesses([]json.RawMessage{listing})[0].hash
		o.Remote.Contract = s.contract(own, listing)
		annotated = o.Remote.Contract
	}
	var err error
	if o.Raw, err = shown(listing, o.Remote.Name, annotated); err == nil && (k == Tools || o.Alone != own) {
		o.Plain, err = shown(listing, o.Alone, annotated)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// shown returns a listing as clients see it: with another name and, of a tool,
// with its contract, which stands where Holdline's own tools have theirs.
func shown(listing json.RawMessage, name string, contract tool.Contract) (json.RawMessage, error) {
	note := fmt.Sprintf(`"holdline":{"replayContract":%q}`, contract)
	annotated := contract == ""
	out, err := jsonrpc.Rewrite(listing, func(key string, value []byte) []byte {
		switch {
		case key == "name":
			return jsonrpc.AppendString(nil, name)
		case key == "annotations" && contract != "":
			annotated = true
			return annotate(value, note)
		}
		return value
	})
	if err == nil && !annotated {
		out = jsonrpc.Prepend(out, `"annotations":{`+note+`}`)
	}
	return out, err
}

// annotate returns the annotations of a tool with Holdline's note in them. A
// value that is not an object is returned as it is.
func annotate(annotations []byte, note string) []byte {
	if len(annotations) == 0 || annotations[0] != '{' {
		return annotations
	}
	out, err := jsonrpc.Replace(annotations, "holdline", nil) // the server may be a Holdline, too
	if err != nil {
		return annotations
	}
	return jsonrpc.Prepend(out, note)
}

// contract returns the replay contract of a tool: the operator's setting, else what
// its listing says, else never_replay. A server that says nothing must not have a
// call made twice.
func (s *Source) contract(name string, listing json.RawMessage) tool.Contract {
	if s.Contract != nil {
		if c := s.Contract(name); c != "" {
			return c
		}
	}
	if effect := jsonrpc.Field(jsonrpc.Field(listing, "_meta"), mcp.MetaEffect); effect != nil {
		// "deduplicated" and "queryable" count as never_replay: they need an
		// idempotency key, which only some calls have.
		if kind, _ := mcp.String(jsonrpc.Field(jsonrpc.Field(effect, "recovery"), "kind")); kind == "replay_safe" {
			return tool.Convergent
		}
		return tool.NeverReplay
	}
	hints := jsonrpc.Field(listing, "annotations")
	for _, hint := range []string{"readOnlyHint", "idempotentHint"} {
		if string(jsonrpc.Field(hints, hint)) == "true" {
			return tool.Convergent
		}
	}
	return tool.NeverReplay
}
