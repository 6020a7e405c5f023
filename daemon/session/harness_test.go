package session_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/listener"
	"holdline/daemon/policy"
	"holdline/daemon/session"
	"holdline/daemon/session/executor"
	"holdline/daemon/session/peer"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/socket"
)

// waitLimit is long: a test that reaches it has found a hang.
const waitLimit = 2 * time.Minute

// told notes what sessions report to telemetry.
type told struct {
	mu       sync.Mutex
	requests []string
	calls    []telemetry.Call
}

func (t *told) Request(op telemetry.Operation, _ time.Duration, _ int, f *fault.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	code := "ok"
	if f != nil {
		code = string(f.Fault.Code)
	}
	t.requests = append(t.requests,
		fmt.Sprintf("%s %s %s %s", cmp.Or(op.Method, "-"), cmp.Or(op.Server, "-"), cmp.Or(op.Tool, "-"), code))
}

func (t *told) ToolCall(c telemetry.Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Arguments = nil // which telemetry never keeps
	t.calls = append(t.calls, c)
}

func (t *told) SessionEnded(string) {}

func (t *told) has(want string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.requests, want)
}

// host is a listener with an MCP server behind it.
type host struct {
	path    string
	srv     *session.Server
	told    *told
	hold    chan struct{} // the tool "hold" waits for it
	began   chan struct{} // receives when a "hold" begins
	ended   chan error    // receives the cause when a "hold" is cancelled
	inCall  chan tool.Call
	gone    atomic.Bool  // the processes of the clients have ended
	pid     atomic.Int64 // pid of the clients, if not 0
	store   atomic.Value // string
	resumed chan map[int64]struct{}
	guests  atomic.Bool            // new clients are guests
	greets  atomic.Pointer[func()] // called when the daemon makes a welcome; may be nil
}

// start runs a host with three tools: echo, hold and steps, and room for eight
// calls of a session at once.
func start(tb testing.TB) *host {
	tb.Helper()
	return startWith(tb, 8)
}

// startLate is [start] for a host at which the time to resume sessions of an earlier daemon
// is over.
func startLate(tb testing.TB) *host {
	tb.Helper()
	return startAt(tb, 8, time.Now().Add(-time.Hour))
}

func startWith(tb testing.TB, inFlight int) *host {
	tb.Helper()
	return startAt(tb, inFlight, time.Now())
}

// startAt starts a host whose daemon began at begun, with this limit of calls in flight and more tools.
func startAt(tb testing.TB, inFlight int, begun time.Time, more ...tool.Tool) *host {
	tb.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &host{
		path: filepath.Join(dir, "s"), told: &told{},
		hold: make(chan struct{}), began: make(chan struct{}, 1024), ended: make(chan error, 1024),
		inCall:  make(chan tool.Call, 1024),
		resumed: make(chan map[int64]struct{}, 16),
	}
	h.store.Store("st")
	cat, err := tool.NewCatalog(policy.NewRules(&config.Config{
		Sockets: map[string]config.Socket{"box": {Allow: []string{"*"}}},
	}), nil, append(more,
		tool.Tool{
			Name: "echo", Description: "says it again", Dispatch: tool.OnHost, Contract: tool.Convergent,
			Properties: json.RawMessage(`{"text":{"type":"string"}}`),
			Handle: func(_ context.Context, c tool.Call) (tool.Result, error) {
				h.inCall <- c
				var in struct{ Text string }
				if err := json.Unmarshal(c.Args, &in); err != nil {
					return tool.Result{}, err
				}
				return tool.Result{Text: "echo: " + in.Text, Value: map[string]string{"text": in.Text}}, nil
			},
		},
		tool.Tool{
			Name: "hold", Description: "waits", Dispatch: tool.OnWorker, Contract: tool.NeverReplay,
			Handle: func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				h.began <- struct{}{}
				select {
				case <-h.hold:
					return tool.Result{Text: "held"}, nil
				case <-ctx.Done():
					h.ended <- context.Cause(ctx)
					return tool.Result{}, context.Cause(ctx)
				}
			},
			Resume: func(ctx context.Context, c tool.Call) (tool.Result, error) {
				h.inCall <- c
				select {
				case <-h.hold:
					return tool.Result{Text: "what was begun"}, nil
				case <-ctx.Done():
					h.ended <- context.Cause(ctx)
					return tool.Result{}, context.Cause(ctx)
				}
			},
		},
		tool.Tool{
			Name: "steps", Description: "tells progress", Dispatch: tool.OnHost, Contract: tool.Convergent,
			Handle: func(_ context.Context, c tool.Call) (tool.Result, error) {
				if c.Progress != nil {
					for _, v := range []float64{1, 2, 2, 1, 3} { // only increasing values are sent
						c.Progress(v, 3, "step")
					}
				}
				return tool.Result{Text: "done"}, nil
			},
		},
	)...)
	if err != nil {
		tb.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.srv = session.New(session.Options{
		Log: log, Catalog: cat, Telemetry: h.told,
		Info:         mcp.Implementation{Name: "holdline", Version: "test"},
		Instructions: [][2]string{{"echo", "hello"}, {"hold", "wait"}, {"consult", "no such tool"}},
		CheckView:    func(string) error { return nil },
		Authorise: func(identity, token string) error {
			if identity == "codex" && token != "secret" {
				return fmt.Errorf("identity %q needs its token", identity)
			}
			return nil
		},
		Reserved: func(identity string) bool { return identity == "codex" },
		Welcome: func() protocol.Welcome {
			if f := h.greets.Load(); f != nil {
				(*f)()
			}
			return protocol.Welcome{Store: h.store.Load().(string), Daemon: protocol.DaemonInfo{PID: 1}}
		},
		MaxInFlight: inFlight, MaxKept: 4 << 10, Begun: begun,
		Alive: func(peer.Peer) bool { return !h.gone.Load() },
		Lost: func(since, _, _, _ string) (string, bool) {
			return "", since != "" && since != h.store.Load().(string)
		},
		Still:     func() bool { return true },
		Client:    func(int) (int, string) { return 0, "" },
		Executors: executor.List{jobs{h, cat}}, Hosted: noServers{},
	})
	ln, err := net.Listen("unix", h.path)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	l := listener.New(listener.Options{
		Log: log, UIDs: []int{os.Getuid()}, MaxConns: 16, PeerOf: h.peerOf,
		Handlers: map[string]listener.Handler{protocol.RoleMCP: func(ctx context.Context, c *listener.Conn) {
			if h.guests.Load() {
				c.Guest = &listener.Guest{Socket: "box", InFlight: inFlight}
			}
			h.srv.ServeConn(ctx, c)
		}},
	})
	go func() { done <- l.Serve(ctx, ln.(*net.UnixListener)) }()
	tb.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				tb.Errorf("Serve = %v", err)
			}
		case <-time.After(waitLimit):
			panic("the listener did not end: a goroutine hangs")
		}
	})
	return h
}

