package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"holdline/daemon/config"
	dcontrol "holdline/daemon/control"
	"holdline/daemon/listing"
	"holdline/daemon/session"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// commandLine is the identity of the command line.
const commandLine = "cli"

// callerAt is a command line as a caller, with a session of its own, which the
// servers must be told to be over.
func callerAt(w control.Whereabouts) tool.Caller {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return tool.Caller{
		Session: hex.EncodeToString(b[:]), Identity: commandLine, Project: w.Project, Cwd: w.Cwd, Root: session.ProjectRoot(w.Cwd),
		Client: "holdline servers",
	}
}

// oneServer handles a command about one server.
func (l *life) oneServer(do func(ctx context.Context, name string, c tool.Caller) (int, error)) dcontrol.Handler {
	return func(ctx context.Context, params json.RawMessage, _ func(control.Progress)) (any, error) {
		var p control.ServerParams
		if err := decode(params, &p); err != nil {
			return nil, err
		}
		if err := l.hosts(p.Name); err != nil {
			return nil, err
		}
		n, err := do(ctx, p.Name, callerAt(p.Whereabouts))
		return control.ServerAnswer{Processes: n}, err
	}
}

// hosts says why a server that the configuration names is not hosted.
func (l *life) hosts(name string) error {
	s, ok := l.config.Load().Server(name)
	switch {
	case !ok:
		return fault.New(fault.InvalidInput, fault.Host, "server:"+name,
			"server %q is not configured in %s: holdline servers list shows those that are", name, *l.file.Load())
	case !s.Enabled:
		return fault.New(fault.InvalidInput, fault.Host, "server:"+name, "server %s is disabled: holdline servers enable %s", name, name)
	case s.Transport == config.SSE:
		return fault.New(fault.InvalidInput, fault.Host, "server:"+name,
			"server %s has the transport sse, which is not spoken; most such servers speak http, too", name)
	}
	return nil
}

// refusedFile says that the configuration is not used.
func refusedFile(err error) error {
	return fault.New(fault.InvalidInput, fault.Host, control.Reload, "%v", err)
}

// reloadServer reads the configuration, and starts one server anew with what it
// says now.
func (l *life) reloadServer(ctx context.Context, params json.RawMessage, progress func(control.Progress)) (any, error) {
	if _, err := l.reload(ctx); err != nil {
		return nil, refusedFile(err)
	}
	if failed, _ := l.servers.Replaced(ctx); len(failed) > 0 {
		var p control.ServerParams
		if err := decode(params, &p); err != nil {
			return nil, err
		}
		if err := failed[p.Name]; err != nil {
			return nil, err
		}
	}
	return l.oneServer(l.servers.Restart)(ctx, params, progress)
}

// serverTools lists what servers offer.
func (l *life) serverTools(ctx context.Context, params json.RawMessage, _ func(control.Progress)) (any, error) {
	var p control.ServerParams
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	if p.Name != "" {
		if err := l.hosts(p.Name); err != nil {
			return nil, err
		}
	}
	caller := callerAt(p.Whereabouts)
	defer l.servers.Closed(caller.Session, "")
	all, err := l.servers.Offers(ctx, caller, p.Name)
	if err != nil {
		return nil, err
	}
	answer := control.ServerToolsAnswer{Servers: []control.ServerOffers{}}
	for _, one := range all {
		offers := control.ServerOffers{Server: one.Server, Tools: []control.ServerTool{}, Fault: one.Fault}
		for _, t := range one.Tools {
			offers.Tools = append(offers.Tools, control.ServerTool{
				Name: t.Name, Exposed: t.Exposed, Contract: string(t.Contract), Listing: t.Listing, Pinned: pinView(t.Pinned), Changed: t.Pinned.Changed(), Blocked: t.Blocked,
			})
		}
		answer.Servers = append(answer.Servers, offers)
	}
	return answer, nil
}

// pinView is a tool's pin as the command line gets it.
func pinView(p *listing.Pin) *control.ServerPin {
	if p == nil {
		return nil
	}
	v := &control.ServerPin{Hash: p.Hash, Description: p.Description, SinceMS: p.SinceMS}
	if p.Change != nil {
		c := control.ServerToolChange(*p.Change)
		v.Change = &c
	}
	return v
}

