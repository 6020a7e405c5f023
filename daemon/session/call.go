package session

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/session/age"
	"holdline/daemon/session/crew"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/profile"
	"holdline/daemon/session/reply"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// findTarget returns the target that answers a request. It may block for a while. An
// error is a fault, which may come with a target: one that the session may not use.
type findTarget func(ctx context.Context) (*tool.Remote, error)

// beginCall begins a call of one of the daemon's own tools or of a hosted server's. It answers with
// a fault at once if the name is not a string or the arguments are not an object. Else a goroutine
// of calls makes the call and answers r, as [session.pursue] says.
func (s *session) beginCall(ctx context.Context, r *request, calls *crew.Crew) {
	who, catalog := s.who(), s.srv.o.Catalog
	r.args = r.file.Part(r.msg.Params, r.params.Arguments)
	var ok bool
	if r.tool, ok = mcp.String(r.params.Name); !ok {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "params.name must be a string"))
		return
	}
	own := catalog.Own(&who, r.tool)
	indirect := catalog.Indirect(&who, r.tool)
	if own == nil && indirect != nil && s.srv.o.Executors.Recorded(s.hash, r.n) {
		own = indirect // it was offered when the call was begun
	}
	if own == nil {
		s.pursue(ctx, r, calls, func(ctx context.Context) (*tool.Remote, error) {
			return catalog.Find(ctx, s.who(), r.tool)
		})
		return
	}
	r.target = own.Remote()
	args := r.params.Arguments
	switch {
	case own.Tool.Inner != nil:
		s.callInner(ctx, r, own, calls)
	case args != nil && string(args) != "null" && args[0] != '{':
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(),
			"params.arguments must be an object"))
	default:
		s.pursue(ctx, r, calls, func(context.Context) (*tool.Remote, error) { return own.Remote(), nil })
	}
}

// callInner begins the call of the hosted server's tool that the arguments of r name; own is the
// tool that was called, call_tool. It replaces the arguments in r by those of the inner call. A
// goroutine of calls answers r, with a fault if the arguments are malformed.
func (s *session) callInner(ctx context.Context, r *request, own *tool.Prepared, calls *crew.Crew) {
	r.inner = true
	in, err := own.Tool.Inner(r.params.Arguments)
	if err == nil {
		r.params.Arguments, r.args = in.Arguments, r.file.Part(r.msg.Params, in.Arguments)
		r.msg.Params, err = jsonrpc.Replace(r.msg.Params, "arguments", in.Arguments)
	}
	s.pursue(ctx, r, calls, func(ctx context.Context) (*tool.Remote, error) {
		if err != nil {
			return nil, fault.New(fault.InvalidInput, fault.Host, r.operation(), "%v", err)
		}
		return s.srv.o.Catalog.Inner(ctx, s.who(), in)
	})
}

// routeRequest passes a request for a prompt, a resource or a completion to the hosted server that
// offers it. A goroutine of calls answers r, with an unknown_method or invalid_input fault if none.
func (s *session) routeRequest(ctx context.Context, r *request, calls *crew.Crew) {
	s.pursue(ctx, r, calls, func(ctx context.Context) (*tool.Remote, error) {
		to, ok, err := s.srv.o.Catalog.Route(ctx, s.who(), r.msg.Method, r.msg.Params)
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return nil, fault.New(fault.UnknownMethod, fault.Protocol, r.operation(), "unknown method %q", r.msg.Method)
		case to == nil:
			return nil, fault.New(fault.InvalidInput, fault.Host, r.operation(),
				"no hosted server offers what is asked for")
		}
		return to, nil
	})
}

