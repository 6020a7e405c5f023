package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// maxStanding bounds what is kept to be asked again of a new session. A daemon asks for less.
const maxStanding = 4096

// levelKey is the key of the log level among the standing requests. The others have a URI.
const levelKey = ""

// restoreID is the id of requests that a new session is asked by this client itself. The
// daemon's own ids are numbers.
const restoreID = `"holdline-restore"`

// noting returns an emit that remembers, once the server has granted it, what request m asks
// for until the session ends: a subscription to a resource, or a log level.
func (c *Client) noting(m *message, emit Emit) Emit {
	if m.Kind != jsonrpc.Request || !slices.Contains([]string{mcp.Subscribe, mcp.Unsubscribe, mcp.SetLevel}, m.Method) {
		return emit
	}
	key := levelKey
	if m.Method != mcp.SetLevel {
		key, _ = mcp.String(jsonrpc.Field(m.Params, "uri"))
	}
	return func(line []byte) error {
		answer, err := jsonrpc.Parse(line)
		if err == nil && answer.Kind == jsonrpc.Response && answer.Result != nil && sameID(answer.ID, m.ID) {
			c.mu.Lock()
			switch _, isKnown := c.standing[key]; {
			case m.Method == mcp.Unsubscribe:
				delete(c.standing, key)
			case isKnown || len(c.standing) < maxStanding:
				c.standing[key] = bytes.Clone(m.Params)
			}
			c.mu.Unlock()
		}
		return emit(line)
	}
}

// restore asks the new session s for what the one before had granted. The client may change
// that meanwhile; then the server is told the change again, since it may have seen the two in
// any order. What the server sends besides answers goes to emit, and so does a notice for each
// resource and for all lists: they may have changed while no session was there to say so.
func (c *Client) restore(ctx context.Context, s session, emit Emit) error {
	c.mu.Lock()
	asked := maps.Clone(c.standing)
	c.mu.Unlock()
	for key, params := range asked {
		method := mcp.Subscribe
		if key == levelKey {
			method = mcp.SetLevel
		}
		c.ask(ctx, s, method, params, emit)
		c.mu.Lock()
		now := c.standing[key]
		c.mu.Unlock()
		if now == nil {
			c.ask(ctx, s, mcp.Unsubscribe, mcp.OfResource(key), emit)
		} else if !bytes.Equal(now, params) {
			c.ask(ctx, s, method, now, emit)
		}
		if key == levelKey {
			continue
		}
		if err := emit(jsonrpc.AppendRequest(nil, nil, mcp.ResourceUpdated, mcp.OfResource(key))); err != nil {
			return err
		}
	}
	for _, changed := range []string{mcp.ToolsChanged, mcp.PromptsChanged, mcp.ResourcesChanged} {
		if err := emit(jsonrpc.AppendRequest(nil, nil, changed, nil)); err != nil {
			return err
		}
	}
	return nil
}

// ask makes one request of the client's own, at most for [noteTimeout], and drops the answer.
// If the server does not grant it, that is only logged: calls work without it.
func (c *Client) ask(ctx context.Context, s session, method string, params json.RawMessage, emit Emit) {
	ctx, stop := context.WithTimeout(ctx, noteTimeout)
	defer stop()
	m, err := parse(jsonrpc.AppendRequest(nil, jsonrpc.ID(restoreID), method, params))
	var refusal json.RawMessage
	if err == nil {
		err = c.post(ctx, &m, s, func(line []byte) error {
			if answer, err := jsonrpc.Parse(line); err == nil && sameID(answer.ID, m.ID) {
				refusal = bytes.Clone(answer.Error)
				return nil
			}
			return emit(line)
		})
	}
	if err != nil || refusal != nil {
		c.o.Log.WarnContext(ctx, "a new session lacks what the one before had", "method", method,
			"refusal", string(refusal), "err", err)
	}
}

// isSessionRefusal reports whether the body of status 400 says that the server does not know
// the session. The MCP text wants 404 for that, but servers made after the example of the
// TypeScript SDK answer 400, with an error -32000 that is for no request: they have refused the
// message before they read it. That is a sign and no proof, see [Client.status].
func isSessionRefusal(body []byte) bool {
	answer, err := jsonrpc.Parse(body)
	return err == nil && answer.ID == nil && string(jsonrpc.Field(answer.Error, "code")) == "-32000"
}
