package session_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"holdline/protocol"
	"holdline/protocol/jsonrpc"
)

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"m","version":"2"}}`

// TestLegacyHandshake checks the version that a legacy handshake agrees on, and which
// requests are refused before, during and after it.
func TestLegacyHandshake(t *testing.T) {
	h := start(t)
	for _, tc := range []struct{ asked, want string }{
		{"2024-11-05", "2024-11-05"},
		{"2025-03-26", "2024-11-05"},
		{"2025-06-18", "2025-06-18"},
		{"2025-11-25", "2025-11-25"},
		{"1999-01-01", "2025-11-25"},
		{"2026-07-28", "2025-11-25"}, // the modern version has no handshake
	} {
		c := h.dial(t)
		c.send(`{"jsonrpc":"2.0","id":"a","method":"tools/list"}`)
		want(t, c.next(), `"a"`, `"code":-32002`, `"code":"not_initialized"`)
		c.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		want(t, c.next(), `1`, `"result":{}`)
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, tc.asked))
		want(t, c.next(), `2`, fmt.Sprintf(`"protocolVersion":%q`, tc.want), `"serverInfo":{"name":"holdline"`,
			`"instructions":"hello"`)
		c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
		want(t, c.next(), `3`, `"code":-32002`, "notifications/initialized")
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		c.send(`{"jsonrpc":"2.0","id":4,"method":"tools/list"}`)
		want(t, c.next(), `4`, `"name":"echo"`, `"name":"steps"`)
		c.send(`{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
		want(t, c.next(), `5`, `"code":-32600`, "already initialized")
	}
}

func TestAnonymousSeesHostToolsOnly(t *testing.T) {
	h := start(t)
	c := h.dial(t)
	c.shake()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if line := c.next(); strings.Contains(line, `"name":"hold"`) {
		t.Errorf("anonymous sees a worker tool: %s", line)
	}
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hold"}}`)
	want(t, c.next(), `2`, `"code":-32602`, `"unknown_tool"`)
	if s := h.srv.Sessions(); len(s) != 1 || s[0].Identity != "anonymous" || s[0].Client != "probe 1" {
		t.Errorf("sessions = %+v", s)
	}
}

// TestIdentity checks that an identity needs its token, and that a session belongs to the
// process that began it.
func TestIdentity(t *testing.T) {
	h := start(t)
	c := h.greet(t, protocol.Greeting{Identity: "codex", Token: "wrong"})
	if w := c.next(); !strings.Contains(w, `"identity_refused"`) || !strings.Contains(w, "needs its token") {
		t.Errorf("welcome = %s", w)
	}
	c.end()
	c = h.open(t, protocol.Greeting{Identity: "codex", Token: "secret"})
	if s := h.srv.Sessions(); len(s) != 1 || s[0].Identity != "codex" {
		t.Errorf("sessions = %+v", s)
	}
	h.pid.Store(1) // another process
	second := h.greet(t, protocol.Greeting{Identity: "codex", Token: "secret"})
	if w := second.next(); !strings.Contains(w, `"session_busy"`) {
		t.Errorf("second connection of one session: %s", w)
	}
	second = h.greet(t, protocol.Greeting{Resume: true})
	if w := second.next(); !strings.Contains(w, `"identity_refused"`) {
		t.Errorf("another identity's session: %s", w)
	}
	h.pid.Store(0)
	c.conn.Close()

	// A client cannot name itself by an identity that needs a token.
	sly := h.dial(t)
	sly.send(string(protocol.Append(nil,
		protocol.Greeting{Holdline: 1, Role: "mcp", Session: strings.Replace(uuid, "0", "f", 1)})))
	sly.next()
	sly.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"codex","version":"1"}}}`)
	sly.next()
	for _, s := range h.srv.Sessions() {
		if s.Identity == "codex" && s.PID != 0 && s.Client == "codex 1" {
			t.Errorf("a client became codex by its name: %+v", s)
		}
	}
}

// TestLineWithoutID_IsNotAnswered sends lines that cannot be read, and notifications that make no sense.
// None is answered, since some clients end at an answer without id, and the session continues.
func TestLineWithoutID_IsNotAnswered(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	for _, line := range []string{
		`garbage`, `42`, `{}`, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
		`{"jsonrpc":"2.0","ID":1,"Method":"ping"}`, `{"jsonrpc":"2.0","id":{},"method":"ping"}`,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","method":"no/such"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":1}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`,
		`{"jsonrpc":"2.0","id":9,"result":{},"error":{}}`, // an answer that nobody waits for
	} {
		c.send(line)
		c.send(`{"jsonrpc":"2.0","id":"next","method":"ping"}`)
		answer := c.next()
		if protocol.IsControl([]byte(answer)) { // nobody waits for an answer of the client
			answer = c.next()
		}
		want(t, answer, `"next"`)
	}
}

