package asklogin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdline/daemon/dialect"
	"holdline/daemon/hosted/question"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

const (
	// statePrefix begins the requestState with which a modern client repeats a call after it
	// was asked; the id of the login follows.
	statePrefix = "login:"
	// inputName is the name of the one request in that answer.
	inputName = "login"
	// codeURLNeeded is the JSON-RPC error by which a legacy client learns which addresses its
	// person has to visit before it makes the call again.
	codeURLNeeded = -32042
	// completeNote tells a legacy client that this was done.
	completeNote = "notifications/elicitation/complete"
)

// Call makes a call of a server by call, for the session with that client. If the call fails
// since no user has logged in, and the client can ask its person, the result asks for that;
// the fault is in it, for telemetry. Any other client gets the fault.
//
// A modern client repeats its call then. If its person has agreed, Call first waits for the
// login, and waited is true; call gets the request without what was for us.
func (a *Asker) Call(
	ctx context.Context, server string, client func() tool.Client, rc *tool.RemoteCall,
	call func(rc *tool.RemoteCall, waited bool) (tool.RemoteResult, error),
) (tool.RemoteResult, error) {
	if a == nil {
		return call(rc, false)
	}
	rc, waited, mayAsk, err := a.resume(ctx, rc)
	if err != nil {
		return tool.RemoteResult{}, err
	}
	res, err := call(rc, waited)
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || !mayAsk || f.Reason() != fault.NotLoggedIn {
		return res, err
	}
	c := client()
	if c == nil || !takesURLs(rc, c) {
		return res, err
	}
	l := a.open(ctx, server)
	if l == nil {
		return res, err
	}
	asked := params{
		Mode: "url", URL: l.url,
		Message: "The server " + server + " needs a login. Open this address on this machine, and log in there.",
	}
	if rc.Modern {
		q := question.Question{ID: inputName, Method: "elicitation/create", Params: jsonrpc.Encode(asked)}
		res.Result, err = question.Required([]*question.Question{&q}, statePrefix+l.id)
		res.Fault = f
		return res, err
	}
	asked.ID = l.id
	a.notify(l, c, rc.Caller.Session)
	return tool.RemoteResult{Fault: f, Error: jsonrpc.Encode(failure{
		codeURLNeeded, f.Fault.Detail,
		jsonrpc.Prepend(f.JSON(), `"elicitations":[`+string(jsonrpc.Encode(asked))+`]`),
	})}, nil
}

// params are those of a request that a client opens an address for its person.
type params struct {
	Mode    string `json:"mode"`
	ID      string `json:"elicitationId,omitempty"` // for legacy clients
	URL     string `json:"url"`
	Message string `json:"message"`
}

// failure is an error of JSON-RPC.
type failure struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// takesURLs reports whether the client of a request has declared that it shows addresses to
// its person.
func takesURLs(rc *tool.RemoteCall, c tool.Client) bool {
	declared := c.Capabilities()
	if rc.Modern {
		declared = jsonrpc.Field(jsonrpc.Field(rc.Params, "_meta"), mcp.MetaCapabilities)
	}
	url := jsonrpc.Field(jsonrpc.Field(declared, "elicitation"), "url")
	return len(url) > 0 && url[0] == '{'
}

// notify makes the client of a session hear of a login.
func (a *Asker) notify(l *login, c tool.Client, session string) {
	note := jsonrpc.AppendRequest(nil, nil, completeNote, fmt.Appendf(nil, `{"elicitationId":%q}`, l.id))
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.tell != nil {
		l.tell[session] = func() { c.Ask(note) }
	}
}

// resume takes the answer of the client's person out of a request that repeats a call, and
// waits for the login if the person has agreed to it. mayAsk is false if the client was asked
// already, or has other answers in the request, which a result of ours would make it forget.
// A login that this daemon does not know ended with an earlier one: the client may be asked again.
func (a *Asker) resume(ctx context.Context, rc *tool.RemoteCall) (_ *tool.RemoteCall, waited, mayAsk bool, err error) {
	if !rc.Modern {
		return rc, false, true, nil
	}
	state, _ := mcp.String(jsonrpc.Field(rc.Params, "requestState"))
	id, ours := strings.CutPrefix(state, statePrefix)
	if !ours {
		return rc, false, !dialect.IsRetry(rc.Params), nil
	}
	answer := jsonrpc.Field(jsonrpc.Field(rc.Params, "inputResponses"), inputName)
	action, _ := mcp.String(jsonrpc.Field(answer, "action"))
	own := *rc
	own.Params, err = jsonrpc.Rewrite(rc.Params, func(key string, value []byte) []byte {
		if key == "inputResponses" || key == "requestState" {
			return nil
		}
		return value
	})
	if err != nil { // the session has parsed them
		return nil, false, false, fault.New(fault.InvalidInput, fault.Protocol, mcp.ToolsCall, "params: %v", err)
	}
	l := a.find(id)
	if action != "accept" || l == nil {
		return &own, false, action == "accept", nil
	}
	limit := time.NewTimer(waitTime)
	defer limit.Stop()
	select {
	case <-l.over:
	case <-limit.C:
	case <-ctx.Done():
		return nil, false, false, context.Cause(ctx)
	}
	own.Sent = time.Now() // the time of the person is not the server's
	return &own, true, false, nil
}