// noServers are the hosted servers of a daemon that has none.
type noServers struct{}

func (noServers) Opened(string, tool.Client) {}

func (noServers) Respond(string, int64, jsonrpc.Message) bool { return false }

func (noServers) Notified(string, jsonrpc.Message) {}

func (noServers) Tuned() {}

func (noServers) Subscribe(context.Context, tool.Caller, string, string, bool) (json.RawMessage, error) {
	return nil, nil
}

func (noServers) Unsubscribe(string, string, string) {}
func (noServers) Back(string)                        {}
func (noServers) Retell(string)                      {}

// jobs is an executor for which line 77 is a call of hold that has begun.
type jobs struct {
	h   *host
	cat *tool.Catalog
}

func (j jobs) Recall(_ string, n int64, _ string) (*tool.Remote, bool) {
	if n != 77 {
		return nil, false
	}
	return j.cat.Own(&tool.Caller{}, "hold").Remote(), true
}

func (jobs) Unread(string, string, string, int64) <-chan struct{} { return nil }

func (jobs) Confirmed(string, int64) {}

func (j jobs) Resumed(_ string, pending map[int64]struct{}) { j.h.resumed <- pending }

func (jobs) Closed(string, string) {}

func (h *host) peerOf(c *net.UnixConn) (socket.Peer, error) {
	p, err := socket.PeerOf(c)
	if pid := h.pid.Load(); pid != 0 {
		p.PID = int(pid)
	}
	return p, err
}

// client is one connection to a host.
type client struct {
	t     testing.TB
	conn  *net.UnixConn
	lines *jsonrpc.Lines
}

// dial connects without a greeting.
func (h *host) dial(tb testing.TB) *client {
	tb.Helper()
	conn, err := net.Dial("unix", h.path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(waitLimit))
	return &client{t: tb, conn: conn.(*net.UnixConn), lines: jsonrpc.NewLines(conn, jsonrpc.MaxFrame)}
}

const uuid = "01234567-89ab-cdef-0123-456789abcdef"

// greet connects and sends a greeting.
func (h *host) greet(tb testing.TB, g protocol.Greeting) *client {
	tb.Helper()
	c := h.dial(tb)
	g.Holdline, g.Role = protocol.Version, protocol.RoleMCP
	if g.Session == "" {
		g.Session = uuid
	}
	c.send(string(bytes.TrimSpace(protocol.Append(nil, g))))
	return c
}

// open connects, greets and shakes hands.
func (h *host) open(tb testing.TB, g protocol.Greeting) *client {
	tb.Helper()
	c := h.greet(tb, g)
	if w := c.next(); !strings.Contains(w, `"store":"st"`) {
		tb.Fatalf("welcome = %s", w)
	}
	c.shake()
	return c
}

func (c *client) shake() {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}`)
	if a := c.next(); !strings.Contains(a, `"protocolVersion":"2025-06-18"`) {
		c.t.Fatalf("initialize = %s", a)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(line + "\n")); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

// next returns the next line.
func (c *client) next() string {
	c.t.Helper()
	line, err := c.lines.Next()
	if err != nil {
		c.t.Fatalf("reading: %v", err)
	}
	return string(line)
}

// end fails the test unless the connection is closed without another line.
func (c *client) end() {
	c.t.Helper()
	if line, err := c.lines.Next(); err == nil {
		c.t.Fatalf("got %s, want the end", line)
	}
}

// want checks the id of an answer, and that it has these parts.
func want(tb testing.TB, line, id string, parts ...string) {
	tb.Helper()
	msg, err := jsonrpc.Parse([]byte(line))
	if err != nil && !strings.Contains(line, `"id":null`) {
		tb.Fatalf("answer %s: %v", line, err)
	}
	if id == "null" && msg.ID != nil || id != "null" && string(msg.ID) != id {
		tb.Errorf("answer %s has id %s, want %s", line, msg.ID, id)
	}
	for _, part := range parts {
		if !strings.Contains(line, part) {
			tb.Errorf("answer %s lacks %s", line, part)
		}
	}
}
