package session

import (
	"context"
	"encoding/json"
	"strings"

	"holdline/daemon/session/crew"
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

// noteLists calls [held.Lists.Note] for lists that the client will hold. It takes s.mu.
func (s *session) noteLists(methods ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists.Note(methods...)
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

// noteTools calls [held.Lists.NoteTools] for the tools that the client was given. Hosted servers
// change no list of a client that searches for their tools. It takes s.mu.
func (s *session) noteTools(tools []tool.Listing) {
	searches := s.srv.o.Catalog.Searches(s.who())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists.NoteTools(tools, searches)
}

// holdsTools reports whether the client is known to hold exactly the present list of tools. It
// returns false for a client that does not search, without building the list, which has the tools
// of hosted servers. It waits for no server. It takes s.mu.
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

// ListChanged sends the notification method: to a legacy client if it has asked for the list since
// the last one, to a modern one in each subscription to the list. It never blocks, and sends
// nothing if the client is not connected or holds the same tools, or without room. It takes s.mu.
func (s *session) ListChanged(method string) {
	if method == mcp.ToolsChanged && s.holdsTools() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock() // so that the line stands before all that other goroutines queue afterwards
	if s.cur == nil {
		return // a client that comes back counts as one that holds all lists
	}
	if s.profile.Era == profile.Legacy {
		// A change that is dropped was not announced: the next one is.
		s.cur.Out.Offer(append(jsonrpc.AppendRequest(nil, nil, method, nil), '\n'), func() bool {
			return s.lists.TakeChange(method)
		})
		return
	}
	for _, line := range s.listens.Changed(method) {
		s.cur.Out.Offer(line, nil)
	}
}
