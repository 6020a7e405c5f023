package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"holdline/daemon/catalog"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// aside makes an answer that may take a while in a goroutine that calls waits
// for, as a request in flight: it can be cancelled.
func (s *session) aside(ctx context.Context, r *request, calls *crew, find func(ctx context.Context) any) {
	callCtx, cancel := context.WithCancelCause(ctx)
	if f := s.enter(r, &inFlight{n: r.n, cancel: cancel}); f != nil {
		cancel(f)
		s.fail(ctx, r, f)
		return
	}
	s.running.Add(1)
	calls.Go(func() {
		defer s.ended()
		defer cancel(nil)
		v := find(callCtx)
		if err, ok := v.(error); ok && errors.Is(err, tool.ErrStopping) {
			cancel(tool.ErrStopping) // the next daemon will be asked
		}
		if !s.leave(callCtx, r) {
			return
		}
		switch v := v.(type) {
		case *fault.Record:
			s.fail(ctx, r, v)
		case refusal:
			s.count(r, nil)
			s.deliver(ctx, r, jsonrpc.AppendFailure(nil, r.msg.ID, v.raw), false)
		default:
			s.answerJSON(ctx, r, v)
		}
	})
}

// Methods that list, and those that hosted servers answer besides calls of tools.
var (
	listMethods   = []string{mcp.ToolsList, mcp.PromptsList, mcp.ResourcesList, mcp.TemplatesList}
	routedMethods = []string{mcp.PromptsGet, mcp.ResourcesRead, mcp.Complete}
)

// about is what the client is told at first: of holdline, or of the one server
// that the session is for. If that is not well the handshake succeeds all the
// same, and says what is wrong.
func (s *session) about(ctx context.Context, modern bool) tool.About {
	who := s.who()
	own := tool.About{Info: s.srv.serverInfo, Instructions: s.srv.o.Instructions}
	if who.SeesOwn() {
		own.Capabilities = s.offered(modern)
		if s.srv.o.Catalog.Searches(who) {
			own.Instructions += s.srv.o.Searching
		}
		return own
	}
	about, err := s.srv.o.Catalog.About(ctx, who)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.info = about.Info
		return about
	}
	own.Capabilities = json.RawMessage(`{"tools":{"listChanged":true}}`)
	own.Instructions = s.unusable(ctx, who.Only, err)
	return own
}

// unusable says why the one server cannot be used that the session is for, to
// the log and to whoever reads what the proxy writes to stderr: few clients show
// people the instructions, and few people read the log.
func (s *session) unusable(ctx context.Context, server string, err error) string {
	words := "The MCP server " + server + " cannot be used now: " + fault.From(err, fault.Server, mcp.Initialize).Fault.Detail
	s.log.WarnContext(ctx, "session for a server that cannot be used", "server", server, "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur != nil {
		s.cur.out.control(protocol.Control{Holdline: protocol.Version, Message: words})
	}
	return words
}

// serverInfo is who the client talks to: holdline, or the one server.
func (s *session) serverInfo() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info != nil {
		return s.info
	}
	return s.srv.serverInfo
}

// offered is what the client is told that holdline can do. A legacy client may
// always set a level.
func (s *session) offered(modern bool) json.RawMessage {
	has := s.srv.o.Catalog.Has(s.who())
	caps := `{"tools":{"listChanged":true}`
	if has.Prompts {
		caps += `,"prompts":{"listChanged":true}`
	}
	if has.Resources {
		caps += `,"resources":{`
		if has.Updates {
			caps += `"subscribe":true,`
		}
		caps += `"listChanged":true}`
	}
	if has.Prompts || has.Resources {
		caps += `,"completions":{}`
	}
	if has.Logging || !modern {
		caps += `,"logging":{}`
	}
	return json.RawMessage(caps + "}")
}

// route passes on a request for a prompt, a resource or a completion.
func (s *session) route(ctx context.Context, r *request, calls *crew) {
	s.begin(ctx, r, r.msg.Method, calls, func(ctx context.Context) (*tool.Remote, error) {
		to, ok, err := s.srv.o.Catalog.Route(ctx, s.who(), r.msg.Method, r.msg.Params)
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return nil, fault.New(fault.UnknownMethod, fault.Protocol, r.operation(), "unknown method %q", r.msg.Method)
		case to == nil:
			return nil, fault.New(fault.InvalidInput, fault.Host, r.operation(), "no hosted server offers what is asked for")
		}
		return to, nil
	})
}

