package session

import (
	"context"
	"encoding/json"
	"strings"

	"holdline/daemon/session/crew"
	"holdline/daemon/session/held"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/profile"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// answerAside calls find in a goroutine of calls, and returns at once. The goroutine answers r with
// what find returns: a fault, a refusal, or a value to encode as JSON. It sends nothing if the
// client has cancelled r, or if find returns [tool.ErrStopping]: the next daemon answers. At the
// client's limit of calls in flight r is answered with a fault, and find is not called.
func (s *session) answerAside(ctx context.Context, r *request, calls *crew.Crew, find func(ctx context.Context) any) {
	var v any
	s.startWork(ctx, r, calls, func(ctx context.Context) error {
		v = find(ctx)
		err, _ := v.(error)
		return err
	}, func(why error) {
		if why != nil {
			return
		}
		switch v := v.(type) {
		case *fault.Record:
			s.fail(ctx, r, v)
		case refusal:
			s.countRequest(r, 0, nil)
			s.deliver(ctx, r, outbox.Answer{Line: jsonrpc.AppendFailure(nil, r.msg.ID, v.raw)})
		case listed:
			s.giveList(ctx, r, v.page, v.digest)
		default:
			s.answerJSON(ctx, r, v)
		}
	})
}

// listMethods ask for a list. Hosted servers answer routedMethods, besides tool calls.
var (
	listMethods   = []string{mcp.ToolsList, mcp.PromptsList, mcp.ResourcesList, mcp.TemplatesList}
	routedMethods = []string{mcp.PromptsGet, mcp.ResourcesRead, mcp.Complete}
)

// describe returns what the handshake says: of Holdline, or of the session's one server, for which
// it blocks while that is starting, and keeps its name for serverInfo. If that server cannot be used,
// the instructions say what is wrong, and the proxy is told to print that. It takes s.mu.
func (s *session) describe(ctx context.Context, modern bool) tool.About {
	who := s.who()
	own := tool.About{Info: s.srv.serverInfo}
	if who.SeesOwn() {
		own.Capabilities = s.srv.o.Catalog.Capabilities(who, modern)
		var words []string
		for _, one := range s.srv.o.Instructions {
			if s.srv.o.Catalog.Own(&who, one[0]) != nil {
				words = append(words, one[1])
			}
		}
		own.Instructions = strings.Join(words, " ")
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

// unusable logs that the session's one server cannot be used because of err, and queues a control
// line that the proxy writes to its stderr: few clients show instructions to their users. It
// returns the words for the instructions. It takes s.mu.
func (s *session) unusable(ctx context.Context, server string, err error) string {
	f := fault.From(err, fault.Server, mcp.Initialize)
	words := "The MCP server " + server + " cannot be used now: " + f.Fault.Detail
	s.log.WarnContext(ctx, "session for a server that cannot be used", "server", server, "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur != nil {
		s.cur.Out.Control(protocol.Control{Holdline: protocol.Version, Message: words})
	}
	return words
}

// serverInfo returns that of the one server, once describe has it, else Holdline's. It takes s.mu.
func (s *session) serverInfo() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info != nil {
		return s.info
	}
	return s.srv.serverInfo
}

// forwardResponse passes on the client's answer in line n. If no server waits for it, see Seen.
func (s *session) forwardResponse(n int64, msg jsonrpc.Message) {
	if !s.srv.o.Hosted.Respond(s.hash, n, msg) {
		s.Seen(n) // no server waits for it
	}
}

// Caller returns the client of the session as it is known now. It takes s.mu.
func (s *session) Caller() tool.Caller { return s.who() }

// Era returns the era of the client's latest request; "" before the first. It takes s.mu.
func (s *session) Era() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profile.Era
}

// Revision returns the revision of MCP that a legacy client speaks. It takes s.mu.
func (s *session) Revision() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profile.Revision
}

// Capabilities returns what the client declared; nil before that. It takes s.mu.
func (s *session) Capabilities() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profile.Capabilities
}

// Ask queues a server's message for the client, and never blocks. It returns false if the client is
// not connected. It drops a notification if there is no room, a request only if the queue has too
// many bytes, and still returns true. line has no newline; Ask does not keep it. It takes s.mu.
func (s *session) Ask(line []byte) bool {
	s.mu.Lock()
	l := s.cur
	s.mu.Unlock()
	if l == nil {
		return false
	}
	whole := append(append(make([]byte, 0, len(line)+1), line...), '\n')
	if jsonrpc.Field(line, "id") == nil {
		l.Out.Offer(whole, nil)
	} else {
		l.Out.Ask(whole)
	}
	return true
}

