package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A modern server answers a request with what it wants to know, and wants the
// request again with the answers. A legacy client knows nothing of that: it is
// asked by requests, and the daemon makes the request again, in another round.
// Each round is a call of its own, with a record, a kept answer and so on.

// maxRounds bounds how often a server may ask before it answers.
const maxRounds = 16

// A question is a request of a modern server that the daemon sends to a legacy
// client. It is guarded by the manager's mutex.
type question struct {
	session string
	line    []byte
	answer  chan reply // has room for the one answer
}

// A reply is the client's answer to a question. n is the number of its line, which is
// confirmed once the server has the answer.
type reply struct {
	n   int64
	msg jsonrpc.Message
}

// call takes a request to the server and waits for the answer, over as many rounds,
// processes and lives of the daemon as it takes. Each time a modern server asks a
// legacy client for input, one more round begins. Rounds that an earlier daemon has
// made are not made again.
func (m *Manager) call(
	ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall,
) (tool.RemoteResult, error) {
	var seen []int64 // lines of the client that the server has been told of, once it answers
	defer func() { m.seen(rc.Caller.Session, seen) }()
	for round := 0; ; round++ {
		res, err := m.round(ctx, s, o, rc, round)
		if err != nil || rc.Modern || !dialect.AsksForInput(res.Result) {
			return res, err
		}
		made, err := m.made(ctx, rc, round+1)
		if err != nil {
			return tool.RemoteResult{}, asFault(err, o)
		}
		if made { // by an earlier daemon
			seen = append(seen, m.heard(rc, round)...)
			continue
		}
		if round >= maxRounds {
			return res, fault.New(fault.DownstreamFailure, fault.Server, o.Operation(),
				"server %s has asked %d times and not answered", s.spec.Name, round+1)
		}
		next, lines, refusal, err := m.satisfy(ctx, s, o, rc, round, res.Result)
		seen = append(seen, lines...)
		if err != nil || refusal != nil {
			return tool.RemoteResult{Error: refusal, Replays: res.Replays}, err
		}
		rc = next
	}
}

// round makes one round of [Manager.call], or waits for it if it is under way. If the
// call ends without an answer to keep, the earlier rounds are dropped.
func (m *Manager) round(
	ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall, round int,
) (tool.RemoteResult, error) {
	key := calls.Key{Session: rc.Caller.Session, N: rc.N, Round: round}
	m.mu.Lock()
	c := m.calls[key]
	if c == nil {
		c = newCall(calls.NewCall(key, o.Own, o.Remote.Contract == tool.Convergent))
		m.calls[key] = c
	}
	m.mu.Unlock()
	res, err := m.follow(ctx, s, o, rc, c)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls[key] == nil { // it was cancelled, or never made: what came before is of no use
		for before := range round {
			if c := m.calls[calls.Key{Session: key.Session, N: key.N, Round: before}]; c != nil {
				m.dropLocked(c)
			}
		}
	}
	return res, err
}

// roundsLocked returns the calls, one for each round, that a line of a client has led
// to.
func (m *Manager) roundsLocked(session string, n int64) []*call {
	var all []*call
	for round := 0; ; round++ {
		c := m.calls[calls.Key{Session: session, N: n, Round: round}]
		if c == nil {
			return all
		}
		all = append(all, c)
	}
}

// made reports whether a round of a request has reached a server. After a restart of
// the daemon it blocks until the worker has said so.
func (m *Manager) made(ctx context.Context, rc *tool.RemoteCall, round int) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		c := m.calls[calls.Key{Session: rc.Caller.Session, N: rc.N, Round: round}]
		unsure := c.unsureLocked()
		if unsure == nil {
			return c.madeLocked(), nil
		}
		m.mu.Unlock()
		select {
		case <-unsure:
		case <-ctx.Done():
		}
		m.mu.Lock()
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
}

// unsureLocked returns a channel that is closed once it is known whether the call was
// made. It returns nil if that is known.
func (c *call) unsureLocked() chan struct{} {
	if c == nil || c.Phase() != calls.Open || c.up == nil {
		return nil
	}
	return c.up.unsure
}

