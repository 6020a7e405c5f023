package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdline/daemon/session/crew"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/profile"
	"holdline/daemon/session/reply"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// request is one that waits for its answer.
type request struct {
	n      int64
	msg    jsonrpc.Message
	params mcp.Params
	modern bool
	replay bool      // sent on an earlier connection
	sent   time.Time // by the client, whichever daemon read it first
	inner  bool      // the call of a hosted server's tool, which another one was asked for

	tool     string       // name of the tool, as asked for; "" if it calls none
	target   *tool.Remote // what answers it; nil while that is not known
	standing bool         // repeated for its effect: the client has the answer
	begin    time.Time
	flight   *flight // nil unless its answer takes a while
}

// operation is what a fault of the request says was asked for.
func (r *request) operation() string {
	switch {
	case r.tool == "":
		return profile.Clip(r.msg.Method)
	case r.inner && r.target != nil:
		return operation(r.target.Name)
	}
	return operation(r.tool)
}

func operation(name string) string { return mcp.ToolsCall + ":" + name }

// servedMethods are all that a session answers, in either era.
var servedMethods = slices.Concat([]string{
	mcp.Initialize, mcp.Ping, mcp.Discover, mcp.ToolsCall, mcp.ToolsList,
	mcp.Listen, mcp.Subscribe, mcp.Unsubscribe, mcp.SetLevel,
}, listMethods, routedMethods)

// handleLine handles one line of the client, in order. Only tool calls go on in a
// goroutine of their own.
func (s *session) handleLine(ctx context.Context, line []byte, calls *crew.Crew) {
	s.n++
	s.handleMessage(ctx, s.n, line, nil, calls)
}

// handleMessage handles line n. again is the control line of the proxy before a line that
// it had sent on an earlier connection; nil for all others.
func (s *session) handleMessage(ctx context.Context, n int64, line []byte, again *protocol.Control, calls *crew.Crew) {
	msg, err := jsonrpc.Parse(line)
	if err != nil {
		code := fault.InvalidRequest
		if errors.Is(err, jsonrpc.ErrParse) {
			code = fault.ParseError
		}
		s.refuse(ctx, n, msg.ID, fault.New(code, fault.Protocol, "jsonrpc.message", "%v", err))
		return
	}
	faultpoint.At("session.read")
	switch msg.Kind {
	case jsonrpc.Request:
		r := &request{n: n, msg: msg, replay: again != nil, sent: sentAt(again), begin: time.Now()}
		s.handleRequest(ctx, r, calls)
	case jsonrpc.Notification:
		s.handleNotification(ctx, msg)
	case jsonrpc.Response:
		s.forwardResponse(n, msg)
	}
}

// sentAt returns when the client sent a line. again is as for [session.handleMessage].
func sentAt(again *protocol.Control) time.Time {
	if again == nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(max(again.AgeMS, 0)) * time.Millisecond)
}

// handleNotification handles a notification, which is never answered.
func (s *session) handleNotification(ctx context.Context, msg jsonrpc.Message) {
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
		f := s.flights[jsonrpc.ID(p.RequestID).Key()]
		dropped := f != nil && s.moveLocked(f, cancelled)
		s.mu.Unlock()
		faultpoint.At("session.cancelled")
		if dropped {
			f.cancel(outbox.ErrCancelled)
		}
	case mcp.RootsChanged, mcp.ProgressNote:
		if s.srv.o.Hosted != nil && !s.anonymous {
			s.srv.o.Hosted.Notified(s.hash, msg)
		}
	default:
		s.log.DebugContext(ctx, "notification ignored", "method", msg.Method)
	}
}

