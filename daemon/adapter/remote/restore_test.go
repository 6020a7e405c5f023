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
