package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol/fault"
)

const (
	callLine = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{}}}`
	modern   = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"%s",` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	helloLine = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`
	readyLine = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	helloBack = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`
)

// serve starts a server with the handler, and returns its address.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

// hangUp closes the connection of a request without an answer.
func hangUp(t *testing.T, w http.ResponseWriter) {
	t.Helper()
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_ = conn.Close()
}

// send sends one line, and returns the lines that came back.
func send(t *testing.T, c *Client, line string) (got []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	err = c.Send(ctx, []byte(line), func(line []byte) error {
		got = append(got, string(line))
		return nil
	})
	return got, err
}

func answer(w http.ResponseWriter, kind, body string) {
	w.Header().Set("Content-Type", kind)
	_, _ = io.WriteString(w, body)
}

const (
	asJSON   = "application/json; charset=utf-8"
	asEvents = "text/event-stream"
)

// TestSendIsLossless checks that what a server says is passed on byte by byte, but on one
// line.
func TestSendIsLossless(t *testing.T) {
	const odd = `{"jsonrpc":"2.0","id":7,"result":{"z":1.50,"a":[9007199254740993,1e2,null,""],` +
		`"<&>":"\u00e9\ud800","content":[{"type":"odd","x":{}}]}}`
	asText, asFloat := strings.Replace(odd, "7", `"7"`, 1), strings.Replace(odd, "7", "7.0", 1)
	pretty := strings.NewReplacer(",", ",\r\n  ", "{", "{\n").Replace(odd)
	note := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`
	ask := `{"jsonrpc":"2.0","id":"7","method":"ping"}`
	for name, x := range map[string]struct {
		kind, body string
		want       []string
	}{
		"json":        {asJSON, odd, []string{odd}},
		"pretty json": {asJSON, "\n" + pretty + "\n", []string{strings.ReplaceAll(odd, " ", "")}},
		"a batch":     {asJSON, "[" + note + ", " + odd + "]", []string{note, odd}},
		"events": {
			asEvents, ": hello\n\nevent: message\nid: 1\ndata: " + note + "\n\ndata:" + ask +
				"\r\n\r\nevent: other\ndata: x\n\ndata: " + odd + "\n\ndata: {}\n\n",
			[]string{note, ask, odd},
		},
		"an event of many lines": {asEvents, "data: " + strings.ReplaceAll(pretty, "\r\n", "\ndata: ") + "\n\n", nil},
		"an id as a string":      {asJSON, asText, []string{asText}},
		"an id as a float":       {asEvents, "data: " + asFloat + "\n\n", []string{asFloat}},
		"events in a batch":      {asEvents, "data: [" + note + "," + odd + "]\n\n", []string{note, odd}},
	} {
		if name == "an event of many lines" {
			x.body = "data: " + strings.ReplaceAll(strings.ReplaceAll(pretty, "\r", ""), "\n", "\ndata: ") + "\n\n"
			x.want = []string{odd}
		}
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if b, _ := io.ReadAll(r.Body); string(b) != callLine {
				t.Errorf("the server got %s", b)
			}
			answer(w, x.kind, x.body)
		})
		got, err := send(t, New(Options{Name: "s", URL: url}), callLine)
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%s: %v\n got %q\nwant %q", name, err, got, x.want)
		}
	}
}

// TestSendFaults checks the fault for each way in which a request can fail.
func TestSendFaults(t *testing.T) {
	status := func(code int, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"secret words"},"id":8}`)
		}
	}
	body := func(kind, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { answer(w, kind, text) }
	}
	cut := func(begin string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the end of the request may not be sent any more
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = buf.WriteString(begin)
			_ = buf.Flush()
			_ = conn.Close()
		}
	}
	for _, x := range []struct {
		name   string
		h      http.HandlerFunc
		code   fault.Code
		reason fault.Reason
		text   string
		after  int64 // retry_after_ms of the fault, 0 for none
	}{
		{
			"401",
			status(401, "WWW-Authenticate", "Bearer"),
			fault.Unauthenticated,
			fault.NotLoggedIn,
			"mcpServers.s.headers",
			0,
		},
		{"403", status(403), fault.Unauthenticated, fault.Rejected, "403 Forbidden", 0},
		{
			"302",
			status(302, "Location", "https://user:pw@elsewhere.example/x?token=secret"),
			fault.OutcomeUnknown,
			fault.Rejected,
			"has moved to https://elsewhere.example/x (302 Found)",
			0,
		},
		{
			"308",
			status(308, "Location", "https://elsewhere.example/x"),
			fault.DownstreamFailure,
			fault.Rejected,
			"where Holdline does not follow",
			0,
		},
		{"404 without a session", status(404), fault.DownstreamFailure, fault.Rejected, "answers 404 Not Found", 0},
		{
			"429",
			status(429, "Retry-After", "7"),
			fault.ResourceExhausted,
			fault.RateLimited,
			"takes no more requests for now",
			7000,
		},
		{"503", status(503, "Retry-After", "7"), fault.OutcomeUnknown, "", "503 Service Unavailable", 0},
		{"500", status(500), fault.OutcomeUnknown, "", "500 Internal Server Error", 0},
		{"502", status(502), fault.OutcomeUnknown, "", "is not known", 0},
		{"504", status(504), fault.OutcomeUnknown, "", "is not known", 0},
		{"202 for a request", status(202), fault.OutcomeUnknown, fault.BadOutput, "status 202", 0},
		{
			"html",
			body("text/html", "<html>"),
			fault.OutcomeUnknown,
			fault.BadOutput,
			"neither JSON nor an event stream",
			0,
		},
		{"no JSON", body(asJSON, "{"), fault.OutcomeUnknown, fault.BadOutput, "no JSON", 0},
		{"no JSON-RPC", body(asJSON, `{"result":1}`), fault.OutcomeUnknown, fault.BadOutput, "no JSON-RPC", 0},
		{
			"another's answer",
			body(asJSON, `{"jsonrpc":"2.0","id":"8","result":{}}`),
			fault.OutcomeUnknown,
			fault.BadOutput,
			"to something else",
			0,
		},
		{"nested arrays", body(asJSON, `[[]]`), fault.OutcomeUnknown, fault.BadOutput, "an array in an array", 0},
		{
			"large JSON",
			body(asJSON, `{"jsonrpc":"2.0","id":7,"result":"`+strings.Repeat("x", 5000)+`"}`),
			fault.DownstreamFailure,
			fault.BadOutput,
			"more than 4096 bytes",
			0,
		},
		{
			"large event",
			body(asEvents, "data: "+strings.Repeat("x", 5000)+"\n\n"),
			fault.DownstreamFailure,
			fault.BadOutput,
			"more than 4096 bytes",
			0,
		},
		{
			"large event in lines",
			body(asEvents, strings.Repeat("data: xxxxxxxx\n", 1000)+"\n"),
			fault.DownstreamFailure,
			fault.BadOutput,
			"more than 4096 bytes",
			0,
		},
		{
			"endless line",
			body(asEvents, strings.Repeat("x", 1<<20)),
			fault.DownstreamFailure,
			fault.BadOutput,
			"more than 4096 bytes",
			0,
		},
		{"no events", body(asEvents, ""), fault.OutcomeUnknown, "", "broke before its answer", 0},
		{
			"cut in JSON that ends with the connection",
			cut("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":7,"),
			fault.OutcomeUnknown,
			"",
			"broke before its answer",
			0,
		},
		{"cut before headers", cut(""), fault.OutcomeUnknown, "", "broke before its answer", 0},
		{
			"cut in JSON",
			cut("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"),
			fault.OutcomeUnknown,
			"",
			"broke before its answer",
			0,
		},
		{
			"cut in events",
			cut("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\ndata: {\n"),
			fault.OutcomeUnknown,
			"",
			"broke before its answer",
			0,
		},
	} {
		hits := atomic.Int32{}
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			hits.Add(1)
			x.h(w, r)
		})
		got, err := send(t, New(Options{Name: "s", URL: url, MaxMessage: 4096}), callLine)
		f, ok := errors.AsType[*fault.Record](err)
		if !ok || f.Fault.Code != x.code || f.Reason() != x.reason || !strings.Contains(f.Error(), x.text) ||
			f.Operation != "tools/call:t" {
			t.Errorf("%s: got %q, error %v: %+v", x.name, got, err, f)
			continue
		}
		if strings.Contains(f.Error(), "secret") || strings.Contains(f.Error(), url) && x.name != "308" {
			t.Errorf("%s: shows too much: %v", x.name, f)
		}
		if (f.RetryAfterMS == nil) != (x.after == 0) || x.after != 0 && *f.RetryAfterMS != x.after {
			t.Errorf("%s: retry_after_ms %v, want %d", x.name, f.RetryAfterMS, x.after)
		}
		if hits.Load() != 1 {
			t.Errorf("%s: the server was asked %d times", x.name, hits.Load())
		}
	}
}

