package session

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/policy"
	"holdline/daemon/session/executor"
	"holdline/daemon/session/flight"
	"holdline/daemon/session/link"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/peer"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// quietParts are the hosted servers, the telemetry and the one executor of a server for tests.
type quietParts struct {
	Hosted
	executor.Executor
	closed func(session string) // called when a session is over; may be nil
}

func (quietParts) Opened(string, tool.Client) {}

func (quietParts) Resumed(string, map[int64]struct{}) {}

func (p quietParts) Closed(session, _ string) {
	if p.closed != nil {
		p.closed(session)
	}
}

func (quietParts) Subscribe(context.Context, tool.Caller, string, string, bool) (json.RawMessage, error) {
	return nil, nil
}

func (quietParts) Request(telemetry.Operation, time.Duration, int, *fault.Record) {}

func (quietParts) ToolCall(telemetry.Call) {}

func (quietParts) SessionEnded(string) {}

// quietServer returns a server with these parts, at which a client may have one call in flight.
func quietServer(p quietParts) *Server {
	return New(Options{
		Log: slog.New(slog.DiscardHandler), Telemetry: p, Hosted: p, Executors: executor.List{p},
		Welcome: func() protocol.Welcome { return protocol.Welcome{} },
		Client:  func(int) (int, string) { return 0, "" },
		MaxKept: 1 << 20, MaxInFlight: 1, Begun: time.Now(),
	})
}

// connection returns a link whose other end is a client with that greeting.
func connection(t *testing.T, g protocol.Greeting) *link.Link {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ours := conn.(*net.UnixConn)
	return link.New(ours, jsonrpc.NewLines(ours, jsonrpc.MaxFrame), &g, peer.Peer{}, nil)
}

// attachedTo returns the session of a client that is connected by l.
func attachedTo(t *testing.T, srv *Server, l *link.Link) *session {
	t.Helper()
	one, _, refusal := srv.openSession(l, nil)
	if refusal != nil {
		t.Fatal(refusal)
	}
	one.log = srv.o.Log
	one.attachLink(t.Context(), l)
	return one
}

// TestStoredAnswerOfBrokenConnection breaks the connection just after an answer was queued, before
// the goroutine of its request has noted that. An answer that is kept is given again; for one that
// an executor has stored the request must be handled again.
func TestStoredAnswerOfBrokenConnection(t *testing.T) {
	for _, stored := range []bool{false, true} {
		one := attachedTo(t, quietServer(quietParts{}), connection(t, protocol.Greeting{Session: "s", Next: 1}))
		r := &request{n: 3, msg: jsonrpc.Message{ID: jsonrpc.ID("1")}}
		if f := one.enterFlight(r, false, func(error) {}); f != nil {
			t.Fatal(f)
		}
		if err := one.endWork(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		answer := outbox.Answer{N: 3, Line: []byte("{}"), Stored: stored}
		if !one.queueAnswer(t.Context(), answer, r.flight.MayAnswer) {
			t.Fatal("the answer is not queued")
		}
		one.detach(one.cur)
		again := protocol.Greeting{Session: "s", Resume: true, Next: 4, Pending: []int64{3}}
		one.attachLink(t.Context(), connection(t, again))
		if _, known := one.known[3]; known == stored {
			t.Errorf("stored %v: that line 3 is repeated is ignored: %v", stored, known)
		}
		if at := r.flight.At(); stored && at != flight.Finished {
			t.Errorf("the flight of a stored answer that is gone is in phase %d", at)
		}
	}
}

// TestClosedBeforeSuccessor checks that the executors are told of a session's end before the same
// client can open it anew: they would end the new one.
func TestClosedBeforeSuccessor(t *testing.T) {
	var srv *Server
	var one *session
	told := false
	srv = quietServer(quietParts{closed: func(string) {
		told = true
		if _, fresh, _ := srv.openSession(connection(t, protocol.Greeting{Session: "s", Resume: true}), nil); fresh {
			t.Error("the session is open anew before its end was told")
		}
		select {
		case <-one.over:
			t.Error("clients that wait for the session go on before its end was told")
		default:
		}
	}})
	one = attachedTo(t, srv, connection(t, protocol.Greeting{Session: "s", Next: 1}))
	one.mu.Lock()
	one.setLocked(ended, nil)
	one.mu.Unlock()
	srv.closeSession(one)
	if _, fresh, _ := srv.openSession(connection(t, protocol.Greeting{Session: "s", Resume: true}), nil); !fresh || !told {
		t.Errorf("afterwards: a new session is %v, and the end was told: %v", fresh, told)
	}
}

// TestRefusedSubscription checks that a subscription that is refused, because too many calls are in
// flight, leaves the subscriptions of the session as they were.
func TestRefusedSubscription(t *testing.T) {
	one := attachedTo(t, quietServer(quietParts{}), connection(t, protocol.Greeting{Session: "s", Identity: "a", Next: 1}))
	busy := &request{n: 3, msg: jsonrpc.Message{ID: jsonrpc.ID("1")}}
	if f := one.enterFlight(busy, false, func(error) {}); f != nil {
		t.Fatal(f)
	}
	one.follows["x:old"] = 2
	calls := one.srv.pool.New()
	for n, uri := range []string{"x:old", "x:new"} {
		r := &request{n: int64(4 + n), msg: jsonrpc.Message{ID: jsonrpc.ID("2"), Method: mcp.Subscribe}}
		r.params.URI = []byte(`"` + uri + `"`)
		one.subscribe(t.Context(), r, calls)
	}
	calls.Wait()
	if len(one.follows) != 1 || one.follows["x:old"] != 2 {
		t.Errorf("after two refusals the session follows %v, want x:old of line 2", one.follows)
	}
}

// TestChangeWithoutRoom checks that a change of a list that cannot be announced, since the client's
// queue is full, does not keep the next change from being announced.
func TestChangeWithoutRoom(t *testing.T) {
	l := connection(t, protocol.Greeting{Session: "s", Next: 1})
	srv := quietServer(quietParts{})
	srv.o.Catalog, _ = tool.NewCatalog(policy.NewRules(&config.Config{}), nil)
	one := attachedTo(t, srv, l)
	one.profile.Era = "legacy"
	one.lists.Given(mcp.ToolsList, "another")
	for range outbox.MaxLines {
		l.Out.Offer([]byte("{}\n"), nil)
	}
	one.ListChanged(mcp.ToolsChanged)
	if !one.lists.Announce(mcp.ToolsChanged, one.look([]string{mcp.ToolsList}), true) {
		t.Error("a change that was dropped counts as announced")
	}
}