// remote begins a call of a tool that is not holdline's own.
func (s *session) remote(ctx context.Context, r *request, name string, calls *crew) {
	s.begin(ctx, r, operation(name), calls, func(ctx context.Context) (*tool.Remote, error) {
		return s.srv.o.Catalog.Find(ctx, s.who(), name)
	})
}

// inner begins the call of a hosted server's tool that a call of t is for. From
// here on it is that call, in all but the name by which it was asked for.
func (s *session) inner(ctx context.Context, r *request, t *tool.Prepared, calls *crew) {
	in, err := t.Tool.Inner(r.params.Arguments)
	if err != nil {
		err = fault.New(fault.InvalidInput, fault.Host, operation(t.Tool.Name), "%v", err)
		s.finish(ctx, r, t, input{}, tool.Result{}, err)
		return
	}
	r.inner, r.params.Arguments = true, in.Arguments
	if r.msg.Params, err = jsonrpc.Rewrite(r.msg.Params, func(key string, value []byte) []byte {
		if key == "arguments" {
			return in.Arguments
		}
		return value
	}); err != nil { // ParseParams has read them
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "params: %v", err))
		return
	}
	s.begin(ctx, r, operation(t.Tool.Name), calls, func(ctx context.Context) (*tool.Remote, error) {
		return s.srv.o.Catalog.Inner(ctx, s.who(), in)
	})
}

// begin begins a request that a hosted server answers, which find finds. It is
// counted under key.
func (s *session) begin(ctx context.Context, r *request, key string, calls *crew,
	find func(context.Context) (*tool.Remote, error),
) {
	args := r.params.Arguments
	callCtx, cancel := context.WithCancelCause(ctx)
	progress := s.progressOf(r)
	if f := s.enter(r, &inFlight{n: r.n, cancel: cancel, progress: progress}); f != nil {
		cancel(f)
		f.Operation = key
		s.fail(ctx, r, f)
		return
	}
	s.running.Add(1)
	calls.Go(func() {
		defer s.ended()
		defer cancel(nil)
		t, res, err := s.pursue(callCtx, r, find, progress)
		faultpoint.At("session.pursued")
		progress.end()
		if errors.Is(err, tool.ErrStopping) {
			cancel(tool.ErrStopping) // the next daemon will be asked
		}
		if r.inner && t != nil {
			key = operation(t.Name)
		}
		var f *fault.Record
		if err != nil {
			f = fault.From(err, fault.Host, key)
		}
		wanted := s.leave(callCtx, r)
		if !wanted {
			s.forget(r)
			f = fault.New(fault.Cancelled, fault.Host, key, "%v", context.Cause(callCtx))
		}
		s.countRemote(r, t, key, res.Replays, f)
		if wanted {
			s.pass(ctx, r, t != nil || r.inner, &res, f)
		}
		if r.msg.Method == mcp.ToolsCall {
			runtime.Gosched() // the answer goes first
			name, _ := mcp.String(r.params.Name)
			if t != nil {
				name = t.Name // of a request without words, too
			}
			s.logRemote(r, t, name, args, f, &res)
		}
	})
}

// pursue finds who answers, and asks.
func (s *session) pursue(ctx context.Context, r *request, find func(context.Context) (*tool.Remote, error), progress *progress) (
	*tool.Remote, tool.RemoteResult, error,
) {
	who := s.who()
	t, refuse, err := s.answerer(ctx, r, find)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, tool.RemoteResult{}, err
	}
	if f := s.doubtful(r, t.Contract, t.Name); f != nil {
		return t, tool.RemoteResult{}, f
	}
	if !s.srv.o.Still() {
		return nil, tool.RemoteResult{}, tool.ErrStopping
	}
	s.calls.Add(1)
	c := tool.RemoteCall{
		Caller: who, N: r.n, ID: string(r.msg.ID), Params: r.msg.Params, Modern: r.modern, Replay: r.replay, Level: s.levelOf(r), Refuse: refuse,
	}
	if progress != nil {
		c.Progress = progress.pass
	}
	res, err := t.Handle(ctx, c)
	return t, res, err
}