// TestSendUnreachable checks that a server that cannot be reached counts as not having got
// the request.
func TestSendUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + ln.Addr().String() + "/secret-path"
	_ = ln.Close()
	_, err = send(t, New(Options{Name: "s", URL: url}), callLine)
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Fault.Code != fault.TransportFailure || f.Reason() != fault.Unreachable ||
		strings.Contains(f.Error(), "secret-path") {
		t.Errorf("error %v", err)
	}
	boom := errors.New("boom")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(boom)
	if err := New(Options{Name: "s", URL: url}).Send(ctx, []byte(callLine), nil); !errors.Is(err, boom) {
		t.Errorf("a cancelled call: %v, want the cause", err)
	}
	if _, err := send(t, New(Options{Name: "s", URL: url}), `{"id":1}`); err == nil {
		t.Error("a line that is no message was sent")
	}
}

// TestSendErrorBody checks that the body of an error status is taken as the answer, if it
// is one.
func TestSendErrorBody(t *testing.T) {
	for _, x := range []struct{ body, want string }{
		{
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}}`,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}}`,
		},
		{
			"{\"jsonrpc\":\"2.0\",\"id\":null,\n\"error\":{\"code\":1.0}}",
			`{"jsonrpc":"2.0","id":7,"error":{"code":1.0}}`,
		},
		{ // as the Python SDK has it
			`{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"no"}}`,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"no"}}`,
		},
		{`{"jsonrpc":"2.0","id":8,"error":{}}`, ""},
		{`{"jsonrpc":"2.0","id":7,"result":{"a":1.0}}`, `{"jsonrpc":"2.0","id":7,"result":{"a":1.0}}`},
		{`{"jsonrpc":"2.0","id":8,"result":{}}`, ""},
		{`{"error":"no"}`, ""},
		{"plain words", ""},
		{strings.Repeat(" ", maxErrorBody) + `{"jsonrpc":"2.0","id":7,"error":{}}`, ""},
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, x.body)
		})
		got, err := send(t, New(Options{Name: "s", URL: url}), callLine)
		if x.want == "" {
			if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.DownstreamFailure ||
				len(got) > 0 {
				t.Errorf("%.60s: got %q, %v", x.body, got, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, []string{x.want}) {
			t.Errorf("%.60s: got %q, %v", x.body, got, err)
		}
	}
}

// TestSendStatusFirst checks that these statuses decide the fault, even if the body is an
// answer, and that a 404 to a modern message does not begin a new session.
func TestSendStatusFirst(t *testing.T) {
	for code, want := range map[int]fault.Code{
		401: fault.Unauthenticated, 403: fault.Unauthenticated, 429: fault.ResourceExhausted,
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Unauthorized"}}`)
		})
		got, err := send(t, New(Options{Name: "s", URL: url}), callLine)
		if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != want || len(got) > 0 {
			t.Errorf("%d: got %q, %v", code, got, err)
		}
	}
	var hits atomic.Int32
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		w.WriteHeader(http.StatusNotFound)
	})
	c := New(Options{Name: "s", URL: url})
	c.hello, c.now = []byte(helloLine), session{id: "s", era: 1}
	_, err := send(t, c, fmt.Sprintf(modern, "t"))
	if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.DownstreamFailure || hits.Load() != 1 {
		t.Errorf("a modern message: %v after %d requests", err, hits.Load())
	}
}

