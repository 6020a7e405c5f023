package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// waitLimit is longer than any step of these tests takes.
const waitLimit = 30 * time.Second

// sdkServer is the official SDK's server behind an HTTP address.
type sdkServer struct {
	*mcp.Server

	URL       string
	handler   atomic.Pointer[http.Handler]
	cancelled chan struct{} // receives when a call of hang is cancelled
	hangs     chan struct{} // receives when a call of hang begins
	auth      atomic.Pointer[string]
	options   mcp.StreamableHTTPOptions
}

// newSDKServer starts a server with the tools of these tests.
func newSDKServer(t *testing.T, o mcp.StreamableHTTPOptions) *sdkServer {
	t.Helper()
	s := &sdkServer{
		Server:    mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil),
		cancelled: make(chan struct{}, 1), hangs: make(chan struct{}, 1), options: o,
	}
	type in struct {
		Text string `json:"text"`
	}
	mcp.AddTool(s.Server, &mcp.Tool{Name: "echo"},
		func(ctx context.Context, r *mcp.CallToolRequest, i in) (*mcp.CallToolResult, any, error) {
			if token := r.Params.GetProgressToken(); token != nil {
				// Without a stream the notification cannot be sent.
				_ = r.Session.NotifyProgress(ctx,
					&mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Message: "half"})
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: i.Text}}}, nil, nil
		})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "ask"},
		func(ctx context.Context, r *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, any, error) {
			res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "really?"})
			if err != nil {
				return nil, nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: res.Action}}}, nil, nil
		})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "hang"},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, any, error) {
			s.hangs <- struct{}{}
			<-ctx.Done()
			s.cancelled <- struct{}{}
			return nil, nil, ctx.Err()
		})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "drop"},
		func(_ context.Context, r *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, any, error) {
			r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 20 * time.Millisecond})
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "said after the stream was cut"}}},
				nil, nil
		})
	s.forget()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := r.Header.Get("Authorization")
		s.auth.Store(&a)
		(*s.handler.Load()).ServeHTTP(w, r)
	}))
	// Close waits for open streams, which no client ends.
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	s.URL = srv.URL
	return s
}

// forget makes the server forget its sessions.
func (s *sdkServer) forget() {
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.Server }, &s.options)
	s.handler.Store(&h)
}

// client is the official SDK's client, with what it received unasked.
type client struct {
	*mcp.ClientSession

	progress, changed chan string
}

// connect connects the official SDK's client, through Serve, to a server.
func connect(t *testing.T, o Options, version string) *client {
	t.Helper()
	toServe, fromClient := io.Pipe()
	toClient, fromServe := io.Pipe()
	var serving sync.WaitGroup
	serving.Go(func() {
		defer fromServe.Close()
		if err := Serve(t.Context(), toServe, fromServe, slog.New(slog.NewTextHandler(t.Output(), nil)),
			o); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Serve: %v", err)
		}
	})
	c := &client{progress: make(chan string, 100), changed: make(chan string, 100)}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	sdk := mcp.NewClient(&mcp.Implementation{Name: "near", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.progress <- r.Params.Message
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c.changed <- "tools" },
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	session, err := sdk.Connect(ctx, &mcp.IOTransport{Reader: toClient, Writer: fromClient},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	c.ClientSession = session
	t.Cleanup(func() {
		_ = session.Close()
		_ = fromClient.Close()
		serving.Wait()
	})
	return c
}

// call calls a tool, and returns the text of its result.
func (c *client) call(t *testing.T, tool, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	res, err := c.CallTool(ctx,
		&mcp.CallToolParams{Name: tool, Meta: mcp.Meta{"progressToken": "p"}, Arguments: map[string]any{"text": text}})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return res.Content[0].(*mcp.TextContent).Text
}

func wait(t *testing.T, what string, c <-chan string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(waitLimit):
		t.Fatalf("no %s came", what)
	}
}

