// Package reply writes the answers to a client's requests, each in the form that the
// era of its request wants.
package reply

import (
	"bytes"
	"encoding/json"
	"fmt"

	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// listTTL is how long a modern client may keep a list or a discovery, in
// milliseconds. What the daemon itself offers changes only with its binary.
const listTTL = 60_000

// A Form says how the answer to a request has to look.
type Form struct {
	ID     jsonrpc.ID      // of the request
	Method string          // of the request
	Modern bool            // the request's era
	Info   json.RawMessage // the serverInfo that a modern answer carries
}

// Result returns the line, without its newline, that answers with a result of Holdline's own, an
// object. A modern answer gets what its era requires in it.
func (f *Form) Result(result json.RawMessage) []byte {
	return jsonrpc.AppendResult(nil, f.ID, f.dress(result))
}

// Fault returns the line, without its newline, that answers a request with the fault r: a
// JSON-RPC error or the result of a tool call, as the class of the fault says.
func (f *Form) Fault(r *fault.Record) []byte {
	return mcp.AppendFault(nil, f.ID, f.Method, f.members(), r)
}

// FaultAsResult returns the line, without its newline, that answers the call of a tool with the
// fault r: a result that says so, which a model reads.
func (f *Form) FaultAsResult(r *fault.Record) []byte { return f.Result(tool.EncodeFault(r)) }

// Remote returns the line, without its newline, that answers with the error or result that server
// gave in res, unchanged but for what the eras say differently. If server is "", the answer is
// Holdline's own.
func (f *Form) Remote(server string, res *tool.RemoteResult) []byte {
	failure, result := res.Error, res.Result
	switch {
	case failure != nil:
		if f.Modern {
			failure = mcp.ModernError(failure)
		}
		return jsonrpc.AppendFailure(make([]byte, 0, len(failure)+128), f.ID, failure)
	case server == "":
		result = f.dress(result)
	case f.Modern:
		result = mcp.ModernResult(f.Method, result)
	}
	return jsonrpc.AppendResult(make([]byte, 0, len(result)+128), f.ID, result)
}

// InFile returns a control line, without its newline, that tells the proxy to answer the request
// id with the result that lies in a file: the proxy puts the answer together.
func InFile(id jsonrpc.ID, result protocol.Span) []byte {
	line := string(jsonrpc.AppendResult(nil, id, nil))
	end := len(line) - 1 // of what stands before the result
	m := &protocol.Long{Head: line[:end], Span: result, Tail: line[end:]}
	c := protocol.Append(nil, protocol.Control{Holdline: protocol.Version, Long: m})
	return c[:len(c)-1]
}

// UnknownVersion returns the line, without its newline, that refuses a modern request because
// Holdline does not speak its version of the protocol. The error names the versions that it
// speaks.
func (f *Form) UnknownVersion(version string) []byte {
	data, err := json.Marshal(map[string]any{"supported": []string{mcp.Modern}, "requested": version})
	if err != nil { // strings encode
		data = nil
	}
	return jsonrpc.AppendError(nil, f.ID, mcp.CodeVersion, "unsupported protocol version "+version, data)
}

// dress returns result, an object, with the members that a modern client requires; for a legacy
// one it returns result itself. The result of a call that became a task has a resultType already
// and gets only _meta.
func (f *Form) dress(result json.RawMessage) json.RawMessage {
	switch {
	case !f.Modern:
		return result
	case bytes.HasPrefix(result, []byte(`{"resultType":`)): // a task
		return jsonrpc.Prepend(result, f.meta())
	}
	return jsonrpc.Prepend(result, f.members())
}

// members returns the members that a modern result must carry; "" for a legacy one.
func (f *Form) members() string {
	if !f.Modern {
		return ""
	}
	return `"resultType":"complete",` + f.meta()
}

// meta returns the member _meta of a modern result.
func (f *Form) meta() string { return fmt.Sprintf(`"_meta":{%q:%s}`, mcp.MetaServer, f.Info) }

// Cached says in a modern result how long the client may keep it.
type Cached struct {
	TTL   int64  `json:"ttlMs"`
	Scope string `json:"cacheScope"`
}

// Cacheable returns how long a client may keep a list or a discovery.
func Cacheable() Cached { return Cached{TTL: listTTL, Scope: "private"} }

// List returns the result with one page of a list: entries, under the name member, and cursor,
// that of the next page, unless it is "". A modern one also says how long the client may keep the
// page. The entries are JSON already, so they are only joined: there may be thousands.
func List(member string, entries []json.RawMessage, cursor string, modern bool) json.RawMessage {
	size := 256 // for all but the entries
	for _, e := range entries {
		size += len(e) + len(",")
	}
	b := fmt.Appendf(make([]byte, 0, size), `{%q:[`, member)
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendEntry(b, e)
	}
	b = append(b, ']')
	if cursor != "" {
		b = fmt.Appendf(b, `,"nextCursor":%q`, cursor)
	}
	if modern {
		keep := Cacheable()
		b = fmt.Appendf(b, `,"ttlMs":%d,"cacheScope":%q`, keep.TTL, keep.Scope)
	}
	return append(b, '}')
}

// appendEntry appends an entry of JSON to b, and returns the result. Newlines are removed, since
// b is part of a line; "null" takes the place of an entry that is not valid JSON.
func appendEntry(b []byte, entry json.RawMessage) []byte {
	if bytes.IndexByte(entry, '\n') < 0 {
		return append(b, entry...)
	}
	// It comes from a file that was edited.
	line := bytes.NewBuffer(b)
	if json.Compact(line, entry) != nil {
		return append(b, "null"...) // it was checked when it was read
	}
	return line.Bytes()
}

// About is the result of a handshake, in either era.
type About struct {
	Version      string          `json:"protocolVersion,omitempty"`   // that is spoken; legacy
	Versions     []string        `json:"supportedVersions,omitempty"` // modern
	Capabilities json.RawMessage `json:"capabilities"`
	Info         json.RawMessage `json:"serverInfo"`
	Instructions string          `json:"instructions,omitempty"`
	*Cached                      // modern
}

// NewAbout returns the result of a legacy handshake: what a says, and the version that is spoken
// from now on. It sends nothing.
func NewAbout(version string, a *tool.About) About {
	return About{Version: version, Capabilities: a.Capabilities, Info: a.Info, Instructions: a.Instructions}
}

// NewDiscovery returns the result of a modern discovery: what a says, the versions that Holdline
// speaks, and how long the client may keep the result. It sends nothing.
func NewDiscovery(a *tool.About) About {
	keep := Cacheable()
	about := NewAbout("", a)
	about.Versions, about.Cached = []string{mcp.Modern}, &keep
	return about
}