// TestNewSessionInOrder checks that a new session repeats the first handshake, and that the
// message is sent again after it.
func TestNewSessionInOrder(t *testing.T) {
	saw := make(chan string, 10)
	var hellos atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		saw <- r.Header.Get("Mcp-Session-Id") + " " + string(b)
		switch {
		case string(b) == helloLine:
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", hellos.Add(1)))
			answer(w, asJSON, helloBack)
		case string(b) == readyLine:
			w.WriteHeader(http.StatusAccepted)
		case r.Header.Get("Mcp-Session-Id") == "s1":
			w.WriteHeader(http.StatusNotFound)
		default:
			answer(w, asJSON, `{"jsonrpc":"2.0","id":7,"result":{}}`)
		}
	})
	c := New(Options{Name: "s", URL: url})
	for _, line := range []string{helloLine, readyLine, callLine, callLine} {
		if _, err := send(t, c, line); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		" " + helloLine, "s1 " + readyLine, "s1 " + callLine, " " + helloLine, "s2 " + readyLine, "s2 " + callLine,
		"s2 " + callLine,
	} {
		if got := <-saw; got != want {
			t.Errorf("the server got %s\nwant %s", got, want)
		}
	}
}

// TestRedirectsAreNotFollowed checks that credentials are sent to the configured address
// alone.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the request went on to %s", r.URL) })
	for _, code := range []int{301, 302, 303, 307, 308} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, code) })
		c := New(Options{Name: "s", URL: url, Headers: map[string]string{"Authorization": "Bearer x"}})
		if _, err := send(t, c, callLine); err == nil {
			t.Errorf("%d: no error", code)
		}
		c.now = session{version: "2025-11-25"}
		if err := c.Listen(t.Context(), nil); err != nil {
			t.Errorf("%d: Listen = %v", code, err)
		}
	}
}