// answerer returns the tool that answers a request. A replayed call that is on
// record belongs to the process that has it, whatever the configuration says by
// now: find may wait for another process, or say that there is no such tool. It
// decides only whether the call may be made if it was not; that is what refuse
// does.
func (s *session) answerer(ctx context.Context, r *request, find func(context.Context) (*tool.Remote, error)) (
	t *tool.Remote, refuse func(context.Context) error, err error,
) {
	if r.replay && r.msg.Method == mcp.ToolsCall && s.srv.o.Hosted != nil {
		t = s.srv.o.Hosted.Again(s.hash, r.n)
	}
	if t == nil {
		t, err = find(ctx)
		return t, nil, err
	}
	return t, func(ctx context.Context) error {
		_, err := find(ctx)
		return err
	}, nil
}

// pass gives the client what a server answered, as it came. The answer is taken
// out of res: it may be large, and the queue for the client full.
func (s *session) pass(ctx context.Context, r *request, known bool, res *tool.RemoteResult, f *fault.Record) {
	var line []byte
	switch {
	case f != nil && known && r.msg.Method == mcp.ToolsCall: // whatever a known tool says is for a model to read
		line = jsonrpc.AppendResult(nil, r.msg.ID, s.dress(r, tool.EncodeFault(f)))
	case f != nil:
		line = s.faultLine(r, f)
	case res.Error != nil:
		if r.modern {
			res.Error = modernError(res.Error)
		}
		line = jsonrpc.AppendFailure(make([]byte, 0, len(res.Error)+128), r.msg.ID, res.Error)
	default:
		if r.modern {
			res.Result = modernised(r.msg.Method, res.Result)
		}
		line = jsonrpc.AppendResult(make([]byte, 0, len(res.Result)+128), r.msg.ID, res.Result)
	}
	res.Result, res.Error = nil, nil
	s.deliver(ctx, r, line, true)
}

// modernised is a server's result with what the modern era requires of it and
// a legacy server has not said. Such a server does not say either for how long
// what was read may be kept.
func modernised(method string, result json.RawMessage) json.RawMessage {
	if len(result) == 0 || result[0] != '{' {
		return result
	}
	kind := jsonrpc.Field(result, "resultType")
	complete := kind == nil || string(kind) == `"complete"`
	if method == mcp.ResourcesRead && complete {
		if jsonrpc.Field(result, "cacheScope") == nil {
			result = jsonrpc.Prepend(result, `"cacheScope":"private"`)
		}
		if jsonrpc.Field(result, "ttlMs") == nil {
			result = jsonrpc.Prepend(result, `"ttlMs":0`)
		}
	}
	if kind == nil {
		result = jsonrpc.Prepend(result, `"resultType":"complete"`)
	}
	return result
}

// modernError is a server's error with a code that the modern era has: it has
// none for a resource that is not there, and none that sends the user to a
// page before the request is made again.
func modernError(failure json.RawMessage) json.RawMessage {
	instead := map[string]string{"-32002": "-32602", "-32042": "-32603"}[string(jsonrpc.Field(failure, "code"))]
	if instead == "" {
		return failure
	}
	rewritten, err := jsonrpc.Rewrite(failure, func(key string, value []byte) []byte {
		if key == "code" {
			return []byte(instead)
		}
		return value
	})
	if err != nil {
		return failure
	}
	return rewritten
}

// countRemote counts a request that a hosted server answers; t is nil if none
// was found that does. The key is the operation of what was asked for.
func (s *session) countRemote(r *request, t *tool.Remote, key string, replays int, f *fault.Record) {
	var server, name string
	switch {
	case t != nil:
		// The session of one server sees the tool by its own name, others behind the server's.
		server, name = t.Server, strings.TrimPrefix(t.Name, t.Server+"__")
	case r.inner:
		name = strings.TrimPrefix(key, operation(""))
	default:
		name = noSuchTool
	}
	if r.msg.Method != mcp.ToolsCall {
		name = ""
	}
	s.srv.o.Telemetry.Request(r.msg.Method, server, name, time.Since(r.begin), replays, f)
}

// logRemote logs the call of a tool that is not holdline's own, and may not be
// there: t is nil then.
func (s *session) logRemote(r *request, t *tool.Remote, name string, args json.RawMessage, f *fault.Record, res *tool.RemoteResult) {
	c := s.toolCall(r, name, args, f, res.Replays)
	if c.Cache = res.Cache; t != nil {
		c.Server = t.Server
	}
	s.srv.o.Telemetry.ToolCall(c)
}

