package session

import (
	"context"
	"encoding/json"
	"fmt"

	"holdline/daemon/session/crew"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/profile"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// aside makes an answer that may take a while in a goroutine that calls waits
// for, as a request in flight: it can be cancelled.
func (s *session) aside(ctx context.Context, r *request, calls *crew.Crew, find func(ctx context.Context) any) {
	var v any
	s.start(ctx, r, calls, func(ctx context.Context) error {
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
			s.count(r, 0, nil)
			s.deliver(ctx, r, outbox.Answer{Line: jsonrpc.AppendFailure(nil, r.msg.ID, v.raw)})
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

// about returns what the handshake says: of holdline, or of the one server
// that the session is for. If that is not well the handshake succeeds all the
// same, and says what is wrong.
func (s *session) about(ctx context.Context, modern bool) tool.About {
	who := s.who()
	own := tool.About{Info: s.srv.serverInfo, Instructions: s.srv.o.Instructions}
	if who.SeesOwn() {
		own.Capabilities = s.srv.o.Catalog.Capabilities(who, modern)
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
		s.cur.Out.Control(protocol.Control{Holdline: protocol.Version, Message: words})
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

// noteLists is [held.Lists.Note].
func (s *session) noteLists(methods ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists.Note(methods...)
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
	return s.profile.Era
}

// Capabilities are those that the client declared.
func (s *session) Capabilities() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profile.Capabilities
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
		l.Out.Offer(whole, nil)
	} else {
		l.Out.Ask(whole)
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
	return s.profile.Level
}

// Level is the most verbose level of log messages that the client has ever
// asked for in a request, or that it has set.
func (s *session) Level() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profile.MostVerbose()
}

// Log passes on a log message of a server, if a request under way has asked for
// it or the level that the client has set covers it.
func (s *session) Log(level string, params json.RawMessage, asked bool) {
	s.mu.Lock()
	covers := mcp.Covers(s.profile.Level, level)
	s.mu.Unlock()
	if asked || covers {
		s.offer(append(jsonrpc.AppendRequest(nil, nil, mcp.LogMessage, params), '\n'), nil)
	}
}

// noteTools is [held.Lists.NoteTools]. What hosted servers offer changes no list of a
// client that searches for their tools.
func (s *session) noteTools(tools []tool.Listing) {
	searches := s.srv.o.Catalog.Searches(s.who())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists.NoteTools(tools, searches)
}

// holdsTools reports whether a list of tools built now is known to equal the client's.
func (s *session) holdsTools() bool {
	who := s.who()
	if !s.srv.o.Catalog.Searches(who) {
		return false
	}
	_, list, _ := s.srv.o.Catalog.List(context.Background(), who, mcp.ToolsList) // has nothing to wait for
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists.HasTools(list)
}

// ListChanged announces that a list has changed: to a legacy client that has asked
// for it since the last announcement, to a modern one in each subscription to it.
func (s *session) ListChanged(method string) {
	if method == mcp.ToolsChanged && s.holdsTools() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock() // so that nothing that is queued meanwhile comes before
	if s.cur == nil {
		return // whoever comes back is taken to have lists
	}
	if s.profile.Era == profile.Legacy {
		if s.lists.TakeChange(method) {
			s.cur.Out.Offer(append(jsonrpc.AppendRequest(nil, nil, method, nil), '\n'), nil)
		}
		return
	}
	for _, l := range s.listens {
		if l.Granted[method] {
			params := fmt.Appendf(nil, `{"_meta":{%q:%s}}`, mcp.MetaSubscription, l.ID)
			s.cur.Out.Offer(append(jsonrpc.AppendRequest(nil, nil, method, params), '\n'), nil)
		}
	}
}
