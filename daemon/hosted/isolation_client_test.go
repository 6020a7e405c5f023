package hosted_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"holdline/protocol"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// ids are the ids that all clients and servers use, most of them unusual. Some are equal,
// though they are spelled differently.
var ids = []string{
	`1`, `"1"`, `1.0`, `1e0`, `"\u0031"`, `2`, `"2"`, `3`, `7`, `"7"`, `-1`, `0`, `-0`, `1.5`, `12345678901234567890`,
	`"a"`, `"\u0061"`, `"a\/b"`, `""`, `"\ud83d\ude00"`, `10`, `11`, `12`, `13`, `14`, `15`,
}

// States of a request.
const (
	waiting = iota
	answered
)

// request is a request of a client. Its fields are guarded by the world's mutex.
type request struct {
	c         *client
	n         int64 // number of its line
	id, token string
	secret    string // "" if the daemon answers the request itself
	server    string
	args      string
	line      string
	at        *upstream // the server process that has it
	state     int
	list      bool
	listen    bool
	cancelled bool       // by its client, which no longer waits
	processed bool       // the daemon has read the cancellation
	passes    []*request // requests cancelled before this one, whose answer proves that they were read
}

// client is a session: the client and its proxy in one. Its fields are guarded by the
// world's mutex.
type client struct {
	w       *world
	number  int
	modern  bool
	loud    bool   // it asked for log messages
	only    string // the only server that it sees, by the server's own names; "" for all
	project string
	cwd     string
	uuid    string

	conn     *net.UnixConn // nil while it is not connected
	received int64         // lines received, not counting control lines
	got      int64         // how many of these it has confirmed
	n        int64         // number of the last line
	state    []saved       // lines to send again after each resume
	open     []*request    // not answered, and not known to be cancelled
	asked    map[string]string
	replies  []saved // answers to servers that are not confirmed
	has      bool    // as far as it knows, it has the current list of tools
	told     int     // how often it was notified that the list changed
	listen   string  // id of its subscription
	secrets  int
}

// saved is a line that was sent.
type saved struct {
	n    int64
	line string
}

// lineLocked counts a line that will be sent, and returns its number.
func (c *client) lineLocked() int64 {
	c.n++
	return c.n
}

// sender returns a func that sends lines on the present connection.
func (c *client) sender(lines ...string) func() {
	conn := c.conn
	text := strings.Join(lines, "\n") + "\n"
	c.w.trace("client %d says %s", c.number, text)
	return func() { _, _ = conn.Write([]byte(text)) } // a proxy sends again what a broken connection did not take
}

// meta returns the members of a request's _meta, with a progress token if token is not "".
func (c *client) meta(token string) string {
	var members []string
	if c.modern {
		members = append(members,
			fmt.Sprintf(`%q:%q,%q:{"sampling":{}}`, mcp.MetaVersion, mcp.Modern, mcp.MetaCapabilities))
	}
	if token != "" {
		members = append(members, `"progressToken":`+token)
	}
	return strings.Join(members, ",")
}

// connectLocked returns a func that connects, for the first time or again.
func (c *client) connectLocked() func() {
	w := c.w
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		w.failLocked("client %d: %v", c.number, err)
		return func() {}
	}
	c.conn, c.received, c.got = conn.(*net.UnixConn), 0, 0
	g := protocol.Greeting{
		Holdline: protocol.Version, Role: protocol.RoleMCP, Session: c.uuid, Identity: []string{"i", "j"}[c.number%2],
		Project: c.project, Cwd: c.cwd, Server: c.only,
	}
	lines := []string{""}
	if c.n > 0 {
		g.Resume, g.Store, g.Next = true, "st", c.n+1
		lines = append(lines, c.replayLocked(&g)...)
		c.has = true
	} else {
		lines = append(lines, c.shakeLocked()...)
	}
	lines[0] = string(bytes.TrimSpace(protocol.Append(nil, g)))
	w.wg.Go(func() { c.read(conn.(*net.UnixConn)) })
	return c.sender(lines...)
}

