package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/question"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A modern server answers a request with what it wants to know, and wants the
// request again with the answers. A legacy client knows nothing of that: it is
// asked by requests, and the daemon makes the request again, in another round.
// Each round is a call of its own, with a record, a kept answer and so on.

// call takes a request to the server and waits for the answer, over as many rounds,
// processes and lives of the daemon as it takes. Each time a modern server asks a
// legacy client for input, one more round begins. Rounds that an earlier daemon has
// made are not made again.
func (r *request) call(ctx context.Context) (tool.RemoteResult, error) {
	var seen []int64 // lines of the client that the server has been told of, once it answers
	defer func() { r.seen(r.rc.Caller.Session, seen) }()
	for round := 0; ; round++ {
		res, err := r.round(ctx, round)
		if err != nil || r.rc.Modern && !r.isDetached() || !dialect.AsksForInput(res.Result) {
			return res, err
		}
		made, err := r.made(ctx, round+1)
		if err != nil {
			return tool.RemoteResult{}, AsFault(err, r.o)
		}
		if made { // by an earlier daemon
			seen = append(seen, r.heard(round)...)
			continue
		}
		if round >= maxRounds {
			return res, fault.New(fault.DownstreamFailure, fault.Server, r.o.Operation(),
				"server %s has asked %d times and not answered", r.s.Entry().Name, round+1)
		}
		satisfy := r.satisfy
		if r.isDetached() {
			satisfy = r.satisfyByTask
		}
		next, lines, refusal, err := satisfy(ctx, round, res.Result)
		seen = append(seen, lines...)
		if err != nil || refusal != nil {
			return tool.RemoteResult{Error: refusal, Replays: res.Replays}, err
		}
		r = next
	}
}

// round makes one round of [request.call], or waits for it if it is under way. If the
// call ends without an answer to keep, the earlier rounds are dropped.
func (r *request) round(ctx context.Context, round int) (tool.RemoteResult, error) {
	key := calls.Key{Session: r.rc.Caller.Session, N: r.rc.N, Round: round}
	r.hub.Mu.Lock()
	c := r.hub.Calls[key]
	if c == nil {
		c = upstream.NewCall(calls.NewCall(key, r.o.Own, r.o.Remote.Contract == tool.Convergent))
		r.hub.Calls[key] = c
		if round == 0 {
			c.Doubt = r.rc.Doubt
		}
	}
	r.hub.Mu.Unlock()
	res, err := r.follow(ctx, c)
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	if r.hub.Calls[key] == nil { // it was cancelled, or never made: what came before is of no use
		for before := range round {
			if c := r.hub.Calls[calls.Key{Session: key.Session, N: key.N, Round: before}]; c != nil {
				r.hub.DropLocked(c)
			}
		}
	}
	return res, err
}

