package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol/fault"
)

// TestResumeFails_CallGetsItsAnswerLater checks that a stream which cannot be resumed for a while is resumed
// later, with pauses that grow, whatever the reason is. A refusal for good ends the call at once.
func TestResumeFails_CallGetsItsAnswerLater(t *testing.T) {
	status := func(code int, after string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(code)
		}
	}
	rows := map[string]struct {
		fails   http.HandlerFunc
		tries   int           // with how many the answer comes, if 0 not at all
		atLeast time.Duration // that it takes
		atMost  time.Duration
	}{
		"503 that asks for a wait":     {status(503, "20"), 3, 40 * time.Second, 43 * time.Second},
		"429 that asks for a long one": {status(429, "3600"), 3, time.Minute, 63 * time.Second},
		"no head of an answer": {
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			3, 60 * time.Second, 64 * time.Second,
		},
		"a reset": {func(w http.ResponseWriter, _ *http.Request) { hangUp(t, w) }, 9, 30 * time.Second, 3 * time.Minute},
		"a stream that ends without an event": {
			func(w http.ResponseWriter, _ *http.Request) { answer(w, asEvents, ": nothing\n\n") },
			9, 30 * time.Second, 3 * time.Minute,
		},
		"a stream that asks for a wait": {
			func(w http.ResponseWriter, _ *http.Request) { answer(w, asEvents, "retry: 7000\n\n") },
			9, 50 * time.Second, time.Minute,
		},
	}
	for _, code := range []int{408, 409, 425, 429, 500, 502, 503, 504, 520, 524, 529} {
		row := rows["a reset"]
		row.fails = status(code, "")
		rows[fmt.Sprint(code)] = row
	}
	for _, code := range []int{204, 302, 400, 401, 403, 404, 405, 410, 501} {
		row := rows["a reset"]
		row.fails, row.tries = status(code, ""), 0
		rows[fmt.Sprint(code)] = row
	}
	for name, x := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls, gets := 0, 0
				c := New(Options{Name: "s", URL: "http://in.memory"})
				end := serveInMemory(c, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if r.Method == http.MethodPost {
						calls++
						answer(w, asEvents, "id: e1\ndata:\n\n")
						return
					}
					if got := r.Header.Get(headerLastSeen); got != "e1" {
						t.Errorf("resumed behind %q", got)
					}
					if gets++; gets == x.tries {
						answer(w, asEvents, "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n")
						return
					}
					x.fails(w, r)
				})
				start, answers := time.Now(), 0
				err := c.Send(t.Context(), []byte(callLine), func([]byte) error { answers++; return nil })
				took := time.Since(start)
				f, _ := errors.AsType[*fault.Record](err)
				switch {
				case calls != 1:
					t.Errorf("made %d times", calls)
				case x.tries == 0 && (f == nil || f.Fault.Code != fault.OutcomeUnknown || gets != 1 || took > time.Second):
					t.Errorf("%v with %d tries after %s, want outcome_unknown at once", err, gets, took)
				case x.tries != 0 && (err != nil || answers != 1 || gets != x.tries || took < x.atLeast || took > x.atMost):
					t.Errorf("%v, %d answers with %d tries after %s", err, answers, gets, took)
				}
				end()
			})
		})
	}
}

// TestGatewayAway_ResumeGoesOnUntilCallEnds checks that a call whose server cannot be reached any more is
// resumed until its caller gives it up, and that the tries become fewer.
func TestGatewayAway_ResumeGoesOnUntilCallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Name: "s", URL: "http://in.memory"})
		end := serveInMemory(c, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Connection", "close")
			answer(w, asEvents, "id: e1\ndata:\n\n")
		})
		transport := c.http.Transport.(*http.Transport)
		dial, dials := transport.DialContext, 0
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials > 1 {
				return nil, errors.New("there is no network")
			}
			return dial(ctx, network, address)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		time.AfterFunc(time.Hour, func() { cancel(enough) })
		start := time.Now()
		err := c.Send(ctx, []byte(callLine), func([]byte) error { return nil })
		if took := time.Since(start); !errors.Is(err, enough) || took != time.Hour || dials < 100 || dials > 130 {
			t.Errorf("%v with %d dials after %s, want the end of the call with about 120", err, dials, took)
		}
		end()
	})
}
