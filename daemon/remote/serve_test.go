package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"holdline/protocol/jsonrpc"
)

// bridged is a Serve that runs, with its ends.
type bridged struct {
	*testing.T
	in    io.WriteCloser
	out   *jsonrpc.Lines
	ended chan error
}

func startServe(ctx context.Context, t *testing.T, o Options) *bridged {
	t.Helper()
	in, toServe := io.Pipe()
	fromServe, out := io.Pipe()
	b := &bridged{T: t, in: toServe, out: jsonrpc.NewLines(fromServe, nil, jsonrpc.MaxFrame), ended: make(chan error, 1)}
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
	line, err := b.out.Next()
	if err != nil {
		b.Fatal(err)
	}
	m, err := jsonrpc.Parse([]byte(string(line)))
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func (b *bridged) end() error {
	b.Helper()
	select {
	case err := <-b.ended:
		return err
	case <-time.After(waitLimit):
		b.Fatal("Serve does not end")
		return nil
	}
}

// What cannot be answered is answered with the fault; what is no message is
// passed over; and the end of the input ends everything.
func TestServe(t *testing.T) {
	began, gone := make(chan struct{}, 10), make(chan struct{}, 10)
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
	if code := jsonrpc.Field(jsonrpc.Field(jsonrpc.Field(m.Error, "data"), "fault"), "code"); string(m.ID) != "7" || string(code) != `"unauthenticated"` {
		t.Errorf("a call that is refused: %+v", m)
	}
	hang := `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"hang"}}`
	b.say(hang)
	<-began
	b.say(hang) // the same id
	if m := b.hear(); string(m.ID) != "9" || string(jsonrpc.Field(m.Error, "code")) != "-32600" {
		t.Errorf("an id that is taken: %+v", m)
	}
	// One that is cancelled is not answered, and its connection is closed.
	b.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
	<-gone
	b.say(callLine)
	if m := b.hear(); string(m.ID) != "7" {
		t.Errorf("after a cancelled call: %+v", m)
	}
	b.say(hang)
	<-began
	b.in.Close()
	if err := b.end(); err != nil {
		t.Errorf("Serve = %v", err)
	}
	<-gone
	if got := <-deleted; got != "sess" {
		t.Errorf("session %q was ended", got)
	}
	if _, err := b.out.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("something was said at the end: %v", err)
	}
}

func TestServeEnds(t *testing.T) {
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancelCause(t.Context())
	b := startServe(ctx, t, Options{Name: "s", URL: url})
	b.say(callLine)
	boom := errors.New("boom")
	cancel(boom)
	if err := b.end(); !errors.Is(err, boom) {
		t.Errorf("Serve = %v, want the cause of its context", err)
	}

	// Nobody reads what it says.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	in, toServe := io.Pipe()
	refusing := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
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
		if !strings.Contains(said.String(), "server s answers 418") {
			t.Errorf("what was wrong is not said: %s", said.String())
		}
	case <-time.After(waitLimit):
		t.Error("Serve goes on although nobody reads")
	}
}

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