// changeOf is the notification that concerns a list.
func changeOf(method string) string {
	switch method {
	case mcp.ToolsList:
		return mcp.ToolsChanged
	case mcp.PromptsList:
		return mcp.PromptsChanged
	}
	return mcp.ResourcesChanged
}

// lists notes that the client is about to have lists. It is called before they
// are made, so that a change of them meanwhile is told, and again afterwards,
// since that was told of what the client had before.
func (s *session) lists(methods ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listsLocked(methods...)
}

func (s *session) listsLocked(methods ...string) {
	for _, method := range methods {
		s.has[changeOf(method)] = true
	}
}

// respond takes the client's answer to a request of a server.
func (s *session) respond(n int64, msg jsonrpc.Message) {
	if s.srv.o.Hosted == nil || !s.srv.o.Hosted.Respond(s.hash, n, msg) {
		s.Seen(n) // nobody waits for it
	}
}

// Caller is the session as it is known now.
func (s *session) Caller() tool.Caller { return s.who() }

// Era is that of the client's latest request; "" before the first.
func (s *session) Era() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.era
}

// Capabilities are those that the client declared.
func (s *session) Capabilities() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capabilities
}

// Ask queues a request of a server for the client, or a notification if there is
// room.
func (s *session) Ask(line []byte) bool {
	s.mu.Lock()
	l := s.cur
	s.mu.Unlock()
	if l == nil {
		return false
	}
	whole := append(append(make([]byte, 0, len(line)+1), line...), '\n')
	if jsonrpc.Field(line, "id") == nil {
		l.out.offer(whole)
	} else {
		l.out.ask(whole)
	}
	return true
}

// levelOf is the level from which on a request wants log messages.
func (s *session) levelOf(r *request) string {
	if r.modern {
		level, _ := mcp.String(r.params.Meta.Level)
		return level
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

// Level is the most verbose level of log messages that the client has ever
// asked for in a request, or that it has set.
func (s *session) Level() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return mcp.Verbose(s.level, s.wanted)
}

// Log passes on a log message of a server, if a request under way has asked for
// it or the level that the client has set covers it.
func (s *session) Log(level string, params json.RawMessage, asked bool) {
	s.mu.Lock()
	covers := mcp.Covers(s.level, level)
	s.mu.Unlock()
	if asked || covers {
		s.offer(append(jsonrpc.AppendRequest(nil, nil, mcp.LogMessage, params), '\n'), nil)
	}
}

// gave notes the list of tools that the client gets, if a change of what hosted
// servers offer is no change of it.
func (s *session) gave(tools []catalog.Entry) {
	var sum []byte
	if s.srv.o.Catalog.Searches(s.who()) {
		sum = digest(tools)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given = sum
}

// same tells whether the client's list of tools is known to be as it would be
// now.
func (s *session) same() bool {
	who := s.who()
	if !s.srv.o.Catalog.Searches(who) {
		return false
	}
	_, list, _ := s.srv.o.Catalog.List(context.Background(), who, mcp.ToolsList) // has nothing to wait for
	now := digest(list)
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Equal(s.given, now)
}

func digest(tools []catalog.Entry) []byte {
	h := sha256.New()
	for _, t := range tools {
		_, _ = h.Write(t.Raw) // a hash takes every write
		_, _ = h.Write([]byte("\n"))
	}
	return h.Sum(nil)
}

// ListChanged says that a list is not what it was: to a legacy client that has
// asked for it since it was told so last, to a modern one in each of its
// subscriptions to that.
func (s *session) ListChanged(method string) {
	if method == mcp.ToolsChanged && s.same() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock() // so that nothing that is queued meanwhile comes before
	if s.cur == nil {
		return // whoever comes back is taken to have lists
	}
	if s.era == legacy {
		if s.has[method] {
			s.cur.out.offer(append(jsonrpc.AppendRequest(nil, nil, method, nil), '\n'))
		}
		delete(s.has, method)
		return
	}
	for _, l := range s.listens {
		if l.granted[method] {
			params := fmt.Appendf(nil, `{"_meta":{%q:%s}}`, mcp.MetaSubscription, l.id)
			s.cur.out.offer(append(jsonrpc.AppendRequest(nil, nil, method, params), '\n'))
		}
	}
}
