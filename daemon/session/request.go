package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdline/daemon/catalog"
	"holdline/daemon/session/crew"
	"holdline/daemon/session/outbox"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Names of the two eras in status.
const (
	legacy = "legacy"
	modern = "modern"
)

// listTTL is how long a modern client may keep a list or a discovery, in
// milliseconds. What the daemon itself offers changes only with its binary.
const listTTL = 60_000

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
		return clip(r.msg.Method)
	case r.inner && r.target != nil:
		return operation(r.target.Name)
	}
	return operation(r.tool)
}

func operation(name string) string { return mcp.ToolsCall + ":" + name }

// servedMethods are all that a session answers, in either era.
var servedMethods = slices.Concat([]string{
	mcp.Initialize, mcp.Ping, mcp.Discover, mcp.ToolsCall, mcp.ToolsList, mcp.Listen, mcp.Subscribe, mcp.Unsubscribe, mcp.SetLevel,
}, listMethods, routedMethods)

// line handles one line of the client, in order. Only tool calls go on in a
// goroutine of their own.
func (s *session) line(ctx context.Context, line []byte, calls *crew.Crew) {
	s.n++
	s.message(ctx, s.n, line, nil, calls)
}

// message handles line n. again is what the proxy says of a line that it had sent
// on an earlier connection; nil for all others.
func (s *session) message(ctx context.Context, n int64, line []byte, again *protocol.Control, calls *crew.Crew) {
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
		s.request(ctx, &request{n: n, msg: msg, replay: again != nil, sent: sentAt(again), begin: time.Now()}, calls)
	case jsonrpc.Notification:
		s.notification(ctx, msg)
	case jsonrpc.Response:
		s.respond(n, msg)
	}
}

// sentAt returns when the client sent a line, of which the proxy says again what
// [session.message] is told.
func sentAt(again *protocol.Control) time.Time {
	if again == nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(max(again.AgeMS, 0)) * time.Millisecond)
}

