// Package profile describes the client of a session, by its greeting and by its first
// requests in each era.
package profile

import (
	"bytes"
	"encoding/json"

	"holdline/daemon/clienttable"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/project"
)

// Names of the two eras.
const (
	Legacy = "legacy"
	Modern = "modern"
)

// A Profile is what a session knows of its client. It has no lock of its own. The greeting
// fixes Claimed; each request may change the other fields.
type Profile struct {
	Claimed      string          // identity that the greeting gave; "" for none; never changes
	Caller       tool.Caller     // its Client and Identity may change with the first request
	Era          string          // of the latest request; "" before the first
	Capabilities json.RawMessage // that the client declared; nil before it has said anything of them
	Level        string          // of log messages, that the client has set
	Revision     string          // that a legacy client speaks here; "" before its handshake

	wanted string // the most verbose level that a modern request has asked for
}

// New returns the profile of a client that has sent the greeting g; an anonymous client has sent
// none, so g is empty. hash, that of the session, also names the client's process (Caller.Agent)
// until the caller knows better. guest is the socket of the configuration at which the client
// connected, or "": all guests of a socket count as one process, and their working directory is
// their project. For other clients New looks for the project in the file system.
func New(hash string, g *protocol.Greeting, anonymous bool, guest string) Profile {
	p := Profile{Claimed: g.Identity, Caller: tool.Caller{
		Session:  hash,
		Agent:    hash,
		Identity: g.Identity,
		View:     g.View,
		Project:  g.Project,
		Cwd:      g.Cwd,
		Guest:    guest,
		Only:     g.Server,
		Logins:   g.Logins,
	}}
	if guest != "" {
		p.Caller.Root, p.Caller.Agent = g.Cwd, "socket "+guest
	} else {
		p.Caller.Root = project.RootOf(g.Cwd)
	}
	if anonymous {
		p.Caller.Identity = tool.Anonymous
	}
	return p
}

// Learn sets what a request with that method says of the client: its era, its capabilities, its
// name, and the level of log messages that it wants. The first request that gives a name fixes
// the name. It becomes the identity of a client that has claimed none. If reserved returns true
// for it, since that identity needs a token, "unverified:" is put before it. A guest always has
// no capabilities. The caller must hold the session's lock.
func (p *Profile) Learn(method string, params *mcp.Params, modern bool, reserved func(identity string) bool) {
	p.Era = Legacy
	name := params.Client
	if modern {
		p.Era, name = Modern, params.Meta.Client
		if level, ok := mcp.String(params.Meta.Level); ok {
			p.wanted = mcp.Verbose(p.wanted, level)
		}
	}
	initialize := method == mcp.Initialize
	if asked, ok := mcp.String(params.Version); ok && initialize && !modern {
		p.Revision = mcp.Negotiate(asked)
	}
	switch {
	case initialize && !modern && params.Capabilities != nil:
		p.Capabilities = bytes.Clone(params.Capabilities)
	case modern && p.Capabilities == nil:
		p.Capabilities = bytes.Clone(params.Meta.Capabilities)
	case initialize && p.Capabilities == nil:
		p.Capabilities = json.RawMessage("{}") // the client has declared none
	}
	if p.Caller.Guest != "" {
		p.Capabilities = json.RawMessage("{}") // see [ForGuest]
	}
	if p.Caller.Client == "" && name != nil {
		p.learnName(name, reserved)
	}
}

// ForGuest returns the params of a guest's request without the capabilities that it declares and
// without its answers to servers' questions. Servers ask guests nothing: a guest that says which
// directories are its roots could have a server read any file of this machine. It returns params
// itself if they have neither, or if they are not an object. Params with a duplicate key may stay
// as they are: the session refuses them.
func ForGuest(params json.RawMessage) json.RawMessage {
	declared := jsonrpc.Field(jsonrpc.Field(params, "_meta"), mcp.MetaCapabilities)
	if len(declared) <= len("{}") && jsonrpc.Field(params, "inputResponses") == nil {
		return params
	}
	var all, meta map[string]json.RawMessage
	if json.Unmarshal(params, &all) != nil || all == nil {
		return params
	}
	delete(all, "inputResponses")
	if json.Unmarshal(all["_meta"], &meta) == nil && meta[mcp.MetaCapabilities] != nil {
		meta[mcp.MetaCapabilities] = json.RawMessage("{}")
		all["_meta"], _ = json.Marshal(meta) // raw values encode
	}
	kept, _ := json.Marshal(all)
	return kept
}

// ResultForGuest returns the result of a guest's request to t, of that operation. In place of one
// that asks the client for something, or is a task, it returns a fault: servers ask guests nothing,
// and guests have no tasks. A result that is loaded later is looked at then.
func ResultForGuest(t *tool.Remote, operation string, res tool.RemoteResult) (tool.RemoteResult, error) {
	check := func(result json.RawMessage) error {
		if len(result) == 0 || mcp.IsComplete(result) {
			return nil
		}
		f := fault.New(fault.DownstreamFailure, fault.Server, operation,
			"server %s asks its client for something, or makes the call a task: guests are asked nothing, and have no tasks",
			t.Server)
		if t.Contract != tool.Convergent {
			f = f.WithMayHaveActed()
		}
		return f
	}
	if load := res.Load; load != nil {
		res.File = nil // its result would pass unseen
		res.Load = func() (result, failure json.RawMessage, err error) {
			if result, failure, err = load(); err == nil {
				err = check(result)
			}
			if err != nil {
				return nil, nil, err
			}
			return result, failure, nil
		}
	}
	if err := check(res.Result); err != nil {
		return tool.RemoteResult{Replays: res.Replays}, err
	}
	return res, nil
}

// learnName sets the client's name from name, an object of JSON; it does nothing if that has no
// name. If the greeting claimed no identity, the name becomes the identity, with "unverified:"
// before it if the identity needs a token or is that of the client already. An anonymous client
// stays anonymous. The caller must hold the session's lock.
func (p *Profile) learnName(name json.RawMessage, reserved func(identity string) bool) {
	var client mcp.Implementation
	if json.Unmarshal(name, &client) != nil || client.Name == "" {
		return
	}
	client.Name, client.Version = Clip(client.Name), Clip(client.Version)
	p.Caller.Client = client.String()
	if p.Claimed != "" || p.Caller.Identity == tool.Anonymous {
		return
	}
	identity := clienttable.Identity(client.Name)
	if reserved(identity) || identity == p.Caller.Identity {
		identity = "unverified:" + identity
	}
	p.Caller.Identity = identity
}

// MostVerbose returns the most verbose level of log messages that the client has set, or has ever
// asked for in a request; "" for none. The caller must hold the session's lock.
func (p *Profile) MostVerbose() string { return mcp.Verbose(p.Level, p.wanted) }

// Clip returns the first 64 characters of a name that a client made up, or the whole name if it
// has no more.
func Clip(name string) string {
	const most = 64
	if len(name) > most { // in bytes: most names have no more
		if r := []rune(name); len(r) > most {
			return string(r[:most])
		}
	}
	return name
}