// TestServerMovesWithinItsOrigin_CallIsMadeOnceThere checks that a server which is at another path of its origin gets
// each message there, once, and the later ones of the session without a detour; and that a circle ends in a fault.
func TestServerMovesWithinItsOrigin_CallIsMadeOnceThere(t *testing.T) {
	for _, code := range []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		var saw []string
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			saw = append(saw, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Authorization")+" "+string(b))
			switch {
			case r.URL.Path == "/circle":
				http.Redirect(w, r, "/circle?n="+strconv.Itoa(len(saw)), code)
			case !strings.HasSuffix(r.URL.Path, "/"):
				http.Redirect(w, r, r.URL.Path+"/?"+r.URL.RawQuery, code)
			case string(b) == readyLine:
				w.WriteHeader(http.StatusAccepted)
			case string(b) == helloLine:
				answer(w, asJSON, helloBack)
			default:
				answer(w, asJSON, callBack)
			}
		})
		headers := map[string]string{"Authorization": "x"}
		c := New(Options{Name: "s", URL: url + "/mcp?k=1", Headers: headers})
		for _, line := range []string{helloLine, readyLine, callLine, helloLine} {
			if _, err := send(t, c, line); err != nil {
				t.Fatalf("%d: %v", code, err)
			}
		}
		want := []string{
			"POST /mcp?k=1 x " + helloLine, "POST /mcp/?k=1 x " + helloLine, "POST /mcp/?k=1 x " + readyLine,
			"POST /mcp/?k=1 x " + callLine, "POST /mcp?k=1 x " + helloLine, "POST /mcp/?k=1 x " + helloLine,
		}
		if !slices.Equal(saw, want) {
			t.Errorf("%d: the server got\n%s\nwant\n%s", code, strings.Join(saw, "\n"), strings.Join(want, "\n"))
		}
		saw = nil
		_, err := send(t, New(Options{Name: "s", URL: url + "/circle", Headers: headers}), callLine)
		if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.DownstreamFailure || len(saw) != 4 {
			t.Errorf("%d, in a circle: %v, after %q", code, err, saw)
		}
	}
}