// shakeLocked returns the lines with which a client begins.
func (c *client) shakeLocked() []string {
	if c.modern {
		c.listen = `"1"` // an id of another type
		line := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"_meta":{%s},"notifications":{"toolsListChanged":true}}}`,
			c.listen, c.meta(""))
		r := &request{c: c, n: c.lineLocked(), id: c.listen, line: line, listen: true}
		c.open = append(c.open, r)
		return []string{line}
	}
	r := &request{
		c: c, n: c.lineLocked(), id: "0",
		line: `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`,
	}
	c.open = append(c.open, r)
	c.state = append(c.state, saved{r.n, r.line})
	ready := `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	c.state = append(c.state, saved{c.lineLocked(), ready})
	if !c.loud {
		return []string{r.line, ready}
	}
	level := c.ownLocked(mcp.SetLevel)
	level.line = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"logging/setLevel","params":{"level":"debug"}}`,
		level.id)
	level.n = c.lineLocked()
	c.open = append(c.open, level)
	c.state = append(c.state, saved{level.n, level.line})
	return []string{r.line, ready, level.line}
}

// replayLocked returns what a proxy says of earlier lines at a resume. The daemon then
// knows which of them were cancelled.
func (c *client) replayLocked(g *protocol.Greeting) []string {
	replays := map[int64][]string{}
	say := func(s saved, answered bool) {
		replays[s.n] = []string{fmt.Sprintf(`{"holdline":1,"replay":%d,"answered":%t}`, s.n, answered), s.line}
	}
	for _, s := range c.state {
		say(s, true)
	}
	for _, s := range c.replies {
		say(s, false)
	}
	for _, r := range c.open {
		if r.cancelled {
			r.processed = true
			continue
		}
		say(saved{r.n, r.line}, false)
		g.Pending = append(g.Pending, r.n)
	}
	c.open = slices.DeleteFunc(c.open, func(r *request) bool { return r.processed })
	var lines []string
	for n := range c.n {
		lines = append(lines, replays[n+1]...)
	}
	return lines
}

// read handles the lines of one connection until it ends.
func (c *client) read(conn *net.UnixConn) {
	lines := jsonrpc.NewLines(conn, jsonrpc.MaxFrame)
	for {
		line, err := lines.Next()
		c.w.mu.Lock()
		if c.conn != conn || err != nil {
			if c.conn == conn && !c.w.over {
				c.w.failLocked("client %d lost its connection: %v", c.number, err)
			}
			c.w.mu.Unlock()
			return
		}
		c.w.trace("client %d is told %.200s", c.number, line)
		c.takeLocked(line)
		c.w.moved.Broadcast()
		c.w.mu.Unlock()
	}
}

// takeLocked is the oracle: it checks a line that has reached the client.
func (c *client) takeLocked(line []byte) {
	w := c.w
	if protocol.IsControl(line) {
		c.controlLocked(line)
		return
	}
	c.received++
	msg, err := jsonrpc.Parse(bytes.Clone(line))
	if err != nil {
		w.failLocked("client %d: %v: %s", c.number, err, line)
		return
	}
	ok := false
	switch {
	case msg.Kind == jsonrpc.Response:
		ok = c.answerLocked(msg)
	case msg.Kind == jsonrpc.Request:
		ok = c.questionLocked(msg)
	case msg.Method == mcp.ProgressNote:
		ok = c.progressLocked(msg.Params)
	case msg.Method == mcp.LogMessage:
		ok = c.logLocked(jsonrpc.Field(msg.Params, "data"))
	case msg.Method == mcp.Acknowledged:
		ok = c.modern && string(subscription(msg.Params)) == c.listen
	case msg.Method == mcp.ToolsChanged && c.modern:
		ok = string(subscription(msg.Params)) == c.listen
	case msg.Method == mcp.ToolsChanged:
		ok = c.has || slices.ContainsFunc(c.open, func(r *request) bool { return r.list })
		c.has = false
		if c.told++; c.only != "" && c.told > 1 {
			ok = false // its one server changes only when it is listed first
		}
	}
	if !ok {
		w.failLocked("client %d got what is not its own: %s", c.number, line)
	}
}

func subscription(params json.RawMessage) json.RawMessage {
	return jsonrpc.Field(jsonrpc.Field(params, "_meta"), mcp.MetaSubscription)
}

// controlLocked handles a control line of the daemon.
func (c *client) controlLocked(line []byte) {
	m, err := protocol.ParseControl(line)
	switch {
	case err != nil || m.Bye != "" || bytes.Contains(line, []byte(`"error"`)):
		c.w.failLocked("client %d is told %s", c.number, line)
	case m.Seen != nil:
		c.replies = slices.DeleteFunc(c.replies, func(s saved) bool { return s.n == *m.Seen })
	}
}

// answerLocked reports whether an answer is right: it is to an open request of this client,
// with the id as the client spelled it, and with the request's own secret.
func (c *client) answerLocked(msg jsonrpc.Message) bool {
	body := msg.Result
	if msg.Error != nil {
		body = jsonrpc.Field(msg.Error, "data")
	}
	secret, _ := mcp.String(jsonrpc.Field(body, "secret"))
	i := slices.IndexFunc(c.open, func(r *request) bool {
		return r.id == string(msg.ID) && r.secret == secret && !r.listen
	})
	if i < 0 {
		return false
	}
	r := c.open[i]
	switch odd := string(jsonrpc.Field(body, "odd")); {
	case secret != "" && odd != `[1.0,"\ud800"]` && odd != "1e400":
		return false
	case secret != "" && msg.Error == nil && c.modern != (jsonrpc.Field(body, "resultType") != nil) &&
		r.server != sharedModern:
		return false
	case secret == "" && msg.Error != nil:
		return false
	}
	c.open = slices.Delete(c.open, i, i+1)
	r.state = answered
	c.has = c.has || r.list
	for _, passed := range r.passes {
		passed.processed = true
	}
	c.open = slices.DeleteFunc(c.open, func(r *request) bool { return r.processed })
	if r.secret != "" {
		c.w.answers++
	}
	return true
}

// progressLocked reports whether progress has the token of an open request of this client,
// and that request's secret.
func (c *client) progressLocked(params json.RawMessage) bool {
	c.w.progresses++
	token := string(jsonrpc.Field(params, mcp.MetaProgress))
	secret, _ := mcp.String(jsonrpc.Field(params, "message"))
	return slices.ContainsFunc(c.open,
		func(r *request) bool { return r.token != "" && r.token == token && r.secret == secret })
}

// logLocked reports whether a log message is from a process that this client uses, and was
// asked for.
func (c *client) logLocked(data json.RawMessage) bool {
	c.w.logs++
	from, _ := mcp.String(jsonrpc.Field(data, "from"))
	of, _ := mcp.String(jsonrpc.Field(data, "of"))
	want := map[string]string{perSession: strconv.Itoa(c.number), perProject: c.project}[from]
	return c.loud && slices.Contains(c.servers(), from) && of == want
}

// questionLocked reports whether a request of a server is from the process of this session.
// It drops one that arrives again, as a proxy does.
func (c *client) questionLocked(msg jsonrpc.Message) bool {
	secret, _ := mcp.String(jsonrpc.Field(msg.Params, "secret"))
	if before, ok := c.asked[string(msg.ID)]; ok {
		return before == secret
	}
	for _, u := range c.w.upstreams {
		for _, q := range u.asks {
			if q.secret == secret && q.client == c {
				c.asked[string(msg.ID)] = secret
				c.w.questions = append(c.w.questions, asked{c, string(msg.ID), secret})
				return true
			}
		}
	}
	return false
}

// asked is a request of a server that its client has not answered.
type asked struct {
	c          *client
	id, secret string
}

// reply has a client answer a request of a server.
func (w *world) reply() func() {
	i := slices.IndexFunc(w.questions, func(q asked) bool { return q.c.conn != nil })
	if i < 0 {
		return nil
	}
	q := w.questions[i]
	w.questions = slices.Delete(w.questions, i, i+1)
	line := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"secret":%q}}`, q.id, q.secret)
	if w.rng.IntN(4) == 0 {
		line = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":%q}}`, q.id, q.secret)
	}
	q.c.replies = append(q.c.replies, saved{q.c.lineLocked(), line})
	return q.c.sender(line)
}