// TestMembersThatAreNull_CountAsAbsent sends requests of clients that write all members that a message
// can have.
func TestMembersThatAreNull_CountAsAbsent(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":null,"result":null,"error":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":null,"_meta":null}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":null}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"},"_meta":null}}`,
	} {
		c.send(line)
		if answer := c.next(); !strings.Contains(answer, `"id":1,"result"`) || strings.Contains(answer, `"isError":true`) {
			t.Errorf("%s: %s", line, answer)
		}
	}
}

// TestBadLines sends invalid lines. Each gets its answer, and the session continues.
func TestBadLines(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	for _, tc := range []struct {
		name, line, id string
		parts          []string
	}{
		{"not JSON", `{"jsonrpc":"2.0","id":1,`, "1", []string{`-32700`, `"parse_error"`}},
		{"duplicate keys", `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, "1", []string{`-32600`, "duplicate"}},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\xff\"}", "1", []string{`-32700`, "UTF-8"}},
		{"no version", `{"id":1,"method":"ping"}`, "1", []string{`-32600`}},
		{"no method", `{"jsonrpc":"2.0","id":7}`, "7", []string{`-32600`}},
		{"method number", `{"jsonrpc":"2.0","id":7,"method":7}`, "7", []string{`-32600`}},
		{"params string", `{"jsonrpc":"2.0","id":7,"method":"ping","params":"x"}`, "7", []string{`-32600`}},
		{"unknown method", `{"jsonrpc":"2.0","id":7,"method":"no/such"}`, "7", []string{`-32601`, `"unknown_method"`}},
		{"params missing", `{"jsonrpc":"2.0","id":7,"method":"tools/call"}`, "7", []string{`-32602`, "params.name"}},
		{"params array", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[1]}`, "7", []string{`-32602`}},
		{
			"name a number",
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":1}}`,
			"7",
			[]string{`-32602`},
		},
		{
			"arguments a string",
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":"x"}}`,
			"7",
			[]string{`-32602`, "arguments"},
		},
		{
			"unknown tool",
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nope"}}`,
			"7",
			[]string{`-32602`, `"unknown_tool"`, `nope`},
		},
		{
			"wrong type",
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":1}}}`,
			"7",
			[]string{`"isError":true`, `invalid_input`, `text`},
		},
		{
			"unknown argument",
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"txt":"x"}}}`,
			"7",
			[]string{`"isError":true`, `txt`},
		},
		{
			"duplicate param",
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","name":"hold"}}`,
			"7",
			[]string{`-32602`, "duplicate"},
		},
		{
			"cursor",
			`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"zz"}}`,
			"7",
			[]string{`-32602`, "cursor"},
		},
		{
			"level",
			`{"jsonrpc":"2.0","id":7,"method":"logging/setLevel","params":{"level":"loud"}}`,
			"7",
			[]string{`-32602`, "level"},
		},
		{"CRLF", `{"jsonrpc":"2.0","id":7,"method":"ping"}` + "\r", "7", []string{`"result":{}`}},
		{"id spelled oddly", `{"jsonrpc":"2.0","id":1.50,"method":"ping"}`, "1.50", []string{`"result":{}`}},
		{
			"id beyond 2^53",
			`{"jsonrpc":"2.0","id":90071992547409931,"method":"ping"}`,
			"90071992547409931",
			[]string{`"result":{}`},
		},
		{"id escaped", `{"jsonrpc":"2.0","id":"\u0061","method":"ping"}`, `"\u0061"`, []string{`"result":{}`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.send(tc.line)
			want(t, c.next(), tc.id, tc.parts...)
		})
	}
	// Notifications are never answered, even invalid ones.
	c.send(`{"jsonrpc":"2.0","method":"no/such"}`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
	c.send(`{"jsonrpc":"2.0","id":8,"method":"ping"}`)
	want(t, c.next(), "8")
	if !h.told.has("- - - unknown_method") || !h.told.has("tools/call - (unknown) unknown_tool") {
		t.Errorf("telemetry was told %q", h.told.requests)
	}
}