// TestServerMovesToHTTPS_CallIsMadeOnceThere checks that a server which is asked by http, and says that it speaks https
// at the same host, gets each message there, once; unless the entry has a header, which may be a secret: then the fault
// names the address. And a server behind a gateway that speaks https, and says http itself, keeps https.
func TestServerMovesToHTTPS_CallIsMadeOnceThere(t *testing.T) {
	for _, c := range []struct {
		name, url, to, fault string
		headers              map[string]string
		saw                  []string
	}{
		{"to https", "http://h/mcp", "https://h/mcp", "", nil, []string{"http://h/mcp", "https://h/mcp"}},
		{"and its ports", "http://h:80/mcp", "https://H:443/x", "", nil, []string{"http://h:80/mcp", "https://H:443/x"}},
		{"another port", "http://h:8080/mcp", "https://h/mcp", "https://h/mcp", nil, []string{"http://h:8080/mcp"}},
		{"another host", "http://h/mcp", "https://i/mcp", "https://i/mcp", nil, []string{"http://h/mcp"}},
		{
			"a header", "http://h/mcp", "https://h/mcp", "It has moved to https://h/mcp; write https in the place of http in",
			map[string]string{"X-Key": "k"},
			[]string{"http://h/mcp"},
		},
		{"a query", "http://h/mcp?k=1", "https://h/mcp", "It has moved to https://h/mcp; write https in the place of http in", nil, []string{"http://h/mcp?k=1"}},
		{"back to http", "https://h/mcp", "http://h/mcp/", "", nil, []string{"https://h/mcp", "https://h/mcp/"}},
		{"of its own port", "https://h:8443/mcp", "http://h:8443/mcp/", "", nil, []string{"https://h:8443/mcp", "https://h:8443/mcp/"}},
		{"of another host", "https://h/mcp", "http://i/mcp/", "http://i/mcp/", nil, []string{"https://h/mcp"}},
		{"the same by http", "https://h/mcp", "http://h/mcp", "http://h/mcp", nil, []string{"https://h/mcp"}},
	} {
		var saw []string
		client := New(Options{Name: "s", URL: c.url, Headers: c.headers})
		client.http.Transport = roundTrip(func(req *http.Request) (*http.Response, error) {
			b, _ := io.ReadAll(req.Body)
			_ = req.Body.Close()
			w := httptest.NewRecorder()
			if saw = append(saw, req.URL.String()); len(saw) == 1 && string(b) == callLine {
				w.Header().Set("Location", c.to)
				w.WriteHeader(http.StatusPermanentRedirect)
			} else {
				answer(w, asJSON, callBack)
			}
			resp := w.Result()
			resp.Request = req
			return resp, nil
		})
		_, err := send(t, client, callLine)
		isRight := err == nil && c.fault == "" || err != nil && c.fault != "" && strings.Contains(err.Error(), c.fault)
		if !slices.Equal(saw, c.saw) || !isRight {
			t.Errorf("%s: %v, the requests went to %q, want %q", c.name, err, saw, c.saw)
		}
	}
}

