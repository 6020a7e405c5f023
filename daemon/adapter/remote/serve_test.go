package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdline/protocol/jsonrpc"
)

// bridged is a running Serve and the ends of its pipes.
type bridged struct {
	*testing.T
	in    io.WriteCloser
	out   chan string // closed when Serve has returned
	ended chan error
}

// startServe runs Serve between two pipes.
func startServe(ctx context.Context, t *testing.T, o Options) *bridged {
	t.Helper()
	in, toServe := io.Pipe()
	fromServe, out := io.Pipe()
	b := &bridged{T: t, in: toServe, out: make(chan string, 1000), ended: make(chan error, 1)}
	go func() {
		defer close(b.out)
		for lines := jsonrpc.NewLines(fromServe, jsonrpc.MaxFrame); ; {
			line, err := lines.Next()
			if err != nil {
				return
			}
			b.out <- string(line)
		}
	}()
	go func() {
		err := Serve(ctx, in, out, slog.New(slog.NewTextHandler(t.Output(), nil)), o)
		_ = out.Close()
		b.ended <- err
	}()
	return b
}

func (b *bridged) say(line string) {
	b.Helper()
	if _, err := io.WriteString(b.in, line+"\n"); err != nil {
		b.Fatal(err)
	}
}

func (b *bridged) hear() jsonrpc.Message {
	b.Helper()
	m, err := jsonrpc.Parse([]byte(within(b.T, b.out)))
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// within returns the next value of c, and fails the test if none comes.
func within[V any](t *testing.T, c <-chan V) V {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(waitLimit):
		t.Fatal("waited in vain")
		panic("unreachable")
	}
}

func (b *bridged) end() error {
	b.Helper()
	return within(b.T, b.ended)
}