// handleRequest answers r, or begins to.
func (s *session) handleRequest(ctx context.Context, r *request, calls *crew.Crew) {
	var err error
	if r.params, err = mcp.ParseParams(r.msg.Params); err != nil {
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
	if r.msg.Method != mcp.Initialize { // which says nothing of the client until it succeeds
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

// learn adds what a request says of the client to its profile. Servers of this session
// alone get the client's capabilities, and are started once these are known.
func (s *session) learn(r *request) {
	s.mu.Lock()
	knew := s.profile.Capabilities != nil
	s.profile.Learn(r.msg.Method, &r.params, r.modern, s.srv.o.Reserved)
	learned := !knew && s.profile.Capabilities != nil
	s.mu.Unlock()
	if hosted := s.srv.o.Hosted; hosted != nil && !s.anonymous && learned {
		hosted.Opened(s.hash, s)
	}
}

// initialize answers the handshake of a legacy client.
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

func (s *session) discover(ctx context.Context, r *request) {
	about := s.describe(ctx, true)
	s.answerJSON(ctx, r, reply.NewDiscovery(&about))
}

// answerList answers a request for one page of a list. Only a list that has nothing to
// wait for is made at once.
func (s *session) answerList(ctx context.Context, r *request, calls *crew.Crew) {
	method := r.msg.Method
	after, err := tool.ParseCursor(method, r.params.Cursor)
	if err != nil {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "%v", err))
		return
	}
	s.noteLists(method)
	list := func(ctx context.Context) any {
		member, all, ok := s.srv.o.Catalog.List(ctx, s.who(), method)
		if !ok {
			return fault.New(fault.UnknownMethod, fault.Protocol, r.operation(), "unknown method %q", method)
		}
		s.noteLists(method)
		if method == mcp.ToolsList {
			s.noteTools(all)
			if who := s.who(); len(all) == 0 && !who.SeesOwn() { // it may have failed to start since the handshake
				if _, err := s.srv.o.Catalog.About(ctx, who); err != nil {
					s.unusable(ctx, who.Only, err)
				}
			}
		}
		part, last := tool.Page(all, after)
		result := map[string]any{member: part}
		if last != "" {
			result["nextCursor"] = tool.NewCursor(method, last)
		}
		if r.modern {
			keep := reply.Cacheable()
			result["ttlMs"], result["cacheScope"] = keep.TTL, keep.Scope
		}
		return result
	}
	if method == mcp.ToolsList && !s.srv.o.Catalog.Waits(s.who()) {
		s.answerJSON(ctx, r, list(ctx))
		return
	}
	s.answerAside(ctx, r, calls, list)
}

func (s *session) setLevel(ctx context.Context, r *request) {
	if !mcp.IsLevel(r.params.Level) {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(),
			"params.level must be one of %v", mcp.Levels()))
		return
	}
	s.setLogLevel(r)
	s.answer(ctx, r, json.RawMessage(`{}`))
}

// setLogLevel sets the level of log messages that a legacy client wants.
func (s *session) setLogLevel(r *request) {
	level, _ := mcp.String(r.params.Level)
	s.mu.Lock()
	s.profile.Level = level
	s.mu.Unlock()
	if s.srv.o.Hosted != nil {
		s.srv.o.Hosted.Tuned(s.hash)
	}
}

func (s *session) answerJSON(ctx context.Context, r *request, v any) {
	b, err := jsonrpc.Marshal(v) // what servers say is passed on as they wrote it
	if err != nil {
		s.fail(ctx, r, fault.New(fault.InternalFailure, fault.Host, r.operation(), "encoding the answer: %v", err))
		return
	}
	s.answer(ctx, r, b)
}

// answer sends a result, an object, as the request's era wants it.
func (s *session) answer(ctx context.Context, r *request, result json.RawMessage) {
	s.countRequest(r, 0, nil)
	s.deliver(ctx, r, outbox.Answer{Line: s.formOf(r).Result(result)})
}

// formOf returns the form in which r is to be answered.
func (s *session) formOf(r *request) *reply.Form {
	f := &reply.Form{ID: r.msg.ID, Method: r.msg.Method, Modern: r.modern}
	if r.modern {
		f.Info = s.serverInfo()
	}
	return f
}

// fail answers a request with a fault.
func (s *session) fail(ctx context.Context, r *request, f *fault.Record) {
	s.countRequest(r, 0, f)
	if r.msg.Method == mcp.ToolsCall {
		s.logCall(r, nil, f, &tool.RemoteResult{})
	}
	s.deliver(ctx, r, outbox.Answer{Line: s.formOf(r).Fault(f)})
}

// refuse answers line n with an error; a nil id is that of a line that could
// not be read.
func (s *session) refuse(ctx context.Context, n int64, id jsonrpc.ID, f *fault.Record) {
	if id == nil {
		n = 0 // the client cannot ask for it again
	}
	s.queueLine(ctx, n, mcp.AppendFault(nil, id, "", "", f))
}