// madeLocked reports whether the call was made. It is only right if unsureLocked
// returns nil.
func (c *call) madeLocked() bool { return c != nil && c.Phase().Made() }

// heard drops the client's answers to the questions of a round, since the server has
// them. It returns the numbers of their lines.
func (m *Manager) heard(rc *tool.RemoteCall, round int) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.calls[calls.Key{Session: rc.Caller.Session, N: rc.N, Round: round}]
	if c == nil || c.up == nil {
		return nil
	}
	var lines []int64
	maps.DeleteFunc(m.replies[rc.Caller.Session], func(id string, r reply) bool {
		of := strings.HasPrefix(id, questionID(c, ""))
		if of {
			lines = append(lines, r.n)
		}
		return of
	})
	return lines
}

// questionID returns the id of the question that a call's answer asks under a key. It
// names the worker and the write, so that the next daemon uses the same id and the
// client is not asked twice.
func questionID(c *call, key string) string { return fmt.Sprintf("%s:%d/%s", c.up.id, c.write, key) }

// satisfy asks the client for the input that a result requires, and returns the
// request of the next round. lines are the numbers of the client's lines with the
// answers. refusal is the JSON-RPC error with which the client answered, if it did.
func (m *Manager) satisfy(ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall, round int,
	result json.RawMessage) (
	next *tool.RemoteCall, lines []int64, refusal json.RawMessage, err error,
) {
	answers, lines, refusal, err := m.inquiries(ctx, s, o, rc, round, jsonrpc.Field(result, "inputRequests"))
	if err != nil || refusal != nil {
		return nil, lines, refusal, err
	}
	params, err := jsonrpc.Rewrite(rc.Params, func(key string, value []byte) []byte {
		if key == "inputResponses" || key == "requestState" {
			return nil // of the round before
		}
		return value
	})
	if err != nil {
		return nil, lines, nil, asFault(err, o)
	}
	members := `"inputResponses":{` + strings.Join(answers, ",") + `}`
	if state := jsonrpc.Field(result, "requestState"); state != nil {
		members += `,"requestState":` + string(state)
	}
	again := *rc
	again.Params = jsonrpc.Prepend(params, members)
	return &again, lines, nil, nil
}