// levelOf returns the log level that applies to r; "" for none. It takes s.mu for a legacy request.
func (s *session) levelOf(r *request) string {
	if r.modern {
		level, _ := mcp.String(r.params.Meta.Level)
		return level
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profile.Level
}

// Level returns the most verbose level that the client ever wanted; "" for none. It takes s.mu.
func (s *session) Level() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profile.MostVerbose()
}

// Log queues a server's log message, as [session.offerLine] does, if asked is true, for a request
// under way that wants it, or if the level that the client has set covers it. It takes s.mu.
func (s *session) Log(level string, params json.RawMessage, asked bool) {
	s.mu.Lock()
	covers := mcp.Covers(s.profile.Level, level)
	s.mu.Unlock()
	if asked || covers {
		s.offerLine(append(jsonrpc.AppendRequest(nil, nil, mcp.LogMessage, params), '\n'), nil)
	}
}

// giveList answers r with one page of a list, and records that the client has the list, here and at
// its proxy: there by a control line behind the answer. digest is that of the whole list; it is "" on
// a page that follows another one, which was given with its digest. A change since the list was made
// is announced behind the answer. It may block, see [session.deliver].
func (s *session) giveList(ctx context.Context, r *request, page any, digest string) {
	b, err := jsonrpc.Marshal(page) // unlike json.Marshal, it leaves the characters of servers as they are
	if err != nil {
		s.fail(ctx, r, fault.New(fault.InternalFailure, fault.Host, r.operation(), "encoding the answer: %v", err))
		return
	}
	s.countRequest(r, 0, nil)
	a := outbox.Answer{Line: s.formOf(r).Result(b)}
	if method := r.msg.Method; digest != "" {
		a.Behind = s.keepLine(held.KeepGiven(method, digest))
		a.Queued = func() { s.lists.Given(method, digest) }
	}
	s.deliver(ctx, r, a)
	s.ListChanged(held.ChangeOf(r.msg.Method))
}

// keepLine returns a control line that has the proxy keep facts; nil if there are none, or if the
// proxy keeps none.
func (s *session) keepLine(facts map[string]string) []byte {
	if !s.keeps || len(facts) == 0 {
		return nil
	}
	return protocol.Append(nil, protocol.Control{Holdline: protocol.Version, Keep: facts})
}

// look returns the digests of lists as the client would be given them now, by the methods that ask
// for them. It never blocks. It returns nil if it is not known which servers the client sees: once it
// is, the servers call ListChanged. It takes s.mu.
func (s *session) look(methods []string) map[string]string {
	who, now := s.who(), map[string]string{}
	for _, method := range methods {
		digest, known := s.srv.o.Catalog.Peek(who, method)
		if !known {
			return nil
		}
		now[method] = digest
	}
	return now
}

// lookAtLists announces all lists that have changed since the client was given them.
func (s *session) lookAtLists() {
	for _, notification := range []string{mcp.ToolsChanged, mcp.PromptsChanged, mcp.ResourcesChanged} {
		s.ListChanged(notification)
	}
}

// ListChanged looks whether the client would be given other lists now than it was, of those with
// that notification, and sends it then: to a legacy client if it has asked for one of them since the
// last notification, to a modern one in each subscription. The proxy keeps what was announced. It
// never blocks, and sends nothing if the client is not connected, or without room: what was not sent
// is not recorded either. It takes s.looking, and s.mu.
func (s *session) ListChanged(notification string) {
	lists := s.lists.Held(notification)
	if len(lists) == 0 {
		return
	}
	s.looking.Lock() // what was looked at first is announced first
	defer s.looking.Unlock()
	now := s.look(lists)
	if now == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock() // so that the line stands before all that other goroutines queue afterwards
	if s.cur == nil {
		return // its lists are looked at when it is back
	}
	lines := s.listens.Changed(notification)
	legacy := s.profile.Era == profile.Legacy
	if legacy {
		lines = [][]byte{jsonrpc.AppendRequest(nil, nil, notification, nil)}
	}
	announced := false
	for i, line := range lines {
		line = append(line, '\n')
		if i == len(lines)-1 {
			line = append(line, s.keepLine(held.KeepTold(now))...)
		}
		s.cur.Out.Offer(line, func() bool {
			announced = announced || s.lists.Announce(notification, now, legacy)
			return announced
		})
	}
}
