package standing

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"

	"holdline/daemon/calls"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// legacy is a legacy process that takes all requests, and answers when the test says so.
type legacy struct {
	uris   map[string]struct{}
	asked  []string
	takes  []func(jsonrpc.Message)
	during func(method string) // called before a request is written
}

func (p *legacy) Desired() Desired                  { return Desired{Serving: true} }
func (p *legacy) Level() string                     { return "" }
func (p *legacy) URIs() map[string]struct{}         { return p.uris }
func (p *legacy) CancelListen(int64)                {}
func (p *legacy) Forget(...int64)                   {}
func (p *legacy) Meta() json.RawMessage             { return nil }
func (p *legacy) Agreed(string)                     {}
func (p *legacy) Done() <-chan struct{}             { return nil }
func (p *legacy) answer(n int, msg jsonrpc.Message) { p.takes[n](msg) }

func (p *legacy) Inquire(_ context.Context, _ calls.Record, method string, _ json.RawMessage,
	made func(write int64), take func(msg jsonrpc.Message),
) error {
	p.during(method)
	p.asked, p.takes = append(p.asked, method), append(p.takes, take)
	made(int64(1 + len(p.asked)))
	return nil
}

// TestSubscribedWhileUnsubscribed checks that a session that subscribes while the request is
// written that ends the subscription of an earlier daemon is subscribed by one request: the
// answer to the other request does not end it.
func TestSubscribedWhileUnsubscribed(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	p := &legacy{}
	r := New(p, slog.New(slog.DiscardHandler))
	r.Introduce(false, json.RawMessage(`{"capabilities":{"resources":{"subscribe":true}}}`))
	r.Restore([]calls.Record{{Kind: calls.KindSubscribe, Name: "u", Write: 1}}, 1)
	p.during = func(method string) {
		if method == mcp.Unsubscribe {
			p.uris = map[string]struct{}{"u": {}}
			_, _ = r.Await(gone, "u", false) // it only has to be asked for
		}
	}
	r.reconcile(t.Context())
	p.answer(0, jsonrpc.Message{})
	r.reconcile(t.Context())
	p.answer(1, jsonrpc.Message{})
	r.reconcile(t.Context())
	if want := []string{mcp.Unsubscribe, mcp.Subscribe}; !slices.Equal(p.asked, want) {
		t.Errorf("it was asked %q, want %q", p.asked, want)
	}
	if _, err := r.Await(gone, "u", false); err != nil {
		t.Errorf("the session is not subscribed: %v", err)
	}
}
