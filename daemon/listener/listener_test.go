package listener_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/listener"
	"holdline/protocol"
	"holdline/protocol/socket"
)

const (
	waitLimit = 2 * time.Minute
	greeting  = `{"holdline":1,"role":"mcp","session":"01234567-89ab-cdef-0123-456789abcdef"}`
)

// serve starts a listener whose handlers answer with their role and the first line that
// they got. It returns the path of the socket.
func serve(t *testing.T, o listener.Options) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	say := func(role string) listener.Handler {
		return func(ctx context.Context, c *listener.Conn) {
			_, _ = io.WriteString(c, role+" "+string(c.First)+"\n")
			if strings.Contains(c.Greeting.Identity, "stay") {
				<-ctx.Done()
			}
		}
	}
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	o.UIDs = []int{os.Getuid()}
	o.MaxConns = max(o.MaxConns, 4)
	o.Handlers = map[string]listener.Handler{"mcp": say("mcp"), "control": say("control")}
	path := filepath.Join(dir, "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := listener.New(o).Serve(ctx, ln); err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		done := make(chan struct{})
		go func() { serving.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(waitLimit):
			panic("the listener did not end")
		}
	})
	return path
}

// dial connects to the listener.
func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(waitLimit))
	return c
}

// all reads until the other side closes.
func all(t *testing.T, c net.Conn) string {
	t.Helper()
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("reading: %v", err)
	}
	return string(b)
}

// TestGreeting checks which handler gets a connection, depending on the first line, and
// which first lines are refused.
func TestGreeting(t *testing.T) {
	path := serve(t, listener.Options{Greeting: time.Minute})
	short := serve(t, listener.Options{Greeting: 500 * time.Millisecond}) // for clients whose greeting does not come
	for _, tc := range []struct {
		name, send string
		closeWrite bool
		want       string // "" if nothing is answered
	}{
		{"mcp", greeting + "\n", false, "mcp \n"},
		{"control", `{"holdline":1,"role":"control"}` + "\n", false, "control \n"},
		{"CRLF", greeting + "\r\n", false, "mcp \n"},
		{
			"none",
			`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n",
			false,
			`mcp {"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n",
		},
		{"not JSON", "hello\n", false, "mcp hello\n"},
		{"without newline at the end", greeting, true, "mcp \n"},
		{
			"over 64 KiB",
			`{"holdline":1,"identity":"` + strings.Repeat("x", protocol.MaxGreeting) + `"}` + "\n",
			false,
			protocol.RefusedGreeting,
		},
		{"over 64 KiB and no end", strings.Repeat("x", protocol.MaxGreeting+2), false, protocol.RefusedGreeting},
		{"never finished", `{"holdline":1,`, false, ""},
		{"nothing", "", false, ""},
		{"closed at once", "", true, ""},
		{"wrong version", `{"holdline":7,"role":"mcp"}` + "\n", false, protocol.RefusedVersion},
		{"broken", `{"holdline":1,"role":` + "\n", false, protocol.RefusedGreeting},
		{"unknown role", `{"holdline":1,"role":"king"}` + "\n", false, protocol.RefusedGreeting},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at := path
			if tc.name == "never finished" || tc.name == "nothing" {
				at = short
			}
			c := dial(t, at)
			if _, err := io.WriteString(c, tc.send); err != nil && !errors.Is(err, syscall.EPIPE) {
				t.Fatal(err)
			}
			if tc.closeWrite {
				_ = c.(*net.UnixConn).CloseWrite()
			}
			got := all(t, c)
			switch {
			case strings.HasSuffix(tc.want, "\n") || tc.want == "":
				if got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
			default:
				_, err := protocol.ParseWelcome([]byte(got))
				if r, ok := errors.AsType[*protocol.Refusal](err); !ok || r.Code != tc.want {
					t.Errorf("got %q, want a refusal %s", got, tc.want)
				}
			}
		})
	}
}

// TestOtherUser checks that a connection of another user is refused.
func TestOtherUser(t *testing.T) {
	path := serve(t,
		listener.Options{PeerOf: func(*net.UnixConn) (socket.Peer, error) {
			return socket.Peer{UID: os.Getuid() + 1, PID: 1}, nil
		}})
	if got := all(t, dial(t, path)); !strings.Contains(got, protocol.RefusedIdentity) {
		t.Errorf("another user got %q", got)
	}
	path = serve(t,
		listener.Options{PeerOf: func(*net.UnixConn) (socket.Peer, error) {
			return socket.Peer{}, errors.New("no idea")
		}})
	if got := all(t, dial(t, path)); got != "" {
		t.Errorf("an unknown user got %q", got)
	}
}