// pursue calls the target that find returns, in a goroutine of calls, and returns at once. The
// goroutine counts and logs the call, and queues the answer, or a fault if find or the target
// failed, but nothing if the client has cancelled r or the session ends. At the client's limit of
// calls in flight it gets a fault, and find is not called. Stored answers wait for takeTurn.
func (s *session) pursue(ctx context.Context, r *request, calls *crew.Crew, find findTarget) {
	var of struct { // what the two functions share
		args          json.RawMessage
		res           tool.RemoteResult
		err           error
		found, stored bool
		long          []byte
		done          func() // ends the turn; nil without one
		room          int    // of a guest's room
	}
	of.args = r.params.Arguments
	s.startWork(ctx, r, calls, func(ctx context.Context) error {
		of.res, of.found, of.err = s.callTarget(ctx, r, find)
		faultpoint.At("session.pursued")
		of.stored = of.err == nil && of.res.Load != nil
		if of.long = s.longLine(r, &of.res); of.stored && of.long == nil {
			if of.done, of.err = s.takeTurn(ctx, &of.room, int(of.res.Size)); of.err == nil {
				of.res.Result, of.res.Error, of.err = of.res.Load()
			} else {
				of.done = nil
			}
		}
		return of.err
	}, func(why error) {
		if of.done != nil {
			defer of.done()
		}
		res, f := &of.res, of.res.Fault
		if of.err != nil {
			f = fault.From(of.err, fault.Host, r.operation())
		}
		if why != nil {
			f = fault.New(fault.Cancelled, fault.Host, r.operation(), "%v", why)
		}
		s.countRequest(r, res.Replays, f)
		logged := r.msg.Method != mcp.ToolsCall
		if r.target != nil && r.target.Server == "" && !logged {
			// A hand-over that begins behind the answer must not lose the line.
			s.logCall(r, of.args, f, res)
			logged = true
		}
		if r.task = res.Task; why != nil && !errors.Is(why, tool.ErrStopping) {
			s.cancelTask(r)
		}
		if why == nil {
			line := of.long
			if line == nil {
				line = s.answerLine(r, of.found || r.inner, res, f)
			}
			res.Result, res.Error = nil, nil // they may be large, and the queue for the client full
			s.deliver(ctx, r, outbox.Answer{Line: line, Confirm: true, Stored: of.stored, Room: &of.room})
		}
		if !logged {
			runtime.Gosched() // the answer of a server goes first
			s.logCall(r, of.args, f, res)
		}
	})
}

// cancelTask cancels the task, if r became one: the client was not told of it. It logs a failure.
func (s *session) cancelTask(r *request) {
	if r.task == "" {
		return
	}
	who := s.who()
	if _, err := s.srv.o.Tasks.CancelTask(context.Background(), &who, r.task); err != nil {
		s.log.Warn("a task of which its client does not know goes on", "task", r.task, "err", err)
	}
}

// callTarget finds the target of r with find, sets r.target, calls the target, and blocks until it
// has answered. A replayed call goes to the target that recorded it, if one did.
//
// found reports whether the target may be used: then a model reads its faults. If find fails, found
// is false, err is its error or the cause of a done ctx, and r.target may be one that is not
// allowed. If found is true, err is that of the call, or, without a call, a fault if a replayed
// call may have run before, or [tool.ErrStopping] if clients no longer reach this daemon.
func (s *session) callTarget(ctx context.Context, r *request, find findTarget) (
	res tool.RemoteResult, found bool, err error,
) {
	who := s.who()
	t, refuse, err := s.targetOf(ctx, r, find)
	if r.replay && s.awaitRecords(ctx, r, t) {
		t, refuse, err = s.targetOf(ctx, r, find)
	}
	if t != nil {
		r.target = t
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return res, false, context.Cause(ctx)
	}
	// This comes before what the configuration says now: a call that may have run is not "unknown".
	if f := s.doubtful(r, err == nil); f != nil {
		return res, true, f
	}
	if err != nil {
		return res, false, err
	}
	if t.Server == "" && !s.srv.o.Still() { // what is written to a server's worker is checked then
		return res, true, tool.ErrStopping
	}
	var doubt func() *fault.Record
	if r.replay {
		doubt = func() *fault.Record { return s.unrecorded(r, true) }
	}
	s.calls.Add(1)
	res, err = t.Handle(ctx, tool.RemoteCall{
		Caller: who, N: r.n, ID: string(r.msg.ID), Params: r.msg.Params, Arguments: r.args,
		Modern: r.modern, Replay: r.replay, Sent: r.sent,
		Level: s.levelOf(r), Refuse: refuse, Doubt: doubt, Progress: s.progressOf(r), TakesTask: s.takesTasks(r),
	})
	if r.msg.Method == mcp.Complete && err == nil {
		res, err = s.srv.o.Catalog.Completed(who, t, r.msg.Params, res)
	}
	if s.guest != "" && err == nil {
		res, err = profile.ResultForGuest(t, r.operation(), res)
	}
	return res, true, err
}

