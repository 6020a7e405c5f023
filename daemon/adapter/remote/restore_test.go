package remote

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// forgetful is a server with one session, which it forgets when a test says so.
type forgetful struct {
	mu      sync.Mutex
	current string                      // the session that it knows
	n       int                         // sessions so far
	asked   []string                    // requests that it has taken in the current session
	unknown func(w http.ResponseWriter) // the answer for another session
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	m, _ := jsonrpc.Parse(b)
	switch {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method == mcp.Initialize:
		f.n++
		f.current, f.asked = fmt.Sprint("s", f.n), nil
		w.Header().Set("Mcp-Session-Id", f.current)
		answer(w, asJSON, helloBack)
	case r.Header.Get("Mcp-Session-Id") != f.current:
		f.unknown(w)
	case m.Kind == jsonrpc.Request:
		f.asked = append(f.asked, m.Method+" "+string(m.Params))
		answer(w, asJSON, string(jsonrpc.AppendResult(nil, m.ID, []byte("{}"))))
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current = "none"
}

// exampleRefusal answers as the example server of the TypeScript SDK does.
func exampleRefusal(w http.ResponseWriter) {
	w.WriteHeader(http.StatusBadRequest)
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32000,`+
		`"message":"Bad Request: No valid session ID provided"},"id":null}`)
}

// TestRenewedSessionIsRestored checks that a session in the place of a forgotten one has the
// subscriptions and the log level of that one, and that the client hears that everything may
// have changed.
func TestRenewedSessionIsRestored(t *testing.T) {
	for name, unknown := range map[string]func(http.ResponseWriter){
		"404": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, "400": exampleRefusal,
	} {
		t.Run(name, func(t *testing.T) {
			f := &forgetful{unknown: unknown}
			b := startServe(t.Context(), t, Options{Name: "s", URL: serve(t, f.ServeHTTP)})
			b.say(helloLine)
			b.hear()
			b.say(readyLine)
			id := 1
			ask := func(method, params string) {
				t.Helper()
				id++
				b.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))
			}
			for _, x := range [][2]string{
				{mcp.SetLevel, `{"level":"error"}`},
				{mcp.Subscribe, `{"uri":"a:1"}`},
				{mcp.Subscribe, `{"uri":"a:2"}`},
				{mcp.Unsubscribe, `{"uri":"a:1"}`},
				{mcp.SetLevel, `{"level":"info"}`},
			} {
				ask(x[0], x[1])
				if m := b.hear(); m.Result == nil {
					t.Fatalf("%s: %s", x[0], m.Error)
				}
			}
			f.forget()
			ask(mcp.ToolsCall, `{"name":"t"}`)
			var heard []string
			for range 5 {
				m := b.hear()
				heard = append(heard, m.Method+string(m.Params)+string(m.Result))
			}
			slices.Sort(heard)
			if want := []string{
				"notifications/prompts/list_changed", "notifications/resources/list_changed",
				`notifications/resources/updated{"uri":"a:2"}`, "notifications/tools/list_changed", "{}",
			}; !slices.Equal(heard, want) {
				t.Errorf("heard %q\n want %q", heard, want)
			}
			f.mu.Lock()
			slices.Sort(f.asked)
			want := []string{
				`logging/setLevel {"level":"info"}`, `resources/subscribe {"uri":"a:2"}`, `tools/call {"name":"t"}`,
			}
			if !slices.Equal(f.asked, want) || f.n != 2 {
				t.Errorf("session %d was asked %q\n want %q", f.n, f.asked, want)
			}
			f.mu.Unlock()
			b.in.Close()
			if err := b.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRenewedSessionDuringCall checks that a new session is restored although the call that
// found the old one gone is still under way.
func TestRenewedSessionDuringCall(t *testing.T) {
	f := &forgetful{unknown: exampleRefusal}
	hung := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(b)))
		if r.Header.Get("Mcp-Session-Id") == "s2" && string(b) == callLine {
			<-hung
		}
		f.ServeHTTP(w, r)
	})
	b := startServe(t.Context(), t, Options{Name: "s", URL: url})
	b.say(helloLine)
	b.hear()
	b.say(readyLine)
	f.forget()
	b.say(callLine)
	for range 3 {
		if m := b.hear(); !strings.HasSuffix(m.Method, "/list_changed") {
			t.Errorf("heard %+v", m)
		}
	}
	close(hung)
	if m := b.hear(); string(m.ID) != "7" || m.Result == nil {
		t.Errorf("the call: %+v", m)
	}
	b.in.Close()
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestBadRequestsAreNoLostSession checks that a server which answers 400 and -32000 in a new
// session, too, is believed to mean it: no further session is begun, and the client gets the answer.
func TestBadRequestsAreNoLostSession(t *testing.T) {
	var hellos atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) != helloLine {
			exampleRefusal(w)
			return
		}
		w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", hellos.Add(1)))
		answer(w, asJSON, helloBack)
	})
	c := New(Options{Name: "s", URL: url})
	if _, err := send(t, c, helloLine); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := send(t, c, callLine)
		if err != nil || len(got) != 1 || !strings.Contains(got[0], "No valid session ID") {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if hellos.Load() != 2 {
		t.Errorf("%d sessions, want 2", hellos.Load())
	}
}

// TestGrantedWithoutHandshake checks a server that grants a subscription to a client which has
// begun no session.
func TestGrantedWithoutHandshake(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, asJSON, `{"jsonrpc":"2.0","id":7,"result":{}}`)
	})
	c := New(Options{Name: "s", URL: url})
	got, err := send(t, c, `{"jsonrpc":"2.0","id":7,"method":"resources/subscribe","params":{"uri":"a:b"}}`)
	if err != nil || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
	c.Close(t.Context())
}

// TestHandshakeOfNewSessionLost checks the fault of a call which a server has refused since it has
// forgotten the session, and whose new session could not be begun: it was not made.
func TestHandshakeOfNewSessionLost(t *testing.T) {
	var hellos atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch {
		case !strings.Contains(string(b), `"initialize"`):
			http.NotFound(w, r)
		case hellos.Add(1) == 1:
			w.Header().Set(headerSession, "s1")
			answer(w, asJSON, helloBack)
		default:
			hangUp(t, w)
		}
	})
	c := New(Options{Name: "s", URL: url})
	defer c.Close(t.Context())
	if _, err := send(t, c, helloLine); err != nil {
		t.Fatal(err)
	}
	_, err := send(t, c, callLine)
	if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.TransportFailure ||
		f.Operation != "tools/call:t" {
		t.Errorf("got %v", err)
	}
}

// TestHandshakeIsResumed checks that a stream with the answer to a handshake is resumed in the
// session that it has begun.
func TestHandshakeIsResumed(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			w.Header().Set(headerSession, "s1")
			answer(w, asEvents, "retry: 1\nid: 1\ndata: \n\n")
		case r.Header.Get(headerSession) == "s1" && r.Header.Get(headerLastSeen) == "1":
			answer(w, asEvents, "data: "+helloBack+"\n\n")
		default:
			http.Error(w, "no session", http.StatusBadRequest)
		}
	})
	c := New(Options{Name: "s", URL: url})
	defer c.Close(t.Context())
	if got, err := send(t, c, helloLine); err != nil || len(got) != 1 || got[0] != helloBack {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSessionLostInOwnWords_NextCallWorks checks that a server which says in its own way that it has
// lost the session gets a new one, that a call is made at most once, and that it is made if the
// server has certainly not handled it.
func TestSessionLostInOwnWords_NextCallWorks(t *testing.T) {
	status := func(code int, kind, body string, headers ...string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	const plain, page = "text/plain; charset=utf-8", "<html>down</html>"
	for about, c := range map[string]struct {
		unknown   func(w http.ResponseWriter)
		unhandled bool
	}{
		"404":                   {status(404, plain, "no such session"), true},
		"400 as the SDK":        {exampleRefusal, true},
		"400 in words":          {status(400, plain, "Bad Request: No valid session ID provided"), true},
		"400 in JSON":           {status(400, asJSON, `{"error":"No active session"}`), true},
		"400 in JSON-RPC":       {status(400, asJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"?"}}`), true},
		"400 without a word":    {status(400, "", ""), true},
		"401 in words":          {status(401, plain, "Unauthorized: Session not found"), true},
		"401 of a token":        {status(401, asJSON, `{"error":"invalid_token"}`, "WWW-Authenticate", `Bearer error="invalid_token"`), true},
		"409":                   {status(409, asJSON, `{"error":"stale session"}`), true},
		"403 in words":          {status(403, plain, "Invalid session"), false},
		"410":                   {status(410, plain, "gone"), false},
		"421 without a word":    {status(421, "", ""), false},
		"440":                   {status(440, plain, "login time-out"), false},
		"500":                   {status(500, asJSON, `{"error":"unknown session"}`), false},
		"502, a page":           {status(502, "text/html", page), false},
		"503 in JSON-RPC":       {status(503, asJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"session lost"}}`), false},
		"200 with an error":     {status(200, asJSON, `{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}`), false},
		"200 with a BOM":        {status(200, asJSON, "\ufeff"+`{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}`), false},
		"200, no JSON-RPC":      {status(200, asJSON, `{"error":"Session not found"}`), false},
		"an event, no JSON-RPC": {status(200, asEvents, "data: {\"error\":\"Session not found\"}\n\n"), false},
		"an event":              {status(200, asEvents, "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32600,\"message\":\"Session expired\"}}\n\n"), false},
	} {
		for _, repeats := range []bool{false, true} {
			f := &forgetful{unknown: c.unknown}
			cl := New(Options{Name: "s", URL: serve(t, f.ServeHTTP)})
			if _, err := send(t, cl, helloLine); err != nil {
				t.Fatal(err)
			}
			call := callLine
			if repeats {
				call = strings.Replace(callLine, `"params":{`, `"params":{"_meta":{"holdline/repeats":true},`, 1)
			}
			f.forget()
			got, err := send(t, cl, call)
			made := len(got) == 1 && strings.Contains(got[0], `"result"`)
			if made != (c.unhandled || repeats) {
				t.Errorf("%s, may be repeated %t: got %q, %v", about, repeats, got, err)
			}
			if rec, ok := errors.AsType[*fault.Record](err); !made && (!ok || rec.Fault.Code != fault.OutcomeUnknown) {
				t.Errorf("%s: got %v, want outcome_unknown", about, err)
			}
			if got, err := send(t, cl, call); err != nil || len(got) != 1 || !strings.Contains(got[0], `"result"`) {
				t.Errorf("%s: the next call: %q, %v", about, got, err)
			}
			f.mu.Lock()
			if n := len(f.asked); n != 1 && n != 2 || f.n != 2 {
				t.Errorf("%s: %d sessions, and in the second one %q", about, f.n, f.asked)
			}
			f.mu.Unlock()
			cl.Close(t.Context())
		}
	}
}

// TestSessionLives_AnswersArePassedOn checks that answers which could mean a lost session are passed on,
// and no new session is begun, while the server answers a ping in the session; and that faults
// quote what the server says.
func TestSessionLives_AnswersArePassedOn(t *testing.T) {
	for about, c := range map[string]struct {
		code       int
		kind, body string
		want       string
	}{
		"400 in words":      {400, "text/plain", "The tenant header X-Tenant is missing", `"The tenant header X-Tenant is missing"`},
		"400 with a BOM":    {400, asJSON, "\ufeff" + `{"error":"no tenant"}`, `"no tenant"`},
		"401":               {401, asJSON, `{"error":"invalid_token","error_description":"it has expired"}`, `"it has expired: invalid_token"`},
		"403":               {403, asJSON, `{"error":"IP 10.0.0.1 is not on the list"}`, `"IP 10.0.0.1 is not on the list"`},
		"409":               {409, asJSON, `{"errors":[{"message":"a conflict"},{"message":"another"}]}`, `"a conflict; another"`},
		"422":               {422, asJSON, `{"detail":[{"loc":["limit"],"msg":"must be below 100"}]}`, `"must be below 100"`},
		"500, a page":       {500, "text/html", "<html>secret</html>", "(500 Internal Server Error)"},
		"200, no JSON-RPC":  {200, asJSON, `{"error":"token is of another region"}`, `"token is of another region"`},
		"an error of words": {200, asJSON, `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no session of that name"}}`, "no session of that name"},
	} {
		var hellos atomic.Int32
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			switch m, _ := jsonrpc.Parse(b); m.Method {
			case mcp.Initialize:
				w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", hellos.Add(1)))
				answer(w, asJSON, helloBack)
			case mcp.Ping:
				answer(w, asJSON, string(jsonrpc.AppendResult(nil, m.ID, []byte("{}"))))
			default:
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			}
		})
		cl := New(Options{Name: "s", URL: url})
		if _, err := send(t, cl, helloLine); err != nil {
			t.Fatal(err)
		}
		got, err := send(t, cl, callLine)
		if text := fmt.Sprint(got, err); !strings.Contains(text, c.want) || strings.Contains(text, "secret") {
			t.Errorf("%s: got %q, %v, want %s", about, got, err, c.want)
		}
		if hellos.Load() != 1 {
			t.Errorf("%s: %d sessions", about, hellos.Load())
		}
		cl.Close(t.Context())
	}
}
