package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// far is a server behind an address, made with the official SDK.
type far struct {
	url     string
	close   func() // stops it
	cut     func() // breaks all connections to it
	handler atomic.Pointer[http.Handler]
	token   string       // that it requires
	drops   atomic.Int32 // so many connections are closed instead of an answer in a session
	loses   atomic.Int32 // a status with which a gateway answers calls after they were made, or 0

	mu    sync.Mutex
	serve http.HandlerFunc
	begun map[string]int // calls of slow, by token; guarded by mu
}

type slowCall struct {
	Token string `json:"token"`
	MS    int    `json:"ms"`
}

// newFar starts a server with its tools. If stateless is true, it is of the modern era.
func newFar(t *testing.T, stateless bool) *far {
	t.Helper()
	f := &far{begun: map[string]int{}, token: "far-secret-token"}
	server := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "slow"},
		func(_ context.Context, _ *mcp.CallToolRequest, in slowCall) (*mcp.CallToolResult, any, error) {
			f.mu.Lock()
			f.begun[in.Token]++
			f.mu.Unlock()
			time.Sleep(time.Duration(in.MS) * time.Millisecond)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "did " + in.Token}}}, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			_, marked := r.Params.Meta["holdline/repeats"] // it is for our own process alone
			text := &mcp.TextContent{Text: fmt.Sprint("marked ", marked)}
			return &mcp.CallToolResult{Content: []mcp.Content{text}}, nil, nil
		})
	f.forget(server, stateless)
	f.serve = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+f.token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Header.Get("Mcp-Session-Id") != "" && f.drops.Load() > 0 && r.Method == http.MethodPost {
			f.drops.Add(-1)
			panic(http.ErrAbortHandler)
		}
		if status := f.loses.Load(); status != 0 && r.Method == http.MethodPost {
			(*f.handler.Load()).ServeHTTP(httptest.NewRecorder(), r)
			w.WriteHeader(int(status))
			return
		}
		// Servers of the older era know neither this method nor its version.
		if !stateless && r.Header.Get("Mcp-Protocol-Version") == "2026-07-28" {
			http.Error(w, "Bad Request: no such version", http.StatusBadRequest)
			return
		}
		(*f.handler.Load()).ServeHTTP(w, r)
	}
	srv := httptest.NewServer(f.serve)
	f.cut = srv.CloseClientConnections
	f.close = sync.OnceFunc(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	t.Cleanup(f.close)
	f.url = srv.URL
	return f
}

// forget makes the server forget its sessions.
func (f *far) forget(server *mcp.Server, stateless bool) {
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: stateless})
	f.handler.Store(&h)
}

func (f *far) times(token string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun[token]
}

// remote writes a configuration with the server as far, and its token into the file of
// variables.
func (p *place) remote(f *far, token string) *place {
	p.t.Helper()
	dir := filepath.Join(p.dir, "home/.config/holdline")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	cfg := fmt.Sprintf(`{"mcpServers": {"far": {"type": "http", "url": %q, "headers": {"Authorization": "Bearer ${FAR_TOKEN}"}}}}`, f.url)
	for name, text := range map[string]string{"config.json": cfg, "env": "FAR_TOKEN=" + token + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	return p
}

// TestRemote checks that calls to a remote server are made once and answered once, even
// if the daemon is killed meanwhile, in both eras.
func TestRemote(t *testing.T) {
	t.Parallel()
	for name, stateless := range map[string]bool{"legacy": false, "modern": true} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t, stateless)
			p := newPlace(t).remote(f, f.token).login()
			a := p.agent().shake()
			a.ask("tools/list", map[string]any{}) // starts the server, and waits for it a moment only
			p.untilReady("far")
			if x := a.ask("tools/list", map[string]any{}); !strings.Contains(x.raw, `"far__slow"`) {
				t.Fatalf("tools/list: %s", x.raw)
			}
			pid := p.pid(0)
			var ids []int
			for i := range 5 {
				ids = append(ids, a.call("far__slow", map[string]any{"token": fmt.Sprint("e", i), "ms": 600}))
			}
			for deadline := time.Now().Add(waitLimit); f.times("e4") == 0; time.Sleep(2 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the calls do not arrive")
				}
			}
			for range 2 {
				kill9(t, pid)
				pid = p.pid(pid)
			}
			for id, x := range a.waitAll(ids...) {
				if x.Error != nil || x.Result.IsError || !strings.Contains(x.text(), "did e") {
					t.Errorf("call %d: %s", id, x.raw)
				}
			}
			for i := range 5 {
				if n := f.times(fmt.Sprint("e", i)); n != 1 {
					t.Errorf("call %d was made %d times", i, n)
				}
			}
			a.leave()
		})
	}
}

