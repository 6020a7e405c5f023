package hosted_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"holdline/daemon/dialect"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Servers of the world, and what is odd about each.
const (
	sharedLegacy = "all"  // scope shared
	sharedModern = "new"  // scope shared, of the modern era
	perProject   = "team" // scope project
	perSession   = "own"  // scope session
)

// upstream is one process of a server, which the test plays. Its fields are guarded by the
// world's mutex, but for the files.
type upstream struct {
	w      *world
	name   string
	in     *os.File
	out    *os.File
	conn   net.Conn // closed when the process ends
	write  sync.Mutex
	most   int64   // highest id seen; all below it were seen, too
	calls  []*seen // not answered
	ended  []*seen // answered recently
	asks   map[string]*question
	asked  int
	client *client // the client of a process of scope session; nil until it is known
	listed int     // version of its list of tools
}

// seen is a call as the server got it.
type seen struct {
	id    string // as the server got it
	token string // "" if no progress is wanted
	r     *request
	steps int
}

// question is a request of a server to its client.
type question struct {
	id     string // as JSON
	secret string
	client *client // nil: the daemon answers
	want   string  // part of the expected answer
}

// acceptUpstreams accepts the pipes of servers that are started.
func (w *world) acceptUpstreams(ln *net.UnixListener) {
	for {
		conn, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		u, err := takeOver(conn)
		if err != nil {
			w.fail("a server: %v", err)
			conn.Close()
			continue
		}
		u.w = w
		w.mu.Lock()
		w.upstreams = append(w.upstreams, u)
		w.mu.Unlock()
		w.wg.Go(u.read)
	}
}

// takeOver receives stdin and stdout of a server process over conn.
func takeOver(conn *net.UnixConn) (*upstream, error) {
	name, rights := make([]byte, 64), make([]byte, 256)
	n, m, _, _, err := conn.ReadMsgUnix(name, rights)
	if err != nil {
		return nil, err
	}
	msgs, err := syscall.ParseSocketControlMessage(rights[:m])
	if err != nil || len(msgs) != 1 {
		return nil, fmt.Errorf("%d control messages: %w", len(msgs), err)
	}
	fds, err := syscall.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 2 {
		return nil, fmt.Errorf("%d descriptors: %w", len(fds), err)
	}
	return &upstream{
		name: string(name[:n]), conn: conn, in: os.NewFile(uintptr(fds[0]), "stdin"),
		out:  os.NewFile(uintptr(fds[1]), "stdout"),
		asks: map[string]*question{},
	}, nil
}

// read plays the server until its input ends.
func (u *upstream) read() {
	defer u.conn.Close()
	defer u.out.Close()
	defer u.in.Close()
	lines := jsonrpc.NewLines(u.in, jsonrpc.MaxFrame)
	for {
		line, err := lines.Next()
		if err != nil {
			return
		}
		msg, err := jsonrpc.Parse(bytes.Clone(line))
		if err != nil {
			u.w.fail("%s is told %s: %v", u.name, line, err)
			return
		}
		if answer := u.take(msg); answer != "" {
			u.send(answer)
		}
	}
}

// send writes lines to the server's stdout.
func (u *upstream) send(lines ...string) {
	u.write.Lock()
	defer u.write.Unlock()
	var b []byte
	for _, line := range lines {
		b = append(append(b, line...), '\n')
	}
	if _, err := u.out.Write(b); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, syscall.EPIPE) {
		u.w.fail("%s cannot answer: %v", u.name, err)
	}
}