// acceptTools pins the tools of a server as they are now.
func (l *life) acceptTools(ctx context.Context, params json.RawMessage, _ func(control.Progress)) (any, error) {
	var p control.ServerParams
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	if err := l.hosts(p.Name); err != nil {
		return nil, err
	}
	caller := callerAt(p.Whereabouts)
	defer l.servers.Closed(caller.Session, "")
	accepted, err := l.servers.Accept(ctx, caller, p.Name)
	if err != nil {
		return nil, err
	}
	l.Log.InfoContext(ctx, "tools accepted as they are", "server", p.Name, "tools", accepted)
	return control.ServerAcceptAnswer{Server: p.Name, Tools: accepted}, nil
}

// callServer is a call of a tool from the command line.
func (l *life) callServer(ctx context.Context, params json.RawMessage, progress func(control.Progress)) (any, error) {
	var p control.ServerCallParams
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	if err := l.hosts(p.Server); err != nil {
		return nil, err
	}
	own := strings.TrimPrefix(p.Tool, p.Server+"__")
	caller := callerAt(p.Whereabouts)
	defer l.servers.Closed(caller.Session, "")
	begin := time.Now()
	res, err := l.callTool(ctx, caller, &p, progress)
	var f *fault.Record
	if err != nil {
		f = fault.From(err, fault.Host, mcp.ToolsCall+":"+p.Tool)
	}
	told := recorder{l.telemetry}
	if err != nil {
		own = "(unknown)" // there may be no such tool
	}
	told.Request(mcp.ToolsCall, p.Server, own, time.Since(begin), res.Replays, f)
	told.ToolCall(session.ToolCall{
		Caller: caller, RequestID: "1", Tool: p.Server + "__" + own, Server: p.Server, Cache: res.Cache, Arguments: p.Arguments,
		Took: time.Since(begin), Replays: res.Replays, Fault: f,
	})
	if err != nil {
		return nil, err
	}
	return control.ServerCallAnswer{Result: res.Result, Error: res.Error}, nil
}

func (l *life) callTool(ctx context.Context, caller tool.Caller, p *control.ServerCallParams, progress func(control.Progress)) (tool.RemoteResult, error) {
	may := rules{&l.config}
	if err := may.CheckShown(caller.Identity, p.Server, p.Tool); err != nil {
		return tool.RemoteResult{}, err
	}
	t, err := l.servers.Tool(ctx, caller, p.Server, p.Tool)
	if err == nil {
		err = may.Check(caller.Identity, t.Server, t.Names...)
	}
	if err != nil {
		return tool.RemoteResult{}, err
	}
	raw, err := json.Marshal(map[string]any{
		"name": t.Name, "arguments": orEmpty(p.Arguments), "_meta": map[string]any{mcp.MetaProgress: 1},
	})
	if err != nil {
		return tool.RemoteResult{}, fault.New(fault.InvalidInput, fault.Protocol, mcp.ToolsCall+":"+t.Name, "arguments: %v", err)
	}
	return t.Handle(ctx, tool.RemoteCall{
		Caller: caller, N: 1, ID: "1", Params: raw,
		Progress: func(params json.RawMessage) { progress(control.Progress{Message: progressWords(params)}) },
	})
}

func orEmpty(arguments json.RawMessage) json.RawMessage {
	if len(arguments) == 0 {
		return json.RawMessage(`{}`)
	}
	return arguments
}

// progressWords are a progress notification for people.
func progressWords(params json.RawMessage) string {
	words := string(jsonrpc.Field(params, "progress"))
	if total := jsonrpc.Field(params, "total"); total != nil {
		words = fmt.Sprintf("%s of %s", words, total)
	}
	if message, ok := mcp.String(jsonrpc.Field(params, "message")); ok {
		words += ": " + message
	}
	return words
}

// serverLogs is what the processes of a server wrote to stderr.
func (l *life) serverLogs(_ context.Context, params json.RawMessage, _ func(control.Progress)) (any, error) {
	var p control.ServerLogsParams
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	if err := l.hosts(p.Name); err != nil {
		return nil, err
	}
	logs, last, err := l.servers.Logs(p.Name, p.After, p.Follow)
	if err != nil {
		return nil, err
	}
	answer := control.ServerLogsAnswer{Logs: []control.ServerLog{}, Last: last}
	for _, one := range logs {
		answer.Logs = append(answer.Logs, control.ServerLog(one))
	}
	return answer, nil
}