// TestServe checks that a failing call is answered with its fault, that a line that is no
// message is ignored, and that the end of the input ends all calls and the session.
func TestServe(t *testing.T) {
	began, gone := make(chan struct{}, 100), make(chan struct{}, 100)
	deleted := make(chan string, 1)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch s := string(b); {
		case r.Method == http.MethodDelete:
			deleted <- r.Header.Get("Mcp-Session-Id")
		case s == helloLine:
			w.Header().Set("Mcp-Session-Id", "sess")
			answer(w, asJSON, helloBack)
		case strings.Contains(s, `"hang"`):
			began <- struct{}{}
			<-r.Context().Done()
			gone <- struct{}{}
		case strings.Contains(s, `"ping"`):
			answer(w, asJSON, `{"jsonrpc":"2.0","id":`+string(jsonrpc.Field(b, "id"))+`,"result":{}}`)
		case strings.Contains(s, `"id":7`):
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
	b := startServe(t.Context(), t, Options{Name: "s", URL: url})
	b.say(helloLine)
	if m := b.hear(); m.ID.Key() != jsonrpc.ID("1").Key() || m.Result == nil {
		t.Errorf("the handshake: %+v", m)
	}
	b.say("no message\n" + `{"jsonrpc":"2.0"}` + "\n\n" + readyLine)
	b.say(callLine)
	m := b.hear()
	if code := jsonrpc.Field(jsonrpc.Field(jsonrpc.Field(m.Error, "data"), "fault"), "code"); string(m.ID) != "7" ||
		string(code) != `"unauthenticated"` {
		t.Errorf("a call that is refused: %+v", m)
	}
	hang := `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"hang"}}`
	b.say(hang)
	within(t, began)
	b.say(hang) // the same id again
	if m := b.hear(); string(m.ID) != "9" || string(jsonrpc.Field(m.Error, "code")) != "-32600" {
		t.Errorf("an id that is taken: %+v", m)
	}
	// A cancelled call is not answered, its connection is closed, and its id can be used
	// again at once.
	const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`
	b.say(cancel)
	within(t, gone)
	for range 50 {
		b.say(hang)
		within(t, began)
		b.say(cancel)
	}
	for range 50 {
		within(t, gone)
	}
	b.say(callLine)
	if m := b.hear(); string(m.ID) != "7" {
		t.Errorf("after a cancelled call: %+v", m)
	}
	b.say(hang)
	within(t, began)
	b.in.Close()
	if err := b.end(); err != nil {
		t.Errorf("Serve = %v", err)
	}
	within(t, gone)
	if got := within(t, deleted); got != "sess" {
		t.Errorf("session %q was ended", got)
	}
	if line, more := <-b.out; more {
		t.Errorf("said at the end: %s", line)
	}
}

// TestSlowNotification checks that a notification which the server does not take holds up no
// call, that the next one waits for it, and that those which wait at the end are sent.
func TestSlowNotification(t *testing.T) {
	notes, release := make(chan string, 10), make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		m, _ := jsonrpc.Parse(b)
		if m.Kind == jsonrpc.Request {
			answer(w, asJSON, string(jsonrpc.AppendResult(nil, m.ID, []byte("{}"))))
			return
		}
		notes <- m.Method + string(m.ID)
		if m.Method == "slow" {
			<-release
		}
		w.WriteHeader(http.StatusAccepted)
	})
	b := startServe(t.Context(), t, Options{Name: "s", URL: url})
	b.say(`{"jsonrpc":"2.0","method":"slow"}` + "\n" + `{"jsonrpc":"2.0","id":3,"result":{}}` + "\n" + callLine)
	if m := b.hear(); string(m.ID) != "7" || m.Result == nil {
		t.Errorf("the call: %+v", m)
	}
	if got := within(t, notes); got != "slow" || len(notes) > 0 {
		t.Errorf("%q came first, %d behind it", got, len(notes))
	}
	b.say(`{"jsonrpc":"2.0","method":"last"}`)
	b.in.Close()
	close(release)
	if err := b.end(); err != nil {
		t.Errorf("Serve = %v", err)
	}
	if first, second := within(t, notes), within(t, notes); first != "3" || second != "last" {
		t.Errorf("then came %q and %q", first, second)
	}
}

// TestServeListens checks that Serve listens in each session from its beginning.
func TestServeListens(t *testing.T) {
	saw := make(chan seen, 100)
	var hellos atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		now := fmt.Sprint("s", hellos.Load())
		b, _ := io.ReadAll(r.Body)
		switch {
		case r.Method == http.MethodGet:
			seeing(saw, r)
			w.Header().Set("Content-Type", asEvents)
			_, _ = io.WriteString(w,
				"data: {\"jsonrpc\":\"2.0\",\"method\":\"from-"+r.Header.Get("Mcp-Session-Id")+"\"}\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case string(b) == helloLine:
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", hellos.Add(1)))
			answer(w, asJSON, helloBack)
		case r.Header.Get("Mcp-Session-Id") != now:
			w.WriteHeader(http.StatusNotFound)
		case string(b) == callLine:
			answer(w, asJSON, `{"jsonrpc":"2.0","id":7,"result":{}}`)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
	b := startServe(t.Context(), t, Options{Name: "s", URL: url})
	b.say(helloLine)
	b.hear()
	b.say(readyLine)
	if m := b.hear(); m.Method != "from-s1" {
		t.Errorf("heard %+v", m)
	}
	hellos.Add(1) // the server forgets the session
	b.say(callLine)
	var heard []string
	for range 5 {
		heard = append(heard, b.hear().Method)
	}
	slices.Sort(heard)
	if !slices.Equal(heard, []string{
		"", "from-s3", "notifications/prompts/list_changed", "notifications/resources/list_changed",
		"notifications/tools/list_changed",
	}) {
		t.Errorf("heard %q", heard)
	}
	b.in.Close()
	if err := b.end(); err != nil {
		t.Errorf("Serve = %v", err)
	}
	if n := len(saw); n != 2 {
		t.Errorf("listened %d times", n)
	}
}

// TestServeEnds checks that Serve returns when its context is cancelled, and when its
// output is closed.
func TestServeEnds(t *testing.T) {
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // before that a server does not notice that the client has gone
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	b := startServe(ctx, t, Options{Name: "s", URL: url})
	b.say(callLine)
	boom := errors.New("boom")
	cancel(boom)
	if err := b.end(); !errors.Is(err, boom) {
		t.Errorf("Serve = %v, want the cause of its context", err)
	}

	// The reader of the output is gone.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	in, toServe := io.Pipe()
	refusing := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	ended := make(chan error, 1)
	var said bytes.Buffer
	go func() {
		ended <- Serve(t.Context(), in, w, slog.New(slog.NewTextHandler(&said, nil)), Options{Name: "s", URL: refusing})
	}()
	if _, err := io.WriteString(toServe, callLine+"\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("Serve ended without an error")
		}
		if !strings.Contains(said.String(), "s answers 410") {
			t.Errorf("what was wrong is not said: %s", said.String())
		}
	case <-time.After(waitLimit):
		t.Error("Serve goes on although nobody reads")
	}
}

// TestTarget checks that a target is read as it was encoded, and that the error for an
// invalid one does not repeat it.
func TestTarget(t *testing.T) {
	want := Target{Name: "s", URL: "https://x", Headers: map[string]string{"A": "b\"<"}}
	got, err := ParseTarget(want.Encode())
	if err != nil || got.Name != want.Name || got.URL != want.URL || got.Headers["A"] != want.Headers["A"] {
		t.Errorf("ParseTarget = %+v, %v", got, err)
	}
	for _, bad := range []string{"", "{}", "secret"} {
		if _, err := ParseTarget(bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseTarget(%q): %v", bad, err)
		}
	}
}
