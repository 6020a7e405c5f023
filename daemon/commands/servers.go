package commands

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/hosted"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/project"
)

// commandLine is the identity of the command line.
const commandLine = "cli"

// callerAt returns a command line as a caller, with a random session of its own. A handler
// that uses servers in this session must end it with Servers.Closed, so that its processes
// of scope session end.
func callerAt(w control.Whereabouts) tool.Caller {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return tool.Caller{
		Session: hex.EncodeToString(b[:]), Identity: commandLine, Project: w.Project, Cwd: w.Cwd,
		Root:   project.RootOf(w.Cwd),
		Client: "holdline servers",
	}
}

// handleServer returns the handler of a command about one server; see [Daemon.doServer].
func (d *Daemon) handleServer(do func(ctx context.Context, name string, c tool.Caller) (int, error)) Handler {
	return handle(func(ctx context.Context, p control.ServerParams, _ Progress) (any, error) {
		return d.doServer(ctx, p, do)
	})
}

// doServer calls do with a server that is hosted, and answers with the number of
// processes that do returns. do must start nothing for the caller's own session, which
// doServer does not end: see [holdline/daemon/hosted.Manager.Start].
func (d *Daemon) doServer(
	ctx context.Context, p control.ServerParams, do func(ctx context.Context, name string, c tool.Caller) (int, error),
) (any, error) {
	if err := d.checkHosted(p.Name); err != nil {
		return nil, err
	}
	n, err := do(ctx, p.Name, callerAt(p.Whereabouts))
	return control.ServerAnswer{Processes: n}, err
}

// checkHosted returns nil if a server is hosted. Otherwise it returns an invalid_input fault
// that says why it is not, and what the user can do.
func (d *Daemon) checkHosted(name string) error {
	cfg := d.File.Current()
	s, ok := cfg.Server(name)
	switch err := s.Unusable(); {
	case err != nil:
		return fault.New(fault.InvalidInput, fault.Host, "server:"+name, "server %s cannot be used: %v", name, err)
	case !ok:
		return fault.New(fault.InvalidInput, fault.Host, "server:"+name, "%v", config.NoServer(name, cfg))
	case !s.Enabled:
		return fault.New(fault.InvalidInput, fault.Host, "server:"+name,
			"server %s is disabled: holdline servers enable %s", name, name)
	}
	return nil
}

// restartServer restarts a server; to refresh it, by its launcher. If that cannot start the server, as without a
// network, the next start is by what was known before.
func (d *Daemon) restartServer(ctx context.Context, p control.ServerParams, _ Progress) (any, error) {
	if !p.Refresh {
		return d.doServer(ctx, p, d.Servers.Restart)
	}
	var answer any
	remember, err := d.Leaves.Forget(p.Name)
	if err == nil {
		answer, err = d.doServer(ctx, p, d.Servers.Restart)
	}
	if err != nil {
		if err := remember(); err != nil {
			d.Log.WarnContext(ctx, "how a server was started before is forgotten", "server", p.Name, "err", err)
		}
	}
	return answer, err
}

// reloadServer reads the configuration, and restarts one server with its present entry. It
// waits until servers whose entries were edited are replaced. If that fails for this server
// it goes on as it was, and the answer is the reason.
func (d *Daemon) reloadServer(ctx context.Context, p control.ServerParams, _ Progress) (any, error) {
	if _, err := d.File.Reload(ctx); err != nil {
		return nil, refusedFile(err)
	}
	failed, _ := d.Servers.Replaced(ctx)
	if err := failed[p.Name]; err != nil {
		return nil, err
	}
	if !p.Idle {
		return d.doServer(ctx, p, d.Servers.Restart)
	}
	answer, err := d.doServer(ctx, p, d.Servers.RestartIdle)
	if errors.Is(err, hosted.ErrBusy) {
		return control.ServerAnswer{Busy: true}, nil
	}
	return answer, err
}

// listTools answers with the tools of one server, or of all that the command line sees, as
// they were pinned and as they are now. Servers that have never listed are started for it.
func (d *Daemon) listTools(ctx context.Context, p control.ServerParams, _ Progress) (any, error) {
	if p.Name != "" {
		if err := d.checkHosted(p.Name); err != nil {
			return nil, err
		}
	}
	caller := callerAt(p.Whereabouts)
	defer d.Servers.Closed(caller.Session, "")
	all, err := d.Servers.Offers(ctx, caller, p.Name)
	return control.ServerToolsAnswer{Servers: all}, err
}

