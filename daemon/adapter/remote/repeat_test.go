package remote

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// TestLostAnswers checks what becomes of a request whose kept connection the server closes while
// it is written: it is sent once more if it may be, and its outcome is unknown otherwise.
func TestLostAnswers(t *testing.T) {
	const head = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{`
	const marked = head + `"_meta":{"holdline/repeats":true%},"name":"t"}}`
	for name, x := range map[string]struct {
		line, arrives string // "" if it arrives as it is
		loses         int32  // so many answers
		hits          int32
		code          fault.Code // "" for an answer
	}{
		"a list":        {strings.Replace(callLine, mcp.ToolsCall, mcp.ToolsList, 1), "", 1, 2, ""},
		"a list, twice": {strings.Replace(callLine, mcp.ToolsCall, mcp.ToolsList, 1), "", 2, 2, fault.TransportFailure},
		"a call":        {callLine, "", 1, 1, fault.OutcomeUnknown},
		"a call that may be repeated": {
			strings.Replace(marked, "%", "", 1), head + `"name":"t"}}`, 1, 2, "",
		},
		"a call that may be repeated, with _meta": {
			strings.Replace(marked, "%", `,"a":1.0`, 1),
			head + `"_meta":{"a":1.0},"name":"t"}}`, 2, 2,
			fault.TransportFailure,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var hits atomic.Int32
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				if strings.Contains(string(b), `"first"`) {
					answer(w, asJSON, `{"jsonrpc":"2.0","id":"first","result":{}}`)
					return
				}
				want := x.arrives
				if want == "" {
					want = x.line
				}
				if string(b) != want {
					t.Errorf("the server got %s\nwant %s", b, want)
				}
				if hits.Add(1) > x.loses {
					answer(w, asJSON, `{"jsonrpc":"2.0","id":7,"result":{}}`)
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.Close()
			})
			c := New(Options{Name: "s", URL: url})
			if _, err := send(t, c, `{"jsonrpc":"2.0","id":"first","method":"ping"}`); err != nil {
				t.Fatal(err)
			}
			got, err := send(t, c, x.line)
			f, isFault := errors.AsType[*fault.Record](err)
			if hits.Load() != x.hits || (x.code == "") != (err == nil) || isFault && f.Fault.Code != x.code ||
				err == nil && !slices.Equal(got, []string{`{"jsonrpc":"2.0","id":7,"result":{}}`}) {
				t.Errorf("got %q, %v after %d requests", got, err, hits.Load())
			}
			if isFault && f.Retried != (x.hits == 2) {
				t.Errorf("retried %v", f.Retried)
			}
		})
	}
}

// TestSecondAttemptOnNewConnection checks that a call that may be repeated survives the end of a gateway that had
// kept several connections: all of them break as soon as a request is written, and only a new one leads to
// the gateway that has taken its place.
func TestSecondAttemptOnNewConnection(t *testing.T) {
	const kept = 3
	var old sync.Map // the client's addresses of those connections
	var greeted sync.WaitGroup
	greeted.Add(kept)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if strings.Contains(string(b), `"ping"`) {
			old.Store(r.RemoteAddr, true)
			greeted.Done()
			greeted.Wait() // so that each ping has a connection of its own
			answer(w, asJSON, strings.Replace(string(b), `"method":"ping"`, `"result":{}`, 1))
			return
		}
		if _, isOld := old.Load(r.RemoteAddr); !isOld {
			answer(w, asJSON, `{"jsonrpc":"2.0","id":7,"result":{}}`)
			return
		}
		hangUp(t, w)
	})
	c := New(Options{Name: "s", URL: url})
	defer c.Close(t.Context())
	var pings sync.WaitGroup
	for range kept {
		pings.Go(func() {
			if _, err := send(t, c, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err != nil {
				t.Error(err)
			}
		})
	}
	pings.Wait()
	got, err := send(t, c, `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`)
	if err != nil || !slices.Equal(got, []string{`{"jsonrpc":"2.0","id":7,"result":{}}`}) {
		t.Errorf("got %q, %v, want the answer of the second attempt", got, err)
	}
}
