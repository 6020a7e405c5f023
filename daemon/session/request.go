package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdline/daemon/session/age"
	"holdline/daemon/session/crew"
	"holdline/daemon/session/flight"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/profile"
	"holdline/daemon/session/reply"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// request is a client's request. The reader fills it in; a goroutine that works on it then owns it.
type request struct {
	n      int64           // number of the client's line
	msg    jsonrpc.Message // as the client sent it
	params mcp.Params      // parsed from msg
	modern bool            // of the modern era
	replay bool            // sent on an earlier connection
	since  string          // of a replay: id of the records when it may have been sent first
	doubt  bool            // of a replay: its records may be discarded
	sent   time.Time       // when the client sent it, perhaps to an earlier daemon
	inner  bool            // call_tool was called; this is the call of the hosted server's tool that it named
	file   *bulk.File      // in which the params of msg lie, as the client sent them; nil if in none

	tool     string         // name of the tool, as the client gave it; "" if it calls none
	args     *bulk.File     // where the tool's arguments lie in file; nil if they lie in none
	target   *tool.Remote   // what answers it; nil while that is not known
	task     string         // id of the task that it became; "" if it became none
	standing bool           // replayed for its effect alone: the client has the answer
	flight   *flight.Flight // nil until [session.enterFlight]; most short requests have none
}

// operation returns the name of what the client asked for, as faults show it.
func (r *request) operation() string {
	switch {
	case r.tool == "":
		return profile.Clip(r.msg.Method)
	case r.inner && r.target != nil:
		return operation(r.target.Name)
	}
	return operation(r.tool)
}

// operation returns the name of the call of a tool, as faults show it.
func operation(name string) string { return mcp.ToolsCall + ":" + name }

// servedMethods are all that a session answers, in either era.
var servedMethods = slices.Concat([]string{
	mcp.Initialize, mcp.Ping, mcp.Discover, mcp.ToolsCall, mcp.ToolsList,
	mcp.Listen, mcp.Subscribe, mcp.Unsubscribe, mcp.SetLevel,
}, listMethods, routedMethods, tasks.Methods())

// handleLine gives the client's next line its number, and calls [session.handleMessage].
func (s *session) handleLine(ctx context.Context, l bulk.Line, calls *crew.Crew) {
	s.n++
	s.handleMessage(ctx, s.n, l, nil, calls)
}

// handleMessage handles line n of the client; again is the control line before a replayed one, else
// nil. For an invalid message it calls [session.refuse]. The message keeps parts of l.Text: the caller
// must not reuse it. Work that may block goes on in goroutines of calls. Only the reader calls it.
func (s *session) handleMessage(ctx context.Context, n int64, l bulk.Line, again *protocol.Control, calls *crew.Crew) {
	msg, err := jsonrpc.Parse(l.Text)
	if err != nil {
		code := fault.InvalidRequest
		if errors.Is(err, jsonrpc.ErrParse) {
			code = fault.ParseError
		}
		s.refuse(ctx, n, msg, fault.New(code, fault.Protocol, "jsonrpc.message", "%v", err))
		return
	}
	faultpoint.At("session.read")
	if s.guest != "" {
		if msg.Kind == jsonrpc.Response { // no server asks a guest
			s.Seen(n) // else its proxy kept the line
			return
		}
		if msg.Method == mcp.RootsChanged {
			return
		}
		msg.Params = profile.ForGuest(msg.Params)
	}
	switch msg.Kind {
	case jsonrpc.Request:
		r := &request{n: n, msg: msg, file: l.File.Part(l.Text, msg.Params), replay: again != nil, sent: age.Sent(again)}
		if r.replay {
			r.since, r.doubt = s.store, n < s.uncertain
		}
		s.handleRequest(ctx, r, calls)
	case jsonrpc.Notification:
		s.handleNotification(ctx, msg)
	case jsonrpc.Response:
		s.forwardResponse(n, msg)
	}
}

