package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"holdline/protocol/fault"
)

// TestWrongTypeOfContent_AnswerIsTaken has servers send answers under a type of content that is missing or wrong. The
// answer counts if the body shows that it is one.
func TestWrongTypeOfContent_AnswerIsTaken(t *testing.T) {
	events := "event: message\ndata: " + callBack + "\n\n"
	for _, x := range []struct {
		kind, body string
		want       bool
	}{
		{"", callBack, true},
		{"text/plain; charset=utf-8", callBack, true},
		{"text/html", " \r\n" + callBack, true},
		{"application/json-rpc", callBack, true},
		{"application/octet-stream", "\ufeff" + callBack, true},
		{"no type", callBack, true},
		{asEvents, callBack, true},
		{asEvents, "\n\n" + callBack, true},
		{"Application/JSON", "[" + callBack + "]", true},
		{asJSON, events, true},
		{"", events, true},
		{"text/plain", ": hello\n\n" + events, true},
		{asJSON, "data:" + callBack, true},
		{"", "", false},
		{asEvents, "", false},
		{"text/plain", "ok", false},
		{"text/html", "<html>" + callBack, false},
		{"", "7", false},
		{asEvents, `{"error":"down"}`, false},
		{"text/plain", `{"jsonrpc":"2.0","id":8,"result":{}}`, false},
	} {
		c := New(Options{Name: "s", URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
			answer(w, x.kind, x.body)
		})})
		got, err := send(t, c, callLine)
		f, isFault := errors.AsType[*fault.Record](err)
		if answered := len(got) == 1 && got[0] == callBack; answered != x.want || x.want == (err != nil) ||
			err != nil && (!isFault || f.Fault.Code != fault.OutcomeUnknown) {
			t.Errorf("%q, %q: %q, %v", x.kind, x.body, got, err)
		}
	}
}

// undeclared are types of content that no answer should have.
var undeclared = []string{"", "text/plain; charset=utf-8", "application/octet-stream"}

// hijacked writes the head of an answer of that type and then text, and returns the connection.
func hijacked(t *testing.T, w http.ResponseWriter, kind, head, text string) io.Closer {
	t.Helper()
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return io.NopCloser(nil)
	}
	if kind != "" {
		head += "\r\nContent-Type: " + kind
	}
	_, _ = buf.WriteString("HTTP/1.1 200 OK\r\n" + head + "\r\n\r\n" + text)
	_ = buf.Flush()
	return conn
}

// TestCancelledDuringAnswerOfWrongType_CauseIsReturned cancels calls whose answer, under a wrong type of content, has
// only begun. The caller hears why it was cancelled, and not what is wrong with the answer.
func TestCancelledDuringAnswerOfWrongType_CauseIsReturned(t *testing.T) {
	for _, kind := range undeclared {
		for _, text := range []string{"", " ", callBack[:1], callBack[:20], "[" + callBack} {
			cause := errors.New("the client has cancelled the call")
			ctx, cancel := context.WithCancelCause(t.Context())
			begun := make(chan struct{})
			c := New(Options{Name: "s", URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				conn := hijacked(t, w, kind, "Content-Length: 99999", text)
				close(begun)
				<-ctx.Done()
				_ = conn.Close()
			})})
			// The read of the body is cancelled, or the one of its head: both have to end so.
			go func() {
				<-begun
				cancel(cause)
			}()
			err := c.Send(ctx, []byte(callLine), func(line []byte) error {
				t.Errorf("emitted %s", line)
				return nil
			})
			if cancel(nil); !errors.Is(err, cause) {
				t.Errorf("%q, %q: %v", kind, text, err)
			}
		}
	}
}

// TestAnswerOfWrongTypeIsTooLarge_FaultSaysSo checks that an answer above the limit is called too large, whatever its type
// of content is.
func TestAnswerOfWrongTypeIsTooLarge_FaultSaysSo(t *testing.T) {
	for _, kind := range append([]string{asJSON}, undeclared...) {
		for _, line := range []string{callLine, markedCall} {
			c := New(Options{Name: "s", MaxMessage: 100, URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
				answer(w, kind, fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"result":{"x":%q}}`, strings.Repeat("x", 100)))
			})})
			_, err := send(t, c, line)
			if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.DownstreamFailure ||
				!strings.Contains(f.Fault.Detail, "more than 100 bytes") {
				t.Errorf("%q, %s: %v", kind, line, err)
			}
		}
	}
}

// TestAnswerOfWrongTypeBreaksOff_CallThatMayBeRepeatedIs has connections break in an answer of a wrong type of content,
// behind several of its bytes. A call that may be made twice is, and of any other the outcome is unknown.
func TestAnswerOfWrongTypeBreaksOff_CallThatMayBeRepeatedIs(t *testing.T) {
	for _, kind := range undeclared[:2] {
		for _, head := range []string{"Content-Length: 99", "Transfer-Encoding: chunked", "Connection: close"} {
			for _, n := range []int{0, 1, 20, len(callBack) - 1} {
				for _, line := range []string{callLine, markedCall} {
					var asked atomic.Int32
					c := New(Options{Name: "s", URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						if asked.Add(1) > 1 {
							answer(w, kind, callBack)
							return
						}
						text := callBack[:n]
						if strings.HasPrefix(head, "Transfer") {
							text = fmt.Sprintf("%x\r\n%s", len(callBack), text)
						}
						_ = hijacked(t, w, kind, head, text).Close()
					})})
					got, err := send(t, c, line)
					c.http.CloseIdleConnections()
					f, isFault := errors.AsType[*fault.Record](err)
					switch {
					case line == markedCall && (err != nil || len(got) != 1 || asked.Load() != 2):
						t.Errorf("%q, %s, %d bytes: got %q, %v of %d attempts", kind, head, n, got, err, asked.Load())
					case line == callLine && (!isFault || f.Fault.Code != fault.OutcomeUnknown || asked.Load() != 1):
						t.Errorf("%q, %s, %d bytes: made %d times, %v", kind, head, n, asked.Load(), err)
					}
				}
			}
		}
	}
}