// TestRemoteConnectionsBreak_NextCallIsServed checks that connections to a remote server
// which break under many calls are one failure of it: the calls get a fault, and the next call is
// made.
func TestRemoteConnectionsBreak_NextCallIsServed(t *testing.T) {
	t.Parallel()
	const n = 8
	f := newFar(t, true)
	p := newPlace(t).remote(f, f.token)
	p.daemon()
	a, other := p.agent().shake(), p.agent().shake()
	a.ask("tools/list", map[string]any{})
	p.untilReady("far")
	var ids []int
	for i := range n {
		ids = append(ids, a.call("far__slow", map[string]any{"token": fmt.Sprint("e", i), "ms": 3000}))
	}
	for i := range n {
		for deadline := time.Now().Add(waitLimit); f.times(fmt.Sprint("e", i)) == 0; time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the calls do not arrive")
			}
		}
	}
	f.cut()
	for id, x := range a.waitAll(ids...) {
		if code := x.code(); code == "" || code == "circuit_open" {
			t.Errorf("call %d, whose connection broke: %s", id, x.raw)
		}
	}
	if x := other.wait(other.call("far__look", map[string]any{})); x.code() != "" || !strings.Contains(x.text(), "marked") {
		t.Errorf("the next call: %s", x.raw)
	}
	if s := p.server("far"); s.Failures > 1 {
		t.Errorf("after one fault: %+v", s)
	}
}

// TestRemoteLosesAnswer checks that a call whose connection breaks is made again if its tool
// says that it only reads, and that the outcome of another call is unknown.
func TestRemoteLosesAnswer(t *testing.T) {
	t.Parallel()
	f := newFar(t, false)
	p := newPlace(t).remote(f, f.token).login()
	a := p.agent().shake()
	a.ask("tools/list", map[string]any{})
	p.untilReady("far")
	f.drops.Store(1)
	if x := a.wait(a.call("far__look", map[string]any{})); !strings.Contains(x.text(), "marked false") {
		t.Errorf("a call of a tool that reads: %s", x.raw)
	}
	f.drops.Store(1)
	if x := a.wait(a.call("far__slow", map[string]any{"token": "x", "ms": 0})); x.code() != "outcome_unknown" {
		t.Errorf("a call of another tool: %s", x.raw)
	}
	a.rest()
}

// TestGatewayFailsAfterCall_OutcomeIsUnknown checks that a call which a gateway has passed on, and then answers with
// a status of its own, is made once, and that the agent is not told to make it again.
func TestGatewayFailsAfterCall_OutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFar(t, false)
	p := newPlace(t).remote(f, f.token).login()
	a := p.agent().shake()
	a.ask("tools/list", map[string]any{})
	p.untilReady("far")
	for _, status := range []int{503, 500, 408, 524} { // the fifth failure would open the circuit
		f.loses.Store(int32(status))
		token := fmt.Sprint("status ", status)
		x := a.wait(a.call("far__slow", map[string]any{"token": token, "ms": 0}))
		if x.code() != "outcome_unknown" || f.times(token) != 1 {
			t.Errorf("%d: made %d times: %s", status, f.times(token), x.raw)
		}
	}
	f.loses.Store(0)
	if x := a.wait(a.call("far__slow", map[string]any{"token": "after", "ms": 0})); !strings.Contains(x.text(), "did after") {
		t.Errorf("the next call: %s", x.raw)
	}
	a.rest()
}

// TestRemoteUnauthenticated checks that no call succeeds, and that the rejected token is
// shown nowhere.
func TestRemoteUnauthenticated(t *testing.T) {
	t.Parallel()
	f := newFar(t, false)
	p := newPlace(t).remote(f, "wrong-secret-token").login()
	a := p.agent().shake()
	list := a.ask("tools/list", map[string]any{})
	call := a.ask("tools/call", map[string]any{"name": "far__slow", "arguments": map[string]any{"token": "x", "ms": 0}})
	if call.code() != "unauthenticated" || !strings.Contains(call.text(), "mcpServers.far.headers") ||
		f.times("x") != 0 {
		t.Errorf("a call without credentials: %s", call.raw)
	}
	logs, _, _ := p.run("", "logs")
	status, _, _ := p.run("", "status", "--json")
	servers, _, _ := p.run("", "servers", "get", "far", "--json")
	for _, text := range []string{list.raw, call.raw, logs, status, servers} {
		if strings.Contains(text, "wrong-secret-token") {
			t.Errorf("a secret is shown: %s", text)
		}
	}
	a.leave()
}

// TestRemoteGone checks that calls of a server that cannot be reached any more fail with
// that reason, also once its circuit is open.
func TestRemoteGone(t *testing.T) {
	t.Parallel()
	f := newFar(t, false)
	p := newPlace(t).remote(f, f.token).login()
	a := p.agent().shake()
	slow := func() answer {
		return a.wait(a.call("far__slow", map[string]any{"token": "x", "ms": 0}))
	}
	if x := slow(); x.Result.IsError {
		t.Fatalf("a call: %s", x.raw)
	}
	f.close()
	for i := range 5 {
		x := slow()
		if i == 0 && x.code() == "outcome_unknown" {
			continue // it was sent on the earlier call's connection, which was being closed
		}
		if x.code() != "transport_failure" || !strings.Contains(x.text(), "cannot be reached") {
			t.Errorf("a call of a server that is gone: %s", x.raw)
		}
	}
	if x := slow(); x.code() != "circuit_open" || x.reason() != "unreachable" || !strings.Contains(x.text(), "cannot be reached") {
		t.Errorf("the sixth call, while the server is shown as unreachable: %s", x.raw)
	}
	if n := f.times("x"); n != 1 {
		t.Errorf("%d calls had an effect, want the first alone", n)
	}
	a.rest()
}

// TestRemoteRefuses checks that holdline remote refuses to run by hand, without its target
// in the environment.
func TestRemoteRefuses(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if out, errs, code := p.run("", "remote"); code != exitUsage || out != "" ||
		!strings.Contains(errs, "HOLDLINE_REMOTE names no server") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