// TestLineTooLong checks that a request over the limit is answered with an error under its own id,
// nothing else over the limit is, and the session continues.
func TestLineTooLong(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	junk := strings.Repeat("x", 1<<20)
	for _, ends := range [][2]string{
		{`{"method":"ping","params":{"x":"`, `"},"jsonrpc":"2.0","id":7}`},
		{``, ``},
		{`{"method":"x","params":{"id":5,"x":"`, `"},"jsonrpc":"2.0"}`},
	} {
		if _, err := io.WriteString(c.conn, ends[0]); err != nil {
			t.Fatal(err)
		}
		for range 65 {
			if _, err := c.conn.Write([]byte(junk)); err != nil {
				t.Fatal(err)
			}
		}
		c.send(ends[1])
	}
	want(t, c.next(), "7", "-32700", "more than 64 MiB")
	c.send(`{"jsonrpc":"2.0","id":8,"method":"ping"}`)
	want(t, c.next(), "8")
}

// TestLongNames sends unknown names that are very long. The answers are short, so that none
// exceeds the limit of a line.
func TestLongNames(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	long := strings.Repeat("m", 2<<20)
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"` + long + `"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + long + `"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` +
			strings.Replace(modernMeta, "2026-07-28", long, 1) + `}}`,
	} {
		c.send(line)
		if answer := c.next(); len(answer) > 32<<10 {
			t.Errorf("%.60s… is answered with %d bytes", line, len(answer))
		}
	}
}

// TestLastLineWithoutNewline checks that the last line counts even without a newline.
func TestLastLineWithoutNewline(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	if _, err := c.conn.Write([]byte(`{"jsonrpc":"2.0","id":9,"method":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	if err := c.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	want(t, c.next(), "9")
	c.end()
}

// TestConcurrencyAndCancel checks ids in use, the limit of calls in flight, and that a
// cancelled call gets no answer.
func TestConcurrencyAndCancel(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	call := func(id string) {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"hold"}}`, id))
	}
	call("1")
	<-h.began
	call("1") // in flight
	want(t, c.next(), "1", "-32600", "in use")
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`)
	want(t, c.next(), "2", `"text":"echo: hi"`, `"isError":false`)
	// An id that is spelled differently is the same id.
	call(`"\u0061"`)
	<-h.began
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"enough"}}`)
	<-h.ended
	c.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	want(t, c.next(), "3") // no answer came for the cancelled call
	call(`"a"`)            // its id can be used again
	<-h.began
	for i := 10; i < 16; i++ {
		call(fmt.Sprint(i))
		<-h.began
	}
	call("99") // the ninth: one over the limit
	want(t, c.next(), "99", `"resource_exhausted"`, `"isError":true`)
	close(h.hold)
	for range 8 {
		if line := c.next(); !strings.Contains(line, `"text":"held"`) {
			t.Errorf("answer = %s", line)
		}
	}
}

// TestThreeHundredAtOnce sends more calls than may be in flight. Each gets one answer;
// those over the limit get it at once.
func TestThreeHundredAtOnce(t *testing.T) {
	h := startWith(t, 256)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	for i := range 300 {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"hold"}}`, i))
	}
	answered := map[string]bool{}
	for range 44 {
		line := c.next()
		msg, err := jsonrpc.Parse([]byte(line))
		if err != nil || !strings.Contains(line, `"resource_exhausted"`) ||
			!strings.Contains(line, `"limit":{"name":"calls in flight","value":256,"spent":256}`) ||
			answered[string(msg.ID)] {
			t.Fatalf("answer = %s, %v", line, err)
		}
		answered[string(msg.ID)] = true
	}
	close(h.hold)
	for range 256 {
		line := c.next()
		msg, err := jsonrpc.Parse([]byte(line))
		if err != nil || !strings.Contains(line, `"text":"held"`) || answered[string(msg.ID)] {
			t.Fatalf("answer = %s, %v", line, err)
		}
		answered[string(msg.ID)] = true
	}
}

// TestHalfClose checks that a client that closes its writing side still gets its answers.
func TestHalfClose(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}`)
	<-h.began
	if err := c.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	close(h.hold)
	want(t, c.next(), "1", "held")
	c.end()
}