// take handles a message to the server. It returns the answer, if the server answers at
// once.
func (u *upstream) take(msg jsonrpc.Message) (answer string) {
	w := u.w
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.moved.Broadcast()
	if n := decimal(string(msg.ID)); msg.Kind == jsonrpc.Request {
		u.most = max(u.most, n)
	}
	modern := u.name == sharedModern
	// One that is slow to answer the first question is asked the other one, too.
	if modern && msg.Kind == jsonrpc.Request && msg.Method != mcp.Initialize &&
		jsonrpc.Field(jsonrpc.Field(msg.Params, "_meta"), mcp.MetaVersion) == nil {
		w.failLocked("the modern server is told %s %s", msg.Method, msg.Params)
	}
	result := func(r string) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, msg.ID, r) }
	switch {
	case msg.Kind == jsonrpc.Response:
		u.toldLocked(msg)
	case msg.Method == mcp.ToolsCall:
		u.callLocked(msg)
	case msg.Method == mcp.CancelledNote:
		u.cancelledLocked(string(jsonrpc.Field(msg.Params, "requestId")))
	case msg.Method == mcp.ToolsList:
		return result(fmt.Sprintf(`{"tools":[{"name":"t","description":"v%d","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}`, u.listed))
	case msg.Method == mcp.Discover && modern:
		return result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"new","version":"1"},"ttlMs":0,"cacheScope":"private"}`)
	case msg.Method == mcp.Initialize && !modern:
		return result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"old","version":"1"}}`)
	case msg.Method == mcp.SetLevel && !modern:
		return result(`{}`)
	case msg.Method == mcp.Initialized && !modern:
	case msg.Kind == jsonrpc.Request:
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"what?"}}`, msg.ID)
	default:
		w.failLocked("%s is told %s %s", u.name, msg.Method, msg.Params)
	}
	return ""
}

// callLocked checks a call that arrived: a client made it, it is complete, the client may
// use this server, and it arrives once.
func (u *upstream) callLocked(msg jsonrpc.Message) {
	w := u.w
	args := jsonrpc.Field(msg.Params, "arguments")
	secret, _ := mcp.String(jsonrpc.Field(args, "secret"))
	r := w.bySecret[secret]
	if r == nil {
		w.failLocked("%s: a call that nobody has made: %s", u.name, msg.Params)
		return
	}
	s := &seen{
		id: string(msg.ID), token: string(jsonrpc.Field(jsonrpc.Field(msg.Params, "_meta"), mcp.MetaProgress)), r: r,
	}
	if slices.ContainsFunc(u.calls, func(o *seen) bool { return o.id == s.id }) && !w.broken {
		w.failLocked("%s: two calls under id %s", u.name, s.id)
	}
	switch name, _ := mcp.String(jsonrpc.Field(msg.Params, "name")); {
	case r.server != u.name:
		w.failLocked("%s: a call for %s", u.name, r.server)
	case r.at != nil:
		w.failLocked("%s: %s arrives twice", u.name, secret)
	case name != "t":
		w.failLocked("%s: the tool is %s", u.name, name)
	case string(args) != r.args:
		w.failLocked("%s: arguments %s, the client's were %s", u.name, args, r.args)
	case (s.token == "") != (r.token == ""):
		w.failLocked("%s: progress token %q, the client's was %q", u.name, s.token, r.token)
	}
	w.trace("%s takes %s as %s", u.name, secret, s.id)
	r.at = u
	switch {
	case u.client == nil && u.name == perSession:
		u.client = r.c
	case u.name == perSession && u.client != r.c, u.name == perProject && u.client != nil &&
		u.client.project != r.c.project:
		w.failLocked("%s: a call of client %d in a process of client %d", u.name, r.c.number, u.client.number)
	case u.name == perProject:
		u.client = r.c
	}
	u.calls = append(u.calls, s)
}

// cancelledLocked checks that a cancellation was made by the client of the call.
func (u *upstream) cancelledLocked(id string) {
	for _, s := range slices.Concat(u.calls, u.ended) { // a call in neither list was answered long ago
		if s.id == id && !s.r.cancelled {
			u.w.failLocked("%s: call %s is cancelled, and its client has not done so", u.name, id)
		}
	}
}

// toldLocked checks an answer to a request of the server.
func (u *upstream) toldLocked(msg jsonrpc.Message) {
	q := u.asks[string(msg.ID)]
	if q == nil {
		u.w.failLocked("%s: an answer to %s, which is not open: %s", u.name, msg.ID, msg.Result)
		return
	}
	delete(u.asks, q.id)
	if got := string(msg.Result) + string(msg.Error); !bytes.Contains([]byte(got), []byte(q.want)) {
		u.w.failLocked("%s: the answer to %s is %s, want %s", u.name, q.id, got, q.want)
	}
}

// pickLocked returns a random unanswered call of any server.
func (w *world) pickLocked(wanted func(*seen) bool) (*upstream, *seen) {
	for i, off := 0, w.rng.IntN(max(1, len(w.upstreams))); i < len(w.upstreams); i++ {
		u := w.upstreams[(i+off)%len(w.upstreams)]
		for j, off := 0, w.rng.IntN(max(1, len(u.calls))); j < len(u.calls); j++ {
			if s := u.calls[(j+off)%len(u.calls)]; wanted(s) {
				return u, s
			}
		}
	}
	return nil, nil
}

// answerLocked returns the answer to a call, and ends the call.
func (u *upstream) answerLocked(s *seen) string {
	u.calls = slices.DeleteFunc(u.calls, func(o *seen) bool { return o == s })
	if u.ended = append(u.ended, s); len(u.ended) > 64 {
		u.ended = slices.Delete(u.ended, 0, 32)
	}
	if u.w.rng.IntN(8) == 0 {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no","data":{"secret":%q,"odd":1e400}}}`, s.id, s.r.secret)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"secret":%q,"content":[],"odd":[1.0,"\ud800"]}}`,
		s.id, s.r.secret)
}

// answer has a server answer a call.
func (w *world) answer() func() {
	late := w.rng.IntN(2) == 0 // answer a cancelled call
	u, s := w.pickLocked(func(s *seen) bool { return s.r.cancelled == late })
	if s == nil {
		u, s = w.pickLocked(func(*seen) bool { return true })
	}
	if s == nil {
		return nil
	}
	line := u.answerLocked(s)
	return func() { u.send(line) }
}

func progressLine(token string, step int, secret string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":%q}}`, token, step, secret)
}