// handleNotification completes the handshake, cancels a request, or passes roots and progress to
// hosted servers. It ignores others and malformed ones. Only the reader calls it; it takes s.mu.
func (s *session) handleNotification(ctx context.Context, msg jsonrpc.Message) {
	if err := mcp.ParamsObject.Check(msg.Params); err != nil {
		s.log.DebugContext(ctx, "notification ignored", "method", msg.Method, "err", err)
		return
	}
	switch msg.Method {
	case mcp.Initialized:
		if s.handshake == initialized {
			s.handshake = ready
		}
	case mcp.CancelledNote:
		p, err := mcp.ParseParams(msg.Params)
		if err != nil || p.RequestID == nil {
			return // a notification is never answered
		}
		s.mu.Lock()
		f := s.flights.Find(jsonrpc.ID(p.RequestID))
		dropped := f != nil && s.flights.Move(f, flight.Cancelled)
		s.mu.Unlock()
		faultpoint.At("session.cancelled")
		if dropped {
			f.Cancel(outbox.ErrCancelled)
		}
	case mcp.RootsChanged, mcp.ProgressNote:
		if !s.anonymous {
			s.srv.o.Hosted.Notified(s.hash, msg)
		}
	default:
		s.log.DebugContext(ctx, "notification ignored", "method", msg.Method)
	}
}

// handleRequest answers r or begins the work on it, in a goroutine of calls. It answers with a
// fault if a check fails: of params, version, a legacy client's handshake, or that no running
// request has its id. It sets r.params and r.modern, and calls learn. Only the reader calls it.
func (s *session) handleRequest(ctx context.Context, r *request, calls *crew.Crew) {
	var err error
	if r.params, err = mcp.ParseParams(r.msg.Params); err == nil && r.params.Nulls {
		r.file = nil // what follows is not as the client sent it
		if r.msg.Params, err = mcp.WithoutNulls(r.msg.Params); err == nil {
			r.params, err = mcp.ParseParams(r.msg.Params)
		}
	}
	if err != nil {
		err = fmt.Errorf("params: %w", err)
	} else if err = r.params.CheckNames(&r.msg); err == nil {
		if r.modern = r.params.Meta.Version != nil || r.msg.Method == mcp.Discover; r.modern {
			version, ok := mcp.String(r.params.Meta.Version)
			if ok && version != mcp.Modern {
				version = profile.Clip(version)
				f := fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "unsupported protocol version")
				s.countRequest(r, 0, f)
				s.queueLine(ctx, r.n, s.formOf(r).UnknownVersion(version))
				return
			}
			err = r.params.CheckModern()
		}
	}
	if err != nil {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "%v", err))
		return
	}
	if r.msg.Method != mcp.Initialize { // an initialize that fails must not name the client
		s.learn(r)
	}
	if !r.modern && s.handshake != ready && r.msg.Method != mcp.Initialize && r.msg.Method != mcp.Ping {
		want := "initialize"
		if s.handshake == initialized {
			want = "notifications/initialized"
		}
		s.fail(ctx, r, fault.New(fault.NotInitialized, fault.Protocol, r.operation(),
			"the session is not initialized: send %s first", want))
		return
	}
	if s.busy(r.msg.ID) {
		s.fail(ctx, r, fault.New(fault.InvalidRequest, fault.Protocol, r.operation(),
			"id %s is in use by a request in flight", r.msg.ID))
		return
	}
	switch method := r.msg.Method; {
	case method == mcp.ToolsCall:
		s.beginCall(ctx, r, calls)
	case slices.Contains(listMethods, method):
		s.answerList(ctx, r, calls)
	case slices.Contains(routedMethods, method):
		s.routeRequest(ctx, r, calls)
	case slices.Contains(tasks.Methods(), method) && s.takesTasks(r):
		s.answerAside(ctx, r, calls, func(ctx context.Context) any {
			return tasks.Answer(ctx, s.srv.o.Tasks, s.who(), method, r.msg.Params)
		})
	case method == mcp.Listen && r.modern:
		s.beginListen(ctx, r, calls)
	case method == mcp.Subscribe && !r.modern:
		s.subscribe(ctx, r, calls)
	case method == mcp.Unsubscribe && !r.modern:
		s.unsubscribe(ctx, r)
	case method == mcp.Discover:
		s.discover(ctx, r)
	case method == mcp.Initialize && !r.modern:
		s.initialize(ctx, r)
	case method == mcp.Ping && !r.modern:
		s.answer(ctx, r, json.RawMessage(`{}`))
	case method == mcp.SetLevel && !r.modern:
		s.setLevel(ctx, r)
	default:
		s.fail(ctx, r, fault.New(fault.UnknownMethod, fault.Protocol, r.operation(), "unknown method %q", method))
	}
}