// TestSDK connects the official client and the official server through Serve, with each
// kind of server that there is.
func TestSDK(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		version  string
		o        mcp.StreamableHTTPOptions
		progress bool // progress arrives while a call runs
		stateful bool
	}{
		"2025-03-26 streams":   {"2025-03-26", mcp.StreamableHTTPOptions{}, true, true},
		"2025-11-25 streams":   {"2025-11-25", mcp.StreamableHTTPOptions{}, true, true},
		"2025-11-25 json":      {"2025-11-25", mcp.StreamableHTTPOptions{JSONResponse: true}, false, true},
		"2025-11-25 stateless": {"2025-11-25", mcp.StreamableHTTPOptions{Stateless: true}, true, false},
		"2026-07-28 streams": {
			"2026-07-28", mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}, true, false,
		},
		"2026-07-28 json": {
			"2026-07-28",
			mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true, JSONResponse: true},
			false,
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSDKServer(t, x.o)
			c := connect(t,
				Options{Name: "far", URL: s.URL, Headers: map[string]string{"Authorization": "Bearer b-token"}},
				x.version)
			if got := c.InitializeResult().ProtocolVersion; got != x.version {
				t.Errorf("version %s, want %s", got, x.version)
			}
			tools, err := c.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 4 {
				t.Fatalf("tools: %v, %v", tools, err)
			}
			if got := c.call(t, "echo", "über\nzwei"); got != "über\nzwei" {
				t.Errorf("echo = %q", got)
			}
			if x.progress {
				wait(t, "progress", c.progress)
			}
			if got := *s.auth.Load(); got != "Bearer b-token" {
				t.Errorf("Authorization %q", got)
			}
			// Parallel calls neither wait for each other nor get each other's answer.
			var all sync.WaitGroup
			for i := range 30 {
				all.Go(func() {
					text := fmt.Sprint("call ", i)
					if got := c.call(t, "echo", text); got != text {
						t.Errorf("echo(%s) = %s", text, got)
					}
				})
			}
			all.Wait()
			if !x.stateful && !x.o.PropagateRequestCancellation {
				return // cancellation does not reach such a server
			}
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() {
				if _, err := c.CallTool(ctx,
					&mcp.CallToolParams{Name: "hang", Arguments: map[string]any{"text": ""}}); !errors.Is(err,
					context.Canceled) {
					t.Errorf("a cancelled call: %v", err)
				}
			})
			<-s.hangs
			cancel()
			all.Wait()
			select {
			case <-s.cancelled:
			case <-time.After(waitLimit):
				t.Error("the server was not told of the cancellation")
			}
			if !x.stateful {
				return
			}
			if !x.o.JSONResponse {
				if got := c.call(t, "ask", ""); got != "decline" {
					t.Errorf("ask = %q", got)
				}
			}
			s.AddTool(&mcp.Tool{Name: "late", InputSchema: map[string]any{"type": "object"}}, nil)
			wait(t, "change of the list", c.changed)
		})
	}
}

// TestNewSession makes the server forget the session. Each call is answered in a new
// session, and the client notices nothing.
func TestNewSession(t *testing.T) {
	s := newSDKServer(t, mcp.StreamableHTTPOptions{})
	c := connect(t, Options{Name: "far", URL: s.URL}, "2025-11-25")
	c.call(t, "echo", "x")
	for range 2 {
		s.forget()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				text := fmt.Sprint("call ", i)
				if got := c.call(t, "echo", text); got != text {
					t.Errorf("echo(%s) = %s", text, got)
				}
			})
		}
		all.Wait()
	}
	// However many calls failed at once, each time one new session was made for all.
	n := 0
	for range s.Sessions() {
		n++
	}
	if n != 3 {
		t.Errorf("the server has had %d sessions, want 3", n)
	}
	// Messages that the server sends unasked arrive in the new session, too.
	s.AddTool(&mcp.Tool{Name: "late", InputSchema: map[string]any{"type": "object"}}, nil)
	wait(t, "change of the list", c.changed)
}

// TestResume checks that a stream that was cut is resumed, if the server keeps its events.
func TestResume(t *testing.T) {
	s := newSDKServer(t, mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)})
	c := connect(t, Options{Name: "far", URL: s.URL}, "2025-11-25")
	for range 3 {
		if got := c.call(t, "drop", "x"); got != "said after the stream was cut" {
			t.Errorf("drop = %q", got)
		}
	}
}