// TestClientGone checks that the calls of a client that disconnects are cancelled, in
// whichever way it leaves.
func TestClientGone(t *testing.T) {
	h := start(t)
	h.gone.Store(true)
	for _, leave := range []struct {
		name string
		do   func(c *client)
	}{
		{"closed", func(c *client) { c.conn.Close() }},
		{"half-closed, then closed", func(c *client) { _ = c.conn.CloseWrite(); c.conn.Close() }},
		{"bye", func(c *client) { c.send(`{"holdline":1,"bye":"client"}`) }},
	} {
		t.Run(leave.name, func(t *testing.T) {
			c := h.open(t, protocol.Greeting{Identity: "a"})
			c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}`)
			<-h.began
			leave.do(c)
			select {
			case err := <-h.ended:
				if err == nil || !strings.Contains(err.Error(), "disconnected") {
					t.Errorf("cause = %v", err)
				}
			case <-time.After(waitLimit):
				panic("the call was not cancelled")
			}
			for len(h.srv.Sessions()) > 0 {
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// TestProgress checks that a call with a progress token gets its progress, and one without
// gets none.
func TestProgress(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"steps","_meta":{"progressToken":"tk"}}}`)
	for _, v := range []string{"1", "2", "3"} {
		if line := c.next(); !strings.Contains(line, `"method":"notifications/progress"`) ||
			!strings.Contains(line, `"progressToken":"tk","progress":`+v+`,"total":3`) {
			t.Errorf("progress = %s", line)
		}
	}
	want(t, c.next(), "1", "done")
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"steps"}}`)
	want(t, c.next(), "2", "done")
}

// TestModern checks requests of the modern era, which have no handshake.
func TestModern(t *testing.T) {
	h := start(t)
	c := h.greet(t, protocol.Greeting{})
	c.next()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}`)
	want(t, c.next(), "1", `"resultType":"complete"`, `"supportedVersions":["2026-07-28"]`, `"ttlMs":`,
		`"cacheScope":"private"`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + modernMeta + `}}`)
	want(t, c.next(), "2", `"resultType":"complete"`, `"ttlMs":`, `"cacheScope":"private"`, `"name":"echo"`)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"},` +
		modernMeta + `}}`)
	want(t, c.next(), "3", `"resultType":"complete"`, `echo: x`)
	if s := h.srv.Sessions(); s[0].Era != "modern" || s[0].Identity != "m" || s[0].Client != "m 2" {
		t.Errorf("session = %+v", s[0])
	}
	for _, tc := range []struct{ line, id, part string }{
		{`{"jsonrpc":"2.0","id":4,"method":"server/discover"}`, "4", `-32602`},
		{`{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, "5", `-32602`},
		{`{"jsonrpc":"2.0","id":6,"method":"tools/list","params":{` +
			strings.Replace(modernMeta, "2026-07-28", "2031-01-01", 1) + `}}`, "6", `"supported":["2026-07-28"]`},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","params":{` + modernMeta + `}}`, "7", `-32601`},
		{`{"jsonrpc":"2.0","id":8,"method":"initialize","params":{` + modernMeta + `}}`, "8", `-32601`},
		{`{"jsonrpc":"2.0","id":9,"method":"tools/list"}`, "9", `-32002`}, // legacy, and without a handshake
	} {
		c.send(tc.line)
		want(t, c.next(), tc.id, tc.part)
	}
}

// TestSlowClient fills the queue of a client that does not read. Only that client is
// affected, and the daemon holds no more for it than the queue's limit.
func TestSlowClient(t *testing.T) {
	h := start(t)
	slow := h.open(t, protocol.Greeting{Identity: "slow"})
	other := h.dial(t)
	other.send(string(protocol.Append(nil,
		protocol.Greeting{Holdline: 1, Role: "mcp", Session: strings.Replace(uuid, "0", "e", 1)})))
	other.next()
	other.shake()
	_ = slow.conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
	sent := 0
	for ; sent < 100_000; sent++ {
		if _, err := fmt.Fprintf(slow.conn, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`+"\n", sent); err != nil {
			break // the daemon reads no more: its queue is full
		}
	}
	if sent == 100_000 {
		t.Error("the daemon read on for a client that takes no answers")
	}
	other.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"still here"}}}`)
	want(t, other.next(), "1", "still here")
	for i := range sent {
		msg, err := jsonrpc.Parse([]byte(slow.next()))
		if err != nil || string(msg.ID) != fmt.Sprint(i) {
			t.Fatalf("answer %d: id %s, %v", i, msg.ID, err)
		}
	}
}