// someLocked returns a random connected client, nil if there is none.
func (w *world) someLocked() *client {
	for i, off := 0, w.rng.IntN(len(w.clients)); i < len(w.clients); i++ {
		if c := w.clients[(i+off)%len(w.clients)]; c.conn != nil {
			return c
		}
	}
	return nil
}

// inUse reports whether an open request of the client has an equal id, or token.
func (c *client) inUse(of func(*request) string, raw string) bool {
	return slices.ContainsFunc(c.open,
		func(r *request) bool { return !r.cancelled && of(r) != "" && key(of(r)) == key(raw) })
}

const mostOpen = 16

// call has a client call a tool.
func (w *world) call() func() {
	c := w.someLocked()
	if c == nil || len(c.open) >= mostOpen {
		return nil
	}
	id, token := ids[w.rng.IntN(len(ids))], ""
	if w.rng.IntN(3) > 0 {
		token = ids[w.rng.IntN(len(ids))]
	}
	if c.inUse(func(r *request) string { return r.id }, id) ||
		token != "" && c.inUse(func(r *request) string { return r.token }, token) {
		return nil
	}
	return c.callLocked(c.servers()[w.rng.IntN(len(c.servers()))], id, token)
}

// servers returns the names of the servers that the client sees.
func (c *client) servers() []string {
	if c.only != "" {
		return []string{c.only}
	}
	return []string{sharedLegacy, sharedModern, perProject, perSession}
}