// TestTooMany checks that sessions and commands have separate limits, that all connections of a
// session count as one, and that one which resumes from an earlier daemon is served when new ones
// are refused, unless the server is strict.
func TestTooMany(t *testing.T) {
	for _, strict := range []bool{false, true} {
		path, sessions := serve(t, listener.Options{Strict: strict}), 0
		greet := func(members string, session int) net.Conn {
			t.Helper()
			c := dial(t, path)
			_, _ = fmt.Fprintf(c, `{"holdline":1,"identity":"stay","session":"%036d",%s}`+"\n", session, members)
			return c
		}
		served := func(what, members string, session int) {
			t.Helper()
			b := make([]byte, 16)
			if n, err := greet(members, session).Read(b); err != nil || strings.Contains(string(b[:n]), "holdline") {
				t.Errorf("%s: got %q, %v, want it to be served", what, b[:n], err)
			}
		}
		refused := func(what, members string) {
			t.Helper()
			if got := all(t, greet(members, 99)); !strings.Contains(got, protocol.RefusedLimit) ||
				!strings.Contains(got, "serves 4 connections") {
				t.Errorf("%s: got %q, want a refusal", what, got)
			}
		}
		const session, resumed, command = `"role":"mcp"`, `"role":"mcp","resume":true`, `"role":"control"`
		for range 4 {
			sessions++
			served("a session", session, sessions)
			served("another connection of that session", resumed, sessions)
		}
		refused("the fifth session", session)
		for range 4 {
			served("a command", command, 0)
		}
		refused("the fifth command", command)
		for range 4 {
			if sessions++; strict {
				refused("a session that resumes, at a strict server", resumed)
			} else {
				served("a session that resumes", resumed, sessions)
			}
		}
		refused("a resume beyond twice the limit", resumed)
		served("another connection of a session, behind that", resumed, 1)
	}
}

// TestTooManyStrangers checks that connections without a greeting have a limit, too.
func TestTooManyStrangers(t *testing.T) {
	path := serve(t, listener.Options{Greeting: waitLimit})
	const places = 3*4 + 64
	words := make(chan string, places+1)
	for range places + 1 {
		c := dial(t, path)
		go func() { // ends with its connection
			b := make([]byte, 256)
			n, _ := c.Read(b)
			words <- string(b[:n])
		}()
	}
	if got := <-words; !strings.Contains(got, protocol.RefusedLimit) {
		t.Errorf("one of %d silent connections got %q, want a refusal", places+1, got)
	}
}

// failing is a socket whose accept fails, as when descriptors run out.
type failing struct {
	mu     sync.Mutex
	at     []time.Duration
	begin  time.Time
	closed bool
}

func (f *failing) AcceptUnix() (*net.UnixConn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = append(f.at, time.Since(f.begin))
	if f.closed {
		return nil, net.ErrClosed
	}
	return nil, syscall.EMFILE
}

func (f *failing) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// TestAcceptBackoff checks that after failing accepts the listener waits longer each time,
// up to a second.
func TestAcceptBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{begin: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s := listener.New(listener.Options{Log: slog.New(slog.DiscardHandler), MaxConns: 1})
		if err := s.Serve(ctx, f); err != nil {
			t.Errorf("Serve = %v", err)
		}
		// 1, 2, 4 … 512 ms, then every second.
		if n := len(f.at); n < 15 || n > 22 {
			t.Errorf("accept was tried %d times in 10 s: %v", n, f.at)
		}
		if f.at[1] != time.Millisecond || f.at[2] != 3*time.Millisecond {
			t.Errorf("back-off began with %v", f.at[:3])
		}
	})
}

// TestPause checks that a connection made during a pause waits, and is served afterwards,
// and that a pause does not keep the listener from ending.
func TestPause(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	s := listener.New(listener.Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), UIDs: []int{os.Getuid()}, MaxConns: 16,
		Handlers: map[string]listener.Handler{"mcp": func(context.Context, *listener.Conn) { served <- struct{}{} }},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	greet := func() {
		_, _ = io.WriteString(dial(t, path), greeting+"\n")
	}
	want := func(what string) {
		t.Helper()
		select {
		case <-served:
		case <-time.After(waitLimit):
			t.Fatalf("waited for %s", what)
		}
	}
	for range 3 {
		greet()
		want("a connection")
		if err := s.Pause(ln); err != nil {
			t.Fatal(err)
		}
		greet()
		select {
		case <-served:
			t.Fatal("served during a pause")
		case <-time.After(20 * time.Millisecond):
		}
		if err := s.Resume(ln); err != nil {
			t.Fatal(err)
		}
		want("the one that waited")
	}
	if err := s.Pause(ln); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Serve = %v", err)
		}
	case <-time.After(waitLimit):
		t.Fatal("waited for the end")
	}
}