// inquiries sends all questions to the client at once and waits for the answers. It
// returns them as members of a JSON object. A question for a person may take as long
// as a call, any other as long as an answer.
func (m *Manager) inquiries(ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall, round int,
	requests json.RawMessage) (
	answers []string, lines []int64, refusal json.RawMessage, err error,
) {
	asked := map[string]*question{}
	defer func() { m.unask(asked) }()
	person := false // is asked
	err = jsonrpc.Fields(requests, func(key string, request []byte) error {
		method, _ := mcp.String(jsonrpc.Field(request, "method"))
		person = person || asksPerson(method)
		name, err := json.Marshal(key)
		if err != nil { // strings encode
			return err
		}
		own, err := m.question(rc, round, key, request, asked)
		if own != nil {
			answers = append(answers, string(name)+":"+string(own))
		}
		return err
	})
	if len(requests) == 0 {
		err = nil // it only wants to be asked again
	}
	if err != nil {
		return nil, nil, nil, asFault(err, o)
	}
	timeout := s.now().Timeout
	if person {
		timeout = s.now().MaxTimeout
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	for _, key := range slices.Sorted(maps.Keys(asked)) {
		select {
		case r := <-asked[key].answer:
			if lines = append(lines, r.n); r.msg.Error != nil {
				return nil, lines, r.msg.Error, nil
			}
			name, err := json.Marshal(key)
			if err != nil { // strings encode
				return nil, lines, nil, err
			}
			answers = append(answers, string(name)+":"+string(r.msg.Result))
		case <-limit.C:
			m.mu.Lock()
			c := m.calls[calls.Key{Session: rc.Caller.Session, N: rc.N, Round: round}]
			m.mu.Unlock()
			return nil, lines, nil, m.timedOut(c, o,
				"server %s has asked the client something, which has not answered within %v", s.spec.Name, timeout)
		case <-ctx.Done():
			return nil, lines, nil, asFault(context.Cause(ctx), o)
		}
	}
	return answers, lines, nil, nil
}

// question sends one question to the client and adds it to asked. If the daemon
// itself knows the answer, it returns that instead. A reply that is already there is
// used at once.
func (m *Manager) question(
	rc *tool.RemoteCall, round int, key string, request []byte, asked map[string]*question,
) (own json.RawMessage, err error) {
	method, _ := mcp.String(jsonrpc.Field(request, "method"))
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.calls[calls.Key{Session: rc.Caller.Session, N: rc.N, Round: round}]
	if c == nil || c.up == nil {
		return nil, errors.New("the call is not known any more")
	}
	u := c.up
	if method == mcp.RootsList && u.inst.key.scope == Project && u.inst.root != "" {
		return dialect.Roots(u.inst.root), nil
	}
	if u.owner.Session != rc.Caller.Session {
		return nil, fault.New(fault.DownstreamFailure, fault.Server, mcp.ToolsCall,
			"server %s asks for %s, which is for servers of scope \"session\", each of which has one client",
			u.name(), method)
	}
	id := questionID(c, key)
	quoted, err := json.Marshal(id)
	if err != nil { // strings encode
		return nil, err
	}
	q := &question{
		session: rc.Caller.Session, answer: make(chan reply, 1),
		line: jsonrpc.AppendRequest(nil, quoted, method, jsonrpc.Field(request, "params")),
	}
	asked[key] = q
	if r, ok := m.replies[q.session][id]; ok {
		delete(m.replies[q.session], id)
		q.answer <- r
		return nil, nil
	}
	m.questions[id] = q
	if client := m.clients[q.session]; client != nil {
		client.Ask(q.line)
	}
	return nil, nil
}

// unask forgets questions; later answers to them are dropped.
func (m *Manager) unask(asked map[string]*question) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.questions, func(_ string, q *question) bool {
		return slices.Contains(slices.Collect(maps.Values(asked)), q)
	})
}

// repliedLocked takes a client's answer, its line n, to the question with that id. An
// answer that arrives before this daemon has asked is kept, if a process of an
// earlier daemon can have asked. It returns false if the answer belongs to no
// question.
func (m *Manager) repliedLocked(session string, n int64, id string, msg jsonrpc.Message) bool {
	r := reply{n, clone(msg)}
	if q := m.questions[id]; q != nil && q.session == session {
		delete(m.questions, id)
		q.answer <- r
		return true
	}
	worker, rest, _ := strings.Cut(id, ":")
	if !strings.Contains(rest, "/") {
		return false
	}
	for u := range m.processes {
		if u.id != worker || u.owner.Session != session || !u.restored || m.answeredLocked(u, rest) {
			continue
		}
		if m.replies[session] == nil {
			m.replies[session] = map[string]reply{}
		}
		if len(m.replies[session]) < maxAsks {
			m.replies[session][id] = r
			return true
		}
	}
	return false
}

// answeredLocked reports whether the round after the one that place names was made.
// Then the question was answered, and this daemon will not ask it.
func (m *Manager) answeredLocked(u *upstream, place string) bool {
	write, _, _ := strings.Cut(place, "/")
	c := u.calls[dialect.Number([]byte(write))]
	if c == nil {
		return true
	}
	next := m.calls[calls.Key{Session: c.Key.Session, N: c.Key.N, Round: c.Key.Round + 1}]
	return next.madeLocked() && next.unsureLocked() == nil
}

// askAgainLocked sends the open questions of a session again after its client is
// back. Its proxy drops those that it has already passed on.
func (m *Manager) askAgainLocked(session string) {
	for _, q := range m.questions {
		if c := m.clients[session]; c != nil && q.session == session {
			c.Ask(q.line)
		}
	}
}

// seen confirms lines of a client whose content has reached the server.
func (m *Manager) seen(session string, lines []int64) {
	m.mu.Lock()
	c := m.clients[session]
	closed := m.closed
	m.mu.Unlock()
	if c == nil || closed { // the next daemon may need them
		return
	}
	for _, n := range lines {
		c.Seen(n)
	}
}