func (s *session) notification(ctx context.Context, msg jsonrpc.Message) {
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

// request answers r, or begins to.
func (s *session) request(ctx context.Context, r *request, calls *crew.Crew) {
	var err error
	if r.params, err = mcp.ParseParams(r.msg.Params); err != nil {
		err = fmt.Errorf("params: %w", err)
	} else if err = r.params.CheckNames(&r.msg); err == nil {
		if r.modern = r.params.Meta.Version != nil || r.msg.Method == mcp.Discover; r.modern {
			version, ok := mcp.String(r.params.Meta.Version)
			if ok && version != mcp.Modern {
				s.refuseVersion(ctx, r, version)
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
		s.settle(r)
	}
	if !r.modern && s.handshake != ready && r.msg.Method != mcp.Initialize && r.msg.Method != mcp.Ping {
		want := "initialize"
		if s.handshake == initialized {
			want = "notifications/initialized"
		}
		s.fail(ctx, r, fault.New(fault.NotInitialized, fault.Protocol, r.operation(), "the session is not initialized: send %s first", want))
		return
	}
	if s.busy(r.msg.ID) {
		s.fail(ctx, r, fault.New(fault.InvalidRequest, fault.Protocol, r.operation(), "id %s is in use by a request in flight", r.msg.ID))
		return
	}
	switch method := r.msg.Method; {
	case method == mcp.ToolsCall:
		s.call(ctx, r, calls)
	case slices.Contains(listMethods, method):
		s.list(ctx, r, calls)
	case slices.Contains(routedMethods, method):
		s.route(ctx, r, calls)
	case method == mcp.Listen && r.modern:
		s.listen(ctx, r, calls)
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

// refuseVersion answers a modern request of a version that is not known here.
func (s *session) refuseVersion(ctx context.Context, r *request, version string) {
	data, err := json.Marshal(map[string]any{"supported": []string{mcp.Modern}, "requested": clip(version)})
	if err != nil { // strings encode
		data = nil
	}
	s.count(r, 0, fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "unsupported protocol version"))
	s.put(ctx, r.n, jsonrpc.AppendError(nil, r.msg.ID, mcp.CodeVersion, "unsupported protocol version "+clip(version), data))
}

// settle notes the era, what the client is able to do, and its name. Servers of
// this session alone get its capabilities, and are started once these are known.
func (s *session) settle(r *request) {
	knew := s.Capabilities() != nil
	s.note(r)
	if hosted := s.srv.o.Hosted; hosted != nil && !s.anonymous && !knew && s.Capabilities() != nil {
		hosted.Opened(s.hash, s)
	}
}

// note notes what a request says of the client. Its name is fixed by the first
// that gives one. A name alone never becomes an identity that has a token.
func (s *session) note(r *request) {
	raw := r.params.Meta.Client
	era := modern
	if !r.modern {
		raw, era = r.params.Client, legacy
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.era = era
	if level, ok := mcp.String(r.params.Meta.Level); ok && r.modern {
		s.wanted = mcp.Verbose(s.wanted, level)
	}
	if caps := r.params.Capabilities; r.msg.Method == mcp.Initialize && !r.modern && caps != nil {
		s.capabilities = bytes.Clone(caps)
	} else if r.modern && s.capabilities == nil {
		s.capabilities = bytes.Clone(r.params.Meta.Capabilities)
	} else if r.msg.Method == mcp.Initialize && s.capabilities == nil {
		s.capabilities = json.RawMessage("{}") // it has said what it can do: nothing
	}
	if s.caller.Client != "" || raw == nil {
		return
	}
	var client mcp.Implementation
	if json.Unmarshal(raw, &client) != nil || client.Name == "" {
		return
	}
	client.Name, client.Version = clip(client.Name), clip(client.Version)
	s.caller.Client = client.String()
	if s.claimed != "" || s.anonymous {
		return
	}
	client.Name = protocol.ClientName(client.Name)
	if s.srv.o.Reserved(client.Name) || client.Name == s.caller.Identity {
		client.Name = "unverified:" + client.Name
	}
	s.caller.Identity = client.Name
}

// clip bounds a name that a client gave itself.
func clip(s string) string {
	const most = 64
	if r := []rune(s); len(r) > most {
		return string(r[:most])
	}
	return s
}

func (s *session) initialize(ctx context.Context, r *request) {
	asked, ok := mcp.String(r.params.Version)
	if !ok {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "params.protocolVersion must be a string"))
		return
	}
	if s.handshake != notInitialized {
		s.fail(ctx, r, fault.New(fault.InvalidRequest, fault.Protocol, r.operation(), "the session is already initialized"))
		return
	}
	s.handshake = initialized
	s.settle(r)
	about := s.about(ctx, false)
	s.answerJSON(ctx, r, struct {
		Version      string          `json:"protocolVersion"`
		Capabilities json.RawMessage `json:"capabilities"`
		Info         json.RawMessage `json:"serverInfo"`
		Instructions string          `json:"instructions,omitempty"`
	}{mcp.Negotiate(asked), about.Capabilities, about.Info, about.Instructions})
}

func (s *session) discover(ctx context.Context, r *request) {
	about := s.about(ctx, true)
	s.answerJSON(ctx, r, struct {
		Versions     []string        `json:"supportedVersions"`
		Capabilities json.RawMessage `json:"capabilities"`
		Info         json.RawMessage `json:"serverInfo"`
		Instructions string          `json:"instructions,omitempty"`
		cached
	}{[]string{mcp.Modern}, about.Capabilities, about.Info, about.Instructions, cacheable()})
}

// cached is what a modern list carries.
type cached struct {
	TTL   *int64 `json:"ttlMs,omitempty"`
	Scope string `json:"cacheScope,omitempty"`
}

func cacheable() cached {
	ttl := int64(listTTL)
	return cached{TTL: &ttl, Scope: "private"}
}

// list answers a request for one page of a list. Only a list that has nothing to
// wait for is made at once.
func (s *session) list(ctx context.Context, r *request, calls *crew.Crew) {
	method := r.msg.Method
	after, err := catalog.ParseCursor(method, r.params.Cursor)
	if err != nil {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "%v", err))
		return
	}
	s.lists(method)
	list := func(ctx context.Context) any {
		member, all, ok := s.srv.o.Catalog.List(ctx, s.who(), method)
		if !ok {
			return fault.New(fault.UnknownMethod, fault.Protocol, r.operation(), "unknown method %q", method)
		}
		s.lists(method)
		if method == mcp.ToolsList {
			s.gave(all)
			if who := s.who(); len(all) == 0 && !who.SeesOwn() { // it may have failed to start since the handshake
				if _, err := s.srv.o.Catalog.About(ctx, who); err != nil {
					s.unusable(ctx, who.Only, err)
				}
			}
		}
		part, last := catalog.Page(all, after)
		result := map[string]any{member: part}
		if last != "" {
			result["nextCursor"] = catalog.NewCursor(method, last)
		}
		if r.modern {
			c := cacheable()
			result["ttlMs"], result["cacheScope"] = *c.TTL, c.Scope
		}
		return result
	}
	if method == mcp.ToolsList && !s.srv.o.Catalog.Waits(s.who()) {
		s.answerJSON(ctx, r, list(ctx))
		return
	}
	s.aside(ctx, r, calls, list)
}

func (s *session) setLevel(ctx context.Context, r *request) {
	if !mcp.IsLevel(r.params.Level) {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "params.level must be one of %v", mcp.Levels()))
		return
	}
	s.tune(r)
	s.answer(ctx, r, json.RawMessage(`{}`))
}

// tune takes the level that a client sets.
func (s *session) tune(r *request) {
	level, _ := mcp.String(r.params.Level)
	s.mu.Lock()
	s.level = level
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
	s.count(r, 0, nil)
	s.deliver(ctx, r, outbox.Answer{Line: jsonrpc.AppendResult(nil, r.msg.ID, s.dress(r, result))})
}

// dress adds what a modern result must carry.
func (s *session) dress(r *request, result json.RawMessage) json.RawMessage {
	if !r.modern {
		return result
	}
	return jsonrpc.Prepend(result, s.dressing(r))
}

// dressing returns the members that a modern result must carry; "" for a legacy
// request.
func (s *session) dressing(r *request) string {
	if !r.modern {
		return ""
	}
	return fmt.Sprintf(`"resultType":"complete","_meta":{%q:%s}`, mcp.MetaServer, s.serverInfo())
}

// fail answers a request with a fault.
func (s *session) fail(ctx context.Context, r *request, f *fault.Record) {
	s.count(r, 0, f)
	if r.msg.Method == mcp.ToolsCall {
		s.logCall(r, nil, f, &tool.RemoteResult{})
	}
	s.deliver(ctx, r, outbox.Answer{Line: s.faultLine(r, f)})
}

// refuse answers line n with an error; a nil id is that of a line that could
// not be read.
func (s *session) refuse(ctx context.Context, n int64, id jsonrpc.ID, f *fault.Record) {
	if id == nil {
		n = 0 // nobody asks for it again
	}
	s.put(ctx, n, mcp.AppendFault(nil, id, "", "", f))
}

// faultLine returns the answer to a request that ended with a fault.
func (s *session) faultLine(r *request, f *fault.Record) []byte {
	return mcp.AppendFault(nil, r.msg.ID, r.msg.Method, s.dressing(r), f)
}