func (w *world) progress() func() {
	u, s := w.pickLocked(func(s *seen) bool { return s.token != "" && (!s.r.cancelled || w.rng.IntN(16) == 0) })
	if s == nil {
		return nil
	}
	s.steps++
	return func() { u.send(progressLine(s.token, s.steps, s.r.secret)) }
}

// cross has a client cancel a call at the moment at which it is answered.
func (w *world) cross() func() {
	u, s := w.pickLocked(func(s *seen) bool { return s.r.state == waiting && !s.r.cancelled && s.r.c.conn != nil })
	if s == nil {
		return nil
	}
	c, line := s.r.c, u.answerLocked(s)
	more := []string{progressLine(s.token, 1<<20, s.r.secret), line}
	if s.token == "" {
		more = more[1:]
	}
	cancel := c.cancelLocked(s.r)
	if w.rng.IntN(2) == 0 {
		return func() { u.send(more...); cancel() }
	}
	return func() { cancel(); u.send(more...) }
}

// stray has a server send a message that belongs to no client.
func (w *world) stray() func() {
	if w.broken || len(w.upstreams) == 0 {
		return nil
	}
	u := w.upstreams[w.rng.IntN(len(w.upstreams))]
	id := ids[w.rng.IntN(len(ids))]
	if len(u.ended) > 0 && w.rng.IntN(2) == 0 {
		id = u.ended[w.rng.IntN(len(u.ended))].id // answer it a second time
	}
	// A server may answer request 7 under "7" or 7.0.
	if n := dialect.Number([]byte(id)); n > u.most ||
		slices.ContainsFunc(u.calls, func(s *seen) bool { return decimal(s.id) == n && n > 0 || s.id == id || s.token == id }) {
		return nil // a client may have this id
	}
	lines := []string{
		fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"secret":"stray"}}`, id),
		progressLine(id, 1, "stray"),
		`no message`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"stray"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"stray"}}`,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"stray:"}}`,
	}
	line := lines[w.rng.IntN(len(lines))]
	return func() { u.send(line) }
}

// log has a server log a message that names the client whose process it is.
func (w *world) log() func() {
	if len(w.upstreams) == 0 {
		return nil
	}
	u := w.upstreams[w.rng.IntN(len(w.upstreams))]
	of := ""
	switch {
	case u.name == perSession && u.client != nil:
		of = strconv.Itoa(u.client.number)
	case u.name == perProject && u.client != nil:
		of = u.client.project
	case u.name != sharedLegacy:
		return nil // the modern server is never asked for logs
	}
	return func() {
		u.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":{"from":%q,"of":%q}}}`, u.name, of))
	}
}

// change has a server change its list, and notify it.
func (w *world) change() func() {
	if len(w.upstreams) == 0 {
		return nil
	}
	u := w.upstreams[w.rng.IntN(len(w.upstreams))]
	if u.name == sharedLegacy {
		return nil // so that the client that sees only this server is never notified
	}
	u.listed++
	return func() { u.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`) }
}

// ask has a server send its client a request.
func (w *world) ask() func() {
	if len(w.upstreams) == 0 {
		return nil
	}
	u := w.upstreams[w.rng.IntN(len(w.upstreams))]
	id := ids[w.rng.IntN(len(ids))]
	for _, other := range u.asks {
		if key(other.id) == key(id) {
			return nil
		}
	}
	u.asked++
	q := &question{id: id, secret: fmt.Sprintf("ask-%p-%d", u, u.asked)}
	method := []string{mcp.RootsList, "sampling/createMessage", "elicitation/create"}[w.rng.IntN(3)]
	switch {
	case w.rng.IntN(8) == 0:
		method, q.want = mcp.Ping, "{}"
	case u.name == perProject && method == mcp.RootsList:
		if u.client == nil {
			return nil
		}
		q.want = `"uri":"file://` + u.client.cwd + `"`
	case u.name != perSession:
		q.want = `"code":-32601`
	case u.client == nil || u.client.modern: // these are asked within the answers to their requests
		return nil
	default:
		q.client, q.want = u.client, q.secret
	}
	u.asks[id] = q
	return func() {
		u.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"secret":%q}}`, id, method, q.secret))
	}
}

// decimal returns the number that raw spells in plain decimal; 0 if raw is something else.
func decimal(raw string) int64 {
	var n int64
	if err := json.Unmarshal([]byte(raw), &n); err != nil {
		return 0
	}
	return n
}

func key(raw string) string { return jsonrpc.ID(raw).Key() }