// learn adds what r says of the client to the profile. Once the capabilities are known, it tells
// the hosted servers that the session is open: its own servers start then. It takes s.mu.
func (s *session) learn(r *request) {
	s.mu.Lock()
	knew := s.profile.Capabilities != nil
	s.profile.Learn(r.msg.Method, &r.params, r.modern, s.srv.o.Reserved)
	learned := !knew && s.profile.Capabilities != nil
	s.mu.Unlock()
	if !s.anonymous && learned {
		s.srv.o.Hosted.Opened(s.hash, s)
	}
}

// initialize answers a legacy handshake, with a fault if it is the second or its version not a
// string. It calls learn, and blocks like [session.describe]. Only the reader calls it.
func (s *session) initialize(ctx context.Context, r *request) {
	asked, ok := mcp.String(r.params.Version)
	if !ok {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(),
			"params.protocolVersion must be a string"))
		return
	}
	if s.handshake != notInitialized {
		s.fail(ctx, r, fault.New(fault.InvalidRequest, fault.Protocol, r.operation(),
			"the session is already initialized"))
		return
	}
	s.handshake = initialized
	s.learn(r)
	about := s.describe(ctx, false)
	s.answerJSON(ctx, r, reply.NewAbout(mcp.Negotiate(asked), &about))
}

// discover answers a modern client's server/discover. It blocks like [session.describe].
func (s *session) discover(ctx context.Context, r *request) {
	about := s.describe(ctx, true)
	s.answerJSON(ctx, r, reply.NewDiscovery(&about))
}

// listed is one page of a list, with the digest of the whole list on the first one.
type listed struct {
	page   any
	digest string
}

// answerList answers a request for one page of a list, with a fault if the cursor is invalid. A
// list of tools that needs no hosted server is built at once, others in a goroutine of calls: a guest
// may not take it.
func (s *session) answerList(ctx context.Context, r *request, calls *crew.Crew) {
	method := r.msg.Method
	after, err := tool.ParseCursor(method, r.params.Cursor)
	if err != nil {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "%v", err))
		return
	}
	list := func(ctx context.Context) any {
		all, ok := s.srv.o.Catalog.List(ctx, s.who(), method)
		if !ok {
			return fault.New(fault.UnknownMethod, fault.Protocol, r.operation(), "unknown method %q", method)
		}
		if method == mcp.ToolsList {
			if who := s.who(); len(all.Entries) == 0 && !who.SeesOwn() { // it may have failed to start since the handshake
				if _, err := s.srv.o.Catalog.About(ctx, who); err != nil {
					s.unusable(ctx, who.Only, err)
				}
			}
		}
		part, last := tool.Page(all.Entries, after)
		if last != "" {
			last = tool.NewCursor(method, last)
		}
		if after != "" {
			all.Digest = ""
		}
		return listed{reply.List(all.Member, part, last, r.modern), all.Digest}
	}
	if method == mcp.ToolsList && s.guest == "" && !s.srv.o.Catalog.Waits(s.who()) {
		switch v := list(ctx).(type) {
		case listed:
			s.giveList(ctx, r, v.page, v.digest)
		case *fault.Record:
			s.fail(ctx, r, v)
		}
		return
	}
	s.answerAside(ctx, r, calls, list)
}