// acceptTools pins the tools of a server as they are now, so that they are no longer shown
// as changed, or blocked.
func (d *Daemon) acceptTools(ctx context.Context, p control.ServerParams, _ Progress) (any, error) {
	if err := d.checkHosted(p.Name); err != nil {
		return nil, err
	}
	caller := callerAt(p.Whereabouts)
	defer d.Servers.Closed(caller.Session, "")
	accepted, err := d.Servers.Accept(ctx, caller, p.Name)
	if err != nil {
		return nil, err
	}
	d.Log.InfoContext(ctx, "tools accepted as they are", "server", p.Name, "tools", accepted)
	return control.ServerAcceptAnswer{Server: p.Name, Tools: accepted}, nil
}

// callTool calls a tool for the command line. It counts and logs the call as sessions do,
// also if it is refused. If there may be no such tool, it is counted as unknown: names that
// a user has invented must not fill the counters.
func (d *Daemon) callTool(ctx context.Context, p control.ServerCallParams, progress Progress) (any, error) {
	if err := d.checkHosted(p.Server); err != nil {
		return nil, err
	}
	own := strings.TrimPrefix(p.Tool, p.Server+"__")
	caller := callerAt(p.Whereabouts)
	defer d.Servers.Closed(caller.Session, "")
	begin := time.Now()
	res, err := d.routeCall(ctx, caller, &p, progress)
	var f *fault.Record
	if err != nil {
		f = fault.From(err, fault.Host, mcp.ToolsCall+":"+p.Tool)
		own = "(unknown)" // there may be no such tool
	}
	took := time.Since(begin)
	d.Telemetry.Request(telemetry.Operation{Method: mcp.ToolsCall, Server: p.Server, Tool: own}, took, res.Replays, f)
	d.Telemetry.ToolCall(telemetry.Call{
		Session: caller.Session, Identity: caller.Identity, Client: caller.Client, Project: caller.Project,
		Root:      caller.Root,
		RequestID: "1", Tool: p.Server + "__" + own, Server: p.Server, Cache: res.Cache, Arguments: p.Arguments,
		Took: took, Replays: res.Replays, Fault: f,
	})
	if err != nil {
		return nil, err
	}
	return control.ServerCallAnswer{Result: res.Result, Error: res.Error}, nil
}

// routeCall finds a tool, checks that the command line may use it, and calls it. It checks
// twice: by the name that was given, so that no server is started for a tool that is
// certainly denied, and by the server's own name once that is known. Progress is passed on
// as lines for people.
func (d *Daemon) routeCall(
	ctx context.Context, caller tool.Caller, p *control.ServerCallParams, progress Progress,
) (tool.RemoteResult, error) {
	if err := d.Rules.CheckShown(caller.Who(), p.Server, p.Tool); err != nil {
		return tool.RemoteResult{}, err
	}
	t, err := d.Servers.Tool(ctx, caller, p.Server, p.Tool)
	if err == nil {
		err = d.Rules.Check(caller.Who(), t.Server, t.Names...)
	}
	if err != nil {
		return tool.RemoteResult{}, err
	}
	arguments := p.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage(`{}`)
	}
	raw, err := json.Marshal(map[string]any{
		"name": t.Name, "arguments": arguments, "_meta": map[string]any{mcp.MetaProgress: 1},
	})
	if err != nil {
		return tool.RemoteResult{}, fault.New(fault.InvalidInput, fault.Protocol, mcp.ToolsCall+":"+t.Name,
			"arguments: %v", err)
	}
	res, err := t.Handle(ctx, tool.RemoteCall{
		Caller: caller, N: 1, ID: "1", Params: raw,
		Progress: func(params json.RawMessage) { progress(control.Progress{Message: formatProgress(params)}) },
	})
	if err == nil && res.Load != nil {
		res.Result, res.Error, err = res.Load()
	}
	return res, err
}

// formatProgress returns the params of a progress notification as a line for people, such as
// "2 of 3: reading".
func formatProgress(params json.RawMessage) string {
	words := string(jsonrpc.Field(params, "progress"))
	if total := jsonrpc.Field(params, "total"); total != nil {
		words = fmt.Sprintf("%s of %s", words, total)
	}
	if message, ok := mcp.String(jsonrpc.Field(params, "message")); ok {
		words += ": " + message
	}
	return words
}

// serverLogs answers with what the processes of a server, or of all, wrote to stderr since the last
// answer, and with the fault of the process that ended last. Of a server that is disabled there is
// only the log of its last process.
func (d *Daemon) serverLogs(_ context.Context, p control.ServerLogsParams, _ Progress) (any, error) {
	if p.Name != "" {
		if err := d.checkHosted(p.Name); err != nil {
			if _, ok := d.File.Current().Server(p.Name); ok && p.Ended {
				if l := d.Servers.LastLog(p.Name, p.SinceMS); l != nil {
					return control.ServerLogsAnswer{Logs: []control.ServerLog{*l}, Disabled: true}, nil
				}
			}
			return nil, err
		}
	}
	logs, last, err := d.Servers.Logs(&p)
	return control.ServerLogsAnswer{Logs: logs, Last: last}, err
}