// roundTrip is a transport for tests.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip calls the func.
func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestAnswerAtTheEndOfAStream_IsTaken checks that an answer counts though the empty line behind it, or its own line
// end, is missing; and that one which is cut off, or is for another request, does not.
func TestAnswerAtTheEndOfAStream_IsTaken(t *testing.T) {
	note := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`
	for body, want := range map[string]bool{
		"data: " + callBack + "\n":                                       true,
		"data: " + callBack:                                              true,
		"event: message\ndata: " + callBack:                              true,
		"data: " + strings.Replace(callBack, ",", ",\ndata: ", 1) + "\n": true,
		": only\n\ndata: " + note + "\n\ndata: " + callBack:              true,
		"data: " + callBack[:len(callBack)-1]:                            false,
		"data: " + strings.Replace(callBack, "7", "8", 1) + "\n":         false,
		"data: " + note + "\n":                                           false,
	} {
		c := New(Options{Name: "s", URL: serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, asEvents, body) })})
		got, err := send(t, c, callLine)
		answered := len(got) > 0 && got[len(got)-1] == callBack
		if f, ok := errors.AsType[*fault.Record](err); answered != want || want == (err != nil) ||
			ok && f.Fault.Code != fault.OutcomeUnknown {
			t.Errorf("%q: %q, %v", body, got, err)
		}
	}
}

// seen is what a server has seen of a request.
type seen struct{ method, session, version, mcpMethod, name, auth, accept, last string }

// seeing notes the headers of a request.
func seeing(out chan<- seen, r *http.Request) {
	h := r.Header
	out <- seen{
		r.Method,
		h.Get("Mcp-Session-Id"),
		h.Get("Mcp-Protocol-Version"),
		h.Get("Mcp-Method"),
		h.Get("Mcp-Name"),
		h.Get("Authorization"),
		h.Get("Accept"),
		h.Get("Last-Event-ID"),
	}
}

// TestHeaders checks the headers of requests, of both eras and with configured headers.
func TestHeaders(t *testing.T) {
	const both = "application/json, text/event-stream"
	saw := make(chan seen, 10)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seeing(saw, r)
		b, _ := io.ReadAll(r.Body)
		switch {
		case string(b) == helloLine:
			w.Header().Set("Mcp-Session-Id", "sess-1")
			answer(w, asJSON, helloBack)
		case strings.Contains(string(b), `"id":7`):
			answer(w, asJSON, `{"jsonrpc":"2.0","id":7,"result":{}}`)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
	// Configured headers do not replace the transport's own.
	c := New(Options{
		Name: "s", URL: url,
		Headers: map[string]string{
			"authorization": "Bearer x", "mcp-session-id": "mine", "Accept": "text/html", "Mcp-Name": "x",
		},
	})
	check := func(line string, want seen) {
		t.Helper()
		if _, err := send(t, c, line); err != nil {
			t.Errorf("%s: %v", line, err)
			return
		}
		if got := <-saw; got != want {
			t.Errorf("%.60s:\n got %+v\nwant %+v", line, got, want)
		}
	}
	check(helloLine, seen{"POST", "", "", "", "", "Bearer x", both, ""})
	check(readyLine, seen{"POST", "sess-1", "2025-06-18", "", "", "Bearer x", both, ""})
	check(callLine, seen{"POST", "sess-1", "2025-06-18", "", "", "Bearer x", both, ""})
	check(`{"jsonrpc":"2.0","id":"x","result":{}}`, seen{"POST", "sess-1", "2025-06-18", "", "", "Bearer x", both, ""})
	// Modern messages have no session, and say in their headers what they are.
	check(fmt.Sprintf(modern, "get"), seen{"POST", "", "2026-07-28", "tools/call", "get", "Bearer x", both, ""})
	check(fmt.Sprintf(modern, "ü b"),
		seen{"POST", "", "2026-07-28", "tools/call", "=?base64?w7wgYg==?=", "Bearer x", both, ""})
	check(fmt.Sprintf(modern, " b"),
		seen{"POST", "", "2026-07-28", "tools/call", "=?base64?IGI=?=", "Bearer x", both, ""})
	check(fmt.Sprintf(modern, "=?base64?x"),
		seen{"POST", "", "2026-07-28", "tools/call", "=?base64?PT9iYXNlNjQ/eA==?=", "Bearer x", both, ""})
	check(`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"file:///x",`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		seen{"POST", "", "2026-07-28", "resources/read", "file:///x", "Bearer x", both, ""})
	// The handler answers 202, which ends listening.
	if err := c.Listen(t.Context(), nil); err != nil {
		t.Errorf("Listen: %v", err)
	}
	if got, want := <-saw,
		(seen{"GET", "sess-1", "2025-06-18", "", "", "Bearer x", "text/event-stream", ""}); got != want {
		t.Errorf("Listen:\n got %+v\nwant %+v", got, want)
	}
	c.Close(t.Context())
	if got, want := <-saw,
		(seen{"DELETE", "sess-1", "2025-06-18", "", "", "Bearer x", "text/event-stream", ""}); got != want {
		t.Errorf("Close:\n got %+v\nwant %+v", got, want)
	}
}

// TestOneNewSession checks that a call begins at most one new session: if that one is
// forgotten at once, or cannot be begun, the call fails.
func TestOneNewSession(t *testing.T) {
	for name, x := range map[string]struct {
		again string // the answer to the second handshake, "" for a 401
		hits  int32  // requests that the server gets: handshakes and calls
	}{
		"forgets at once": {helloBack, 4},
		"refuses":         {`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}`, 3},
		"wants a login":   {"", 3},
	} {
		var hits, hellos atomic.Int32
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			hits.Add(1)
			b, _ := io.ReadAll(r.Body)
			if string(b) != helloLine {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", hellos.Add(1)))
			switch {
			case hellos.Load() == 1:
				answer(w, asJSON, helloBack)
			case x.again == "":
				w.WriteHeader(http.StatusUnauthorized)
			default:
				answer(w, asJSON, x.again)
			}
		})
		c := New(Options{Name: "s", URL: url})
		if _, err := send(t, c, helloLine); err != nil {
			t.Fatal(err)
		}
		got, err := send(t, c, callLine)
		f, ok := errors.AsType[*fault.Record](err)
		want := fault.DownstreamFailure
		if x.again == "" {
			want = fault.Unauthenticated
		}
		if !ok || f.Fault.Code != want || len(got) > 0 || hits.Load() != x.hits {
			t.Errorf("%s: got %q, %v, after %d requests, want %d", name, got, err, hits.Load(), x.hits)
		}
	}
}

// TestResumes checks that a stream that the server cuts is resumed behind its last event,
// after the time that the server asked for, and at most maxResumes times.
func TestResumes(t *testing.T) { synctest.Test(t, testResumes) }

func testResumes(t *testing.T) {
	saw := make(chan seen, 100)
	var posts, gets atomic.Int32
	var never atomic.Bool
	c := New(Options{Name: "s", URL: "http://in.memory"})
	end := serveInMemory(c, func(w http.ResponseWriter, r *http.Request) {
		seeing(saw, r)
		if r.Method == http.MethodPost {
			posts.Add(1)
			answer(w, asEvents, "id: e1\nretry: 1\ndata:\n\n")
			return
		}
		switch n := gets.Add(1); {
		case never.Load():
			answer(w, asEvents, ": nothing\n\n")
		case n == 1:
			answer(w, asEvents,
				"id: e2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\ndata: {\"cut")
		default:
			answer(w, asEvents, "id: e3\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n")
		}
	})
	defer end()
	got, err := send(t, c, callLine)
	if want := []string{
		`{"jsonrpc":"2.0","method":"notifications/message"}`, `{"jsonrpc":"2.0","id":7,"result":{}}`,
	}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	<-saw
	if first, second := <-saw, <-saw; first.last != "e1" || second.last != "e2" || posts.Load() != 1 {
		t.Errorf("%d posts, taken up behind %q and %q", posts.Load(), first.last, second.last)
	}

	never.Store(true)
	// A modern stream cannot be resumed.
	gets.Store(0)
	_, err = send(t, c, fmt.Sprintf(modern, "t"))
	if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.OutcomeUnknown || gets.Load() != 0 {
		t.Errorf("a modern stream: %v after %d times", err, gets.Load())
	}
}

// TestListen checks that listening begins again when its stream ends, behind the last
// event, and ends at once where the server does not offer it.
func TestListen(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	saw := make(chan seen, 100)
	var gets atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seeing(saw, r)
		if gets.Add(1) == 2 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		answer(w, asEvents,
			fmt.Sprintf("id: %d\nretry: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n", gets.Load()))
	})
	heard := 0
	err := New(Options{Name: "s", URL: url}).Listen(ctx, func([]byte) error {
		if heard++; heard == 3 {
			cancel(enough)
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("Listen = %v, want the cause of its context", err)
	}
	for _, want := range []string{"", "1", "1", "3"} {
		if got := (<-saw).last; got != want {
			t.Errorf("behind %q, want %q", got, want)
		}
	}
	for _, code := range []int{http.StatusMethodNotAllowed, http.StatusNotFound, http.StatusUnauthorized} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		if err := New(Options{Name: "s", URL: url}).Listen(t.Context(), nil); err != nil {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// TestBadEventsAreSkipped checks that an event which is no message, or is too long, ends neither
// a call nor the listening, and is counted. If it was the answer, the call says what it was.
func TestBadEventsAreSkipped(t *testing.T) {
	const good = "data: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n"
	bad := "data: {\n\ndata: {\"x\":1}\n\ndata: [[]]\n\n"
	long := "id: 9\ndata: " + strings.Repeat("x", 5000) + "\n\n"
	c := New(Options{Name: "s", MaxMessage: 4096})
	ctx, cancel := context.WithCancelCause(t.Context())
	var gets atomic.Int32
	c.o.URL = serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch {
		case r.Method == http.MethodGet && gets.Add(1) == 1:
			answer(w, asEvents, bad+good+long)
		case r.Method == http.MethodGet:
			answer(w, asEvents, "retry: 100\n\n"+good)
		case strings.Contains(string(b), `"id":8`):
			answer(w, asEvents, good+bad)
		default:
			answer(w, asEvents, bad+"data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n")
		}
	})
	heard, enough := 0, errors.New("enough")
	if err := c.Listen(ctx, func([]byte) error {
		if heard++; heard == 2 {
			cancel(enough)
		}
		return nil
	}); !errors.Is(err, enough) {
		t.Errorf("Listen = %v", err)
	}
	if got, err := send(t, c, callLine); err != nil || len(got) != 1 {
		t.Errorf("a call: %q, %v", got, err)
	}
	got, err := send(t, c, strings.Replace(callLine, "7", "8", 1))
	if f, ok := errors.AsType[*fault.Record](err); !ok || f.Reason() != fault.BadOutput || len(got) != 1 {
		t.Errorf("a call whose answer is no message: %q, %v", got, err)
	}
	if n := c.skipped.Load(); n != 10 {
		t.Errorf("%d events were skipped, want 10", n)
	}
}

// TestRetryAfter checks both forms of the Retry-After header.
func TestRetryAfter(t *testing.T) {
	if ms := retryAfter("3"); ms == nil || *ms != 3000 {
		t.Errorf("seconds: %v", ms)
	}
	if ms := retryAfter(time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)); ms == nil || *ms < 3_500_000 ||
		*ms > 3_600_000 {
		t.Errorf("a date: %v", ms)
	}
	if ms := retryAfter("Mon, 01 Jan 2001 00:00:00 GMT"); ms == nil || *ms != 0 {
		t.Errorf("a date that is over: %v", ms)
	}
	for _, s := range []string{"", "-1", "soon", "1.5"} {
		if ms := retryAfter(s); ms != nil {
			t.Errorf("%q: %d", s, *ms)
		}
	}
}

// TestServerSwitchesProtocols_CallEnds checks that a status that nobody has asked for, and whose connection stays
// open, ends a call honestly: it may have been made.
func TestServerSwitchesProtocols_CallEnds(t *testing.T) {
	calls := 0
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		conn, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(out, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		_ = out.Flush()
	})
	got, err := send(t, New(Options{Name: "s", URL: url}), callLine)
	if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.OutcomeUnknown || len(got) > 0 ||
		calls != 1 || !strings.Contains(err.Error(), "101 Switching Protocols") {
		t.Errorf("got %q, %v after %d calls", got, err, calls)
	}
}