// made reports whether a round of a request has reached a server. After a restart of
// the daemon it blocks until the worker has said so.
func (r *request) made(ctx context.Context, round int) (bool, error) {
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	for {
		c := r.callLocked(round)
		unsure := c.UnsureLocked()
		if unsure == nil {
			return c.MadeLocked(), nil
		}
		r.hub.Mu.Unlock()
		select {
		case <-unsure:
		case <-ctx.Done():
		}
		r.hub.Mu.Lock()
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
}

// heard drops the client's answers to the questions of a round, since the server has
// them. It returns the numbers of their lines.
func (r *request) heard(round int) []int64 {
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	c := r.callLocked(round)
	if c == nil || c.Up == nil {
		return nil
	}
	var lines []int64
	maps.DeleteFunc(r.replies[r.rc.Caller.Session], func(id string, a reply) bool {
		of := strings.HasPrefix(id, questionIDLocked(c, ""))
		if of {
			lines = append(lines, a.n)
		}
		return of
	})
	return lines
}

// satisfy asks the client for the input that a result requires, and returns the
// request of the next round. lines are the numbers of the client's lines with the
// answers. refusal is the JSON-RPC error with which the client answered, if it did.
func (r *request) satisfy(ctx context.Context, round int, result json.RawMessage) (
	next *request, lines []int64, refusal json.RawMessage, err error,
) {
	answers, lines, refusal, err := r.inquiries(ctx, round, jsonrpc.Field(result, "inputRequests"))
	if err != nil || refusal != nil {
		return nil, lines, refusal, err
	}
	next, err = r.again(result, answers)
	return next, lines, nil, err
}

// again returns the request of the next round, with the client's answers to what a result
// requires: members of an object.
func (r *request) again(result json.RawMessage, answers []string) (*request, error) {
	params, err := jsonrpc.Rewrite(r.rc.Params, func(key string, value []byte) []byte {
		if key == "inputResponses" || key == "requestState" {
			return nil // of the round before
		}
		return value
	})
	if err != nil {
		return nil, AsFault(err, r.o)
	}
	members := `"inputResponses":{` + strings.Join(answers, ",") + `}`
	if state := jsonrpc.Field(result, "requestState"); state != nil {
		members += `,"requestState":` + string(state)
	}
	again, rc := *r, *r.rc
	rc.Params = jsonrpc.Prepend(params, members)
	again.rc = &rc
	return &again, nil
}

// inquiries sends all questions to the client at once and waits for the answers. It
// returns them as members of a JSON object. A question for a person may take as long
// as a call, any other as long as an answer.
func (r *request) inquiries(ctx context.Context, round int, requests json.RawMessage) (
	answers []string, lines []int64, refusal json.RawMessage, err error,
) {
	asked := map[string]*inquiry{}
	defer func() { r.unask(asked) }()
	person := false // is asked
	err = jsonrpc.Fields(requests, func(key string, request []byte) error {
		method, _ := mcp.String(jsonrpc.Field(request, "method"))
		person = person || question.AsksPerson(method)
		name, err := json.Marshal(key)
		if err != nil { // strings encode
			return err
		}
		own, err := r.question(round, key, request, asked)
		if own != nil {
			answers = append(answers, string(name)+":"+string(own))
		}
		return err
	})
	if len(requests) == 0 {
		err = nil // it only wants to be asked again
	}
	if err != nil {
		return nil, nil, nil, AsFault(err, r.o)
	}
	timeout := r.s.Entry().Timeout
	if person {
		timeout = r.s.Entry().MaxTimeout
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	for _, key := range slices.Sorted(maps.Keys(asked)) {
		select {
		case a := <-asked[key].answer:
			if lines = append(lines, a.n); a.msg.Error != nil {
				return nil, lines, a.msg.Error, nil
			}
			name, err := json.Marshal(key)
			if err != nil { // strings encode
				return nil, lines, nil, err
			}
			answers = append(answers, string(name)+":"+string(a.msg.Result))
		case <-limit.C:
			r.hub.Mu.Lock()
			c := r.callLocked(round)
			r.hub.Mu.Unlock()
			return nil, lines, nil, r.timedOut(c,
				"server %s has asked the client something, which has not answered within %v", r.s.Entry().Name, timeout)
		case <-ctx.Done():
			return nil, lines, nil, AsFault(context.Cause(ctx), r.o)
		}
	}
	return answers, lines, nil, nil
}

// question sends one question to the client and adds it to asked. If the daemon
// itself knows the answer, it returns that instead. A reply that is already there is
// used at once.
func (r *request) question(
	round int, key string, request []byte, asked map[string]*inquiry,
) (own json.RawMessage, err error) {
	method, _ := mcp.String(jsonrpc.Field(request, "method"))
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	c := r.callLocked(round)
	if c == nil || c.Up == nil {
		return nil, errors.New("the call is not known any more")
	}
	u := c.Up
	if method == mcp.RootsList && u.Owner.Session == "" && u.Owner.Root != "" {
		return dialect.Roots(u.Owner.Root), nil
	}
	if r.rc.Caller.Guest != "" {
		return nil, fault.New(fault.DownstreamFailure, fault.Server, mcp.ToolsCall,
			"server %s asks its client for %s: guests are asked nothing", u.Server, method)
	}
	if u.Owner.Session != r.rc.Caller.Session {
		return nil, fault.New(fault.DownstreamFailure, fault.Server, mcp.ToolsCall,
			"server %s asks for %s, which is for servers of scope \"session\", each of which has one client",
			u.Server, method)
	}
	id := questionIDLocked(c, key)
	quoted, err := json.Marshal(id)
	if err != nil { // strings encode
		return nil, err
	}
	q := &inquiry{
		session: r.rc.Caller.Session, answer: make(chan reply, 1),
		line: jsonrpc.AppendRequest(nil, quoted, method, jsonrpc.Field(request, "params")),
	}
	asked[key] = q
	if a, ok := r.replies[q.session][id]; ok {
		delete(r.replies[q.session], id)
		q.by = a.n
		q.answer <- a
	}
	if r.questions[id] = q; q.by > 0 {
		return nil, nil
	}
	if client := r.hub.Clients[q.session]; client != nil {
		client.Ask(q.line)
	}
	return nil, nil
}

// maxRounds bounds how often a server may ask before it answers.
const maxRounds = 16

// An inquiry is a request of a modern server that the daemon sends to a legacy
// client. It is guarded by the hub's mutex.
type inquiry struct {
	session string
	line    []byte
	by      int64      // the client's line with the answer; 0 as long as there is none
	answer  chan reply // has room for the one answer
}

// A reply is the client's answer to a question. n is the number of its line, which is
// confirmed once the server has the answer.
type reply struct {
	n   int64
	msg jsonrpc.Message
}

// roundsLocked returns the calls, one for each round, that a line of a client has led
// to.
func (d *Dispatcher) roundsLocked(session string, n int64) []*upstream.Call {
	var all []*upstream.Call
	for round := 0; ; round++ {
		c := d.hub.Calls[calls.Key{Session: session, N: n, Round: round}]
		if c == nil {
			return all
		}
		all = append(all, c)
	}
}

// questionIDLocked returns the id of the question that a call's answer asks under a key. It
// names the worker and the write, so that the next daemon uses the same id and the
// client is not asked twice.
func questionIDLocked(c *upstream.Call, key string) string {
	return c.RefLocked() + "/" + key
}

// unask forgets questions; later answers to them are dropped.
func (d *Dispatcher) unask(asked map[string]*inquiry) {
	d.hub.Mu.Lock()
	defer d.hub.Mu.Unlock()
	maps.DeleteFunc(d.questions, func(_ string, q *inquiry) bool {
		return slices.Contains(slices.Collect(maps.Values(asked)), q)
	})
}

// repliedLocked takes a client's answer, its line n, to the question with that id. An
// answer that arrives before this daemon has asked is kept, if a process of an
// earlier daemon can have asked. It returns false if the answer belongs to no
// question, or to one that has the answer of another line: the first one counts.
func (d *Dispatcher) repliedLocked(session string, n int64, id string, msg jsonrpc.Message) bool {
	r := reply{n, msg.Clone()}
	if q := d.questions[id]; q != nil && q.session == session {
		if q.by == 0 {
			q.by = n
			q.answer <- r
		}
		return q.by == n // also if the proxy has sent the line again
	}
	worker, rest, _ := strings.Cut(id, ":")
	if !strings.Contains(rest, "/") {
		return false
	}
	for u := range d.hub.Processes {
		if u.ID != worker || u.Owner.Session != session || !u.Restored || d.answeredLocked(u, rest) {
			continue
		}
		if first, given := d.replies[session][id]; given {
			return first.n == n
		}
		if d.replies[session] == nil {
			d.replies[session] = map[string]reply{}
		}
		if len(d.replies[session]) < question.Max {
			d.replies[session][id] = r
			return true
		}
	}
	return false
}

// answeredLocked reports whether the round after the one that place names was made.
// Then the question was answered, and this daemon will not ask it.
func (d *Dispatcher) answeredLocked(u *upstream.Process, place string) bool {
	write, _, _ := strings.Cut(place, "/")
	c := u.Calls[dialect.Number([]byte(write))]
	if c == nil {
		return true
	}
	next := d.hub.Calls[calls.Key{Session: c.Key.Session, N: c.Key.N, Round: c.Key.Round + 1}]
	return next.MadeLocked() && next.UnsureLocked() == nil
}

// AskAgainLocked sends the open questions of a session again after its client is
// back. Its proxy drops those that it has already passed on.
func (d *Dispatcher) AskAgainLocked(session string) {
	for _, q := range d.questions {
		if c := d.hub.Clients[session]; c != nil && q.session == session && q.by == 0 {
			c.Ask(q.line)
		}
	}
}

// seen confirms lines of a client whose content has reached the server.
func (d *Dispatcher) seen(session string, lines []int64) {
	d.hub.Mu.Lock()
	c := d.hub.Clients[session]
	closed := d.hub.Closed
	d.hub.Mu.Unlock()
	if c == nil || closed { // the next daemon may need them
		return
	}
	for _, n := range lines {
		c.Seen(n)
	}
}

// RespondLocked takes the answer of a session's client, its line n, to the server that asked.
// It reports whether a server did.
func (d *Dispatcher) RespondLocked(session string, n int64, msg jsonrpc.Message) bool {
	id, ok := mcp.String(json.RawMessage(msg.ID))
	return ok && (d.repliedLocked(session, n, id, msg) || d.hub.RespondedLocked(session, n, id, msg))
}

// callLocked returns the call of a round of the request, or nil.
func (r *request) callLocked(round int) *upstream.Call {
	return r.hub.Calls[calls.Key{Session: r.rc.Caller.Session, N: r.rc.N, Round: round}]
}