// targetOf returns the target that recorded r, if one did, else the one that find returns, or its error.
// refuse is nil unless the target recorded r: it says then why r may not be made now, if it never was.
func (s *session) targetOf(ctx context.Context, r *request, find findTarget) (
	t *tool.Remote, refuse func(context.Context) error, err error,
) {
	if r.replay {
		t = s.srv.o.Executors.Recall(s.hash, r.n, r.msg.Method)
	}
	if t == nil {
		finding, cancel := ctx, func() {}
		if r.replay {
			finding, cancel = age.Finding(ctx, r.sent, r.operation())
		}
		defer cancel()
		t, err = find(finding)
		return t, nil, err
	}
	// A recorded call belongs to the process that has it, even if the configuration has
	// changed. find only decides whether a call that was never made may be made now.
	return t, func(ctx context.Context) error {
		_, err := find(ctx)
		return err
	}, nil
}

// awaitRecords waits until all is read that may hold the record of r, a replayed call of that target,
// nil if that is not known. It reports whether it has waited.
func (s *session) awaitRecords(ctx context.Context, r *request, t *tool.Remote) (waited bool) {
	server, who := calls.AnyServer, s.who()
	if t != nil {
		server = t.Server
	}
	return s.srv.o.Executors.Await(ctx, server, who.Project, who.Session, r.n)
}

// answerLine returns the line that answers r, without its newline: from res, as a server sent it,
// else from f. If readable is true, a fault of a tool call becomes a result for the model.
func (s *session) answerLine(r *request, readable bool, res *tool.RemoteResult, f *fault.Record) []byte {
	form := s.formOf(r)
	switch {
	case f == nil || res.Result != nil || res.Error != nil:
		return form.Remote(r.target.Server, res)
	case readable && r.msg.Method == mcp.ToolsCall:
		return form.FaultAsResult(f)
	}
	return form.Fault(f)
}

// longLine returns a control line that answers r by naming the file in which the result lies, so
// that the proxy reads it there. It returns nil if there is no such file, if the result would
// have to be changed, or if the client is not connected or cannot open files. It takes s.mu.
func (s *session) longLine(r *request, res *tool.RemoteResult) []byte {
	if res.File == nil || r.modern || r.target.Server == "" {
		return nil
	}
	name, ok := bulk.Name(s.srv.o.RuntimeDir, res.File.Path)
	s.mu.Lock()
	ok = ok && s.cur != nil && s.cur.Greeting.Files
	s.mu.Unlock()
	if !ok {
		return nil
	}
	return reply.InFile(r.msg.ID, protocol.Span{
		File: name, Offset: res.File.Offset, Size: res.File.Size, Changed: res.File.Changed,
	})
}

// noSuchTool stands for all names of tools that clients made up.
const noSuchTool = "(unknown)"

// countRequest reports r to telemetry; a nil f is a success. Names of tools that clients made up
// must not become labels: they are all counted under one name.
func (s *session) countRequest(r *request, replays int, f *fault.Record) {
	method, server, name := r.msg.Method, "", ""
	if !slices.Contains(servedMethods, method) {
		method = ""
	}
	t := r.target
	if t != nil {
		server = t.Server
	}
	switch {
	case r.tool == "":
	case t != nil:
		// The session of one server sees the tool by its own name, others behind the server's.
		name = strings.TrimPrefix(t.Name, t.Server+"__")
	default:
		name = noSuchTool
	}
	op := telemetry.Operation{Method: method, Server: server, Tool: name}
	s.srv.o.Telemetry.Request(op, time.Since(r.sent), replays, f)
}

// logCall logs a tool call, with args as the client sent them; a nil f is a success. It takes s.mu.
func (s *session) logCall(r *request, args json.RawMessage, f *fault.Record, res *tool.RemoteResult) {
	caller := s.who()
	c := telemetry.Call{
		Session: caller.Session, Number: caller.Number, Identity: caller.Identity, Client: caller.Client,
		Project: caller.Project, Root: caller.Root,
		RequestID: string(r.msg.ID), Tool: profile.Clip(r.tool), Arguments: args,
		Took: time.Since(r.sent), Replays: res.Replays, Cache: res.Cache, Fault: f,
	}
	if t := r.target; t != nil {
		c.Tool, c.Server = profile.Clip(t.Name), t.Server // of a request whose line is lost, too
	}
	s.srv.o.Telemetry.ToolCall(c)
}
