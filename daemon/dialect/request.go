package dialect

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/bulk"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Eras of a server.
const (
	Legacy = "legacy"
	Modern = "modern"
)

// An Envelope has what a server needs in each request besides the client's params, and what
// a client of the other era does not send.
type Envelope struct {
	Era  string          // of the server
	Meta json.RawMessage // members of a modern _meta, joined by commas
	Logs bool            // the server has log messages
}

// Meta returns the members of _meta in the daemon's own requests to a modern server,
// with the capabilities that the daemon declares to it.
func Meta(info mcp.Implementation, capabilities json.RawMessage) json.RawMessage {
	client, _ := json.Marshal(info) // strings encode
	return fmt.Appendf(nil, "%q:%q,%q:%s,%q:%s", mcp.MetaVersion, mcp.Modern, mcp.MetaCapabilities, capabilities,
		mcp.MetaClient, client)
}

// OwnParams returns the params of a request of the daemon's own.
func (e *Envelope) OwnParams() json.RawMessage {
	if e.Era != Modern {
		return json.RawMessage("{}")
	}
	return fmt.Appendf(nil, `{"_meta":{%s}}`, e.Meta)
}

// Line returns the line of a client's request as the server has to see it, with these names,
// in parts. Large arguments are the long one: they are not copied.
func (e *Envelope) Line(c *tool.RemoteCall, o *listing.Offer, names *Names) (p bulk.Parts, err error) {
	short, place := *c, ""
	var arguments json.RawMessage
	if len(c.Params) >= bulk.Min {
		arguments = jsonrpc.Field(c.Params, "arguments")
	}
	if len(arguments) >= bulk.Min {
		at := jsonrpc.Offset(c.Params, arguments)
		place = `"` + rand.Text() + `"`
		short.Params = slices.Concat(c.Params[:at], []byte(place), c.Params[at+len(arguments):])
	}
	params, err := e.Params(&short, o, json.RawMessage(names[Token]))
	if err != nil {
		return p, err
	}
	p.Before = append(jsonrpc.AppendRequest(nil, jsonrpc.ID(names[ID]), o.Method, params), '\n')
	if place == "" {
		return p, nil
	}
	p.Long, p.File = arguments, c.Arguments
	p.Before, p.After, _ = bytes.Cut(p.Before, []byte(place))
	return p, nil
}

// Params returns the params of a client's request as the server has to see them:
// with the server's own name for what is asked for, token as progress token if the
// client wants progress, the _meta that a modern server needs, and without the _meta by which a
// modern client describes itself if the server is a legacy one, whose handshake did that. A
// server may refuse a request with another revision than that of its handshake.
func (e *Envelope) Params(c *tool.RemoteCall, o *listing.Offer, token json.RawMessage) (json.RawMessage, error) {
	quoted := jsonrpc.AppendString(nil, o.Own)
	complete := e.Era != Modern || c.Modern // _meta has all that the server needs
	own := string(e.Meta)
	if e.Logs && c.Level != "" {
		own += fmt.Sprintf(",%q:%q", mcp.MetaLevel, c.Level)
	}
	if c.Progress == nil {
		token = nil
	}
	var bad error
	params, err := jsonrpc.Rewrite(c.Params, func(key string, value []byte) []byte {
		switch key {
		case "name":
			if o.Method != mcp.ResourcesRead && o.Method != mcp.Complete {
				return quoted
			}
		case "ref":
			if o.Method == mcp.Complete {
				value, bad = jsonrpc.Replace(value, "name", quoted)
			}
		case "inputResponses", "requestState":
			if c.Modern && e.Era != Modern { // they were for the daemon
				return nil
			}
		case "_meta":
			had := string(value)
			value, err := jsonrpc.Rewrite(value, func(key string, value []byte) []byte {
				switch {
				case key == mcp.MetaProgress:
					return token
				case isEnvelope(key) && (!c.Modern || e.Era != Modern):
					return nil // the server has it from its handshake, or gets it from the daemon
				}
				return value
			})
			bad = errors.Join(bad, err)
			if string(value) == "{}" && e.Era != Modern && had != "{}" {
				return nil // it had nothing else
			}
			if !complete {
				complete = true
				value = jsonrpc.Prepend(value, own)
			}
			return value
		}
		return value
	})
	if err = errors.Join(err, bad); err != nil {
		return nil, err
	}
	if !complete {
		params = jsonrpc.Prepend(params, `"_meta":{`+own+`}`)
	}
	return params, nil
}

// isEnvelope reports whether key is a member of _meta by which a modern client describes itself
// in each request.
func isEnvelope(key string) bool {
	switch key {
	case mcp.MetaVersion, mcp.MetaCapabilities, mcp.MetaClient, mcp.MetaLevel:
		return true
	}
	return false
}

// Repeats returns the params of a tool call with the mark that it may be made twice, or without
// it: a client cannot set it. Params that cannot be read are returned as they are.
func Repeats(params json.RawMessage, repeats bool) json.RawMessage {
	const mark = `"` + mcp.MetaRepeats + `":true`
	if bytes.Contains(params, []byte(mcp.MetaRepeats)) {
		if without, err := replaceMeta(params, mcp.MetaRepeats, nil); err == nil {
			params = without
		}
	}
	meta := jsonrpc.Field(params, "_meta")
	switch {
	case !repeats:
		return params
	case meta == nil:
		return jsonrpc.Prepend(params, `"_meta":{`+mark+`}`)
	}
	marked, err := jsonrpc.Replace(params, "_meta", jsonrpc.Prepend(meta, mark))
	if err != nil {
		return params
	}
	return marked
}

// replaceMeta is [jsonrpc.Replace] for a member of _meta.
func replaceMeta(params []byte, key string, with []byte) ([]byte, error) {
	meta := jsonrpc.Field(params, "_meta")
	if meta == nil {
		return params, nil
	}
	meta, err := jsonrpc.Replace(meta, key, with)
	if err != nil {
		return nil, err
	}
	return jsonrpc.Replace(params, "_meta", meta)
}

// SetToken returns the params of a server's request with another progress token,
// and the server's own token. That is nil, and the params are unchanged, if the
// server wants no progress. Two servers of one session may use equal tokens.
func SetToken(params json.RawMessage, with []byte) (changed, token json.RawMessage) {
	if token = jsonrpc.Field(jsonrpc.Field(params, "_meta"), mcp.MetaProgress); token == nil {
		return params, nil
	}
	changed, err := replaceMeta(params, mcp.MetaProgress, with)
	if err != nil {
		return params, nil
	}
	return changed, append(json.RawMessage(nil), token...)
}

// DropSubscription returns the params of a notification without the id of the
// listen request that it belongs to, which is the daemon's.
func DropSubscription(params json.RawMessage) (json.RawMessage, error) {
	return replaceMeta(params, mcp.MetaSubscription, nil)
}

// AcceptsRootsChanged reports whether a server was promised to be notified of
// changed roots, by the capabilities that it was offered.
func AcceptsRootsChanged(offered json.RawMessage) bool {
	return string(jsonrpc.Field(jsonrpc.Field(offered, "roots"), "listChanged")) == "true"
}