// callLocked begins a call of a server's tool, and returns a func that sends it.
func (c *client) callLocked(server, id, token string) func() {
	c.secrets++
	r := &request{c: c, id: id, token: token, secret: fmt.Sprintf("secret-%d-%d", c.number, c.secrets), server: server}
	name := "t"
	if c.only == "" {
		name = r.server + "__t"
	}
	r.args = fmt.Sprintf(`{"secret":%q,"id":%s,"odd":[1.0, 1e400, "\ud800"]}`, r.secret, id)
	params := fmt.Sprintf(`"name":%q,"arguments":%s`, name, r.args)
	if meta := c.meta(token); meta != "" {
		params = `"_meta":{` + meta + `},` + params
	}
	r.line = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{%s}}`, id, params)
	return c.beginLocked(r)
}

// beginLocked notes a request as open, and returns a func that sends it.
func (c *client) beginLocked(r *request) func() {
	r.n = c.lineLocked()
	c.open = append(c.open, r)
	if r.secret != "" {
		c.w.bySecret[r.secret] = r
	}
	return c.sender(r.line)
}

// ownLocked returns a request that the daemon answers itself, with an id that no call has.
func (c *client) ownLocked(method string) *request {
	c.secrets++
	id := fmt.Sprintf(`"own%d"`, c.secrets)
	return &request{
		c: c, id: id,
		line: fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"_meta":{%s}}}`, id, method, c.meta("")),
	}
}

// barrier has a client send a request that is answered in order: its answer shows that the
// cancellations before it were read.
func (w *world) barrier() func() {
	c := w.someLocked()
	if c == nil || len(c.open) >= 2*mostOpen {
		return nil
	}
	return c.barrierLocked()
}

// barrierLocked begins the request of barrier, and returns a func that sends it.
func (c *client) barrierLocked() func() {
	r := c.ownLocked(mcp.Ping)
	if c.modern {
		r = c.ownLocked(mcp.Discover)
	}
	for _, other := range c.open {
		if other.cancelled {
			r.passes = append(r.passes, other)
		}
	}
	return c.beginLocked(r)
}

// list has a client ask for the tools.
func (w *world) list() func() {
	c := w.someLocked()
	if c == nil || len(c.open) >= 2*mostOpen {
		return nil
	}
	r := c.ownLocked(mcp.ToolsList)
	r.list, c.has = true, true
	return c.beginLocked(r)
}

// cancel has a client cancel a call.
func (w *world) cancel() func() {
	c := w.someLocked()
	if c == nil {
		return nil
	}
	calls := slices.DeleteFunc(slices.Clone(c.open), func(r *request) bool { return r.cancelled || r.secret == "" })
	if len(calls) == 0 {
		return nil
	}
	send := c.cancelLocked(calls[w.rng.IntN(len(calls))])
	if w.rng.IntN(2) == 0 {
		return send
	}
	barrier := c.barrierLocked()
	return func() { send(); barrier() }
}

// cancelLocked marks a request as cancelled, and returns a func that sends the
// cancellation.
func (c *client) cancelLocked(r *request) func() {
	r.cancelled = true
	c.lineLocked()
	id := r.id
	if id == `"1"` {
		id = `"\u0031"` // the same id, spelled differently
	}
	c.w.cancels++
	return c.sender(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
}

// confirm has a proxy confirm the lines that it has.
func (w *world) confirm() func() {
	c := w.someLocked()
	if c == nil || c.received-c.got < 8 {
		return nil
	}
	c.got = c.received
	return c.sender(fmt.Sprintf(`{"holdline":1,"got":%d}`, c.got))
}

// drop breaks a client's connection.
func (w *world) drop() func() {
	c := w.someLocked()
	if c == nil {
		return nil
	}
	conn := c.conn
	c.conn = nil
	w.drops++
	return func() { conn.Close() }
}

// resume has a client connect again.
func (w *world) resume() func() {
	for _, c := range w.clients {
		if c.conn == nil {
			return c.connectLocked()
		}
	}
	return nil
}