// setLevel records the log level of a legacy client; it answers an unknown one with a fault.
func (s *session) setLevel(ctx context.Context, r *request) {
	if !mcp.IsLevel(r.params.Level) {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(),
			"params.level must be one of %v", mcp.Levels()))
		return
	}
	s.setLogLevel(r)
	s.answer(ctx, r, json.RawMessage(`{}`))
}

// setLogLevel records the level in r, which must be valid, and tells the servers. It takes s.mu.
func (s *session) setLogLevel(r *request) {
	level, _ := mcp.String(r.params.Level)
	s.mu.Lock()
	s.profile.Level = level
	s.mu.Unlock()
	s.srv.o.Hosted.Tuned()
}

// answerJSON answers r, as [session.answer] does, with the JSON encoding of v, an object, or with v
// itself if it is a json.RawMessage; with an internal_failure fault if v does not encode.
func (s *session) answerJSON(ctx context.Context, r *request, v any) {
	if raw, ok := v.(json.RawMessage); ok {
		s.answer(ctx, r, raw)
		return
	}
	b, err := jsonrpc.Marshal(v) // unlike json.Marshal, it leaves the characters of servers as they are
	if err != nil {
		s.fail(ctx, r, fault.New(fault.InternalFailure, fault.Host, r.operation(), "encoding the answer: %v", err))
		return
	}
	s.answer(ctx, r, b)
}

// answer counts r as a success and queues result, an object. It may block, see [session.deliver].
func (s *session) answer(ctx context.Context, r *request, result json.RawMessage) {
	s.countRequest(r, 0, nil)
	s.deliver(ctx, r, outbox.Answer{Line: s.formOf(r).Result(result)})
}

// formOf returns the form of the answer to r. It takes s.mu for a modern request.
func (s *session) formOf(r *request) *reply.Form {
	f := &reply.Form{ID: r.msg.ID, Method: r.msg.Method, Modern: r.modern}
	if r.modern {
		f.Info = s.serverInfo()
	}
	return f
}

// fail counts r as failed, logs a tool call, and queues f. It may block, see [session.deliver].
func (s *session) fail(ctx context.Context, r *request, f *fault.Record) {
	s.countRequest(r, 0, f)
	if r.msg.Method == mcp.ToolsCall {
		s.logCall(r, nil, f, &tool.RemoteResult{})
	}
	s.deliver(ctx, r, outbox.Answer{Line: s.formOf(r).Fault(f)})
}

// refuse does what is right for line n, which cannot be read for the reason f, by what can be seen of it:
// id and kind. A request is answered, and a server that waits for an answer gets an error in its place.
// Nothing that may be a notification is answered: the clients of some libraries end at an answer
// without id. refuse may block until there is room.
func (s *session) refuse(ctx context.Context, n int64, seen jsonrpc.Message, f *fault.Record) {
	s.log.WarnContext(ctx, "a line of the client cannot be read", "line", n, "err", f)
	words := jsonrpc.AppendString(nil, "the client's answer cannot be read: "+f.Fault.Detail)
	seen.Error = fmt.Appendf(nil, `{"code":%d,"message":%s}`, jsonrpc.CodeInternal, words)
	switch {
	case seen.Kind == jsonrpc.Response:
		s.forwardResponse(n, seen)
	case seen.Kind == 0 && seen.ID != nil && s.srv.o.Hosted.Respond(s.hash, n, seen): // only its id shows what it is
	case seen.ID != nil:
		s.queueLine(ctx, n, mcp.AppendFault(nil, seen.ID, "", "", f))
	}
}
