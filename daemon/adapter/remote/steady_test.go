package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol/mcp"
)

// inMemory is a listener whose connections are pipes, for servers under a simulated clock.
type inMemory chan net.Conn

func (l inMemory) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l inMemory) Close() error { return nil }

func (l inMemory) Addr() net.Addr { return &net.UnixAddr{Name: "in memory"} }

// serveInMemory connects a client to a handler, in the bubble of a test. Call end at last.
func serveInMemory(c *Client, h http.HandlerFunc) (end func()) {
	l := make(inMemory)
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Hour}
	go func() { _ = srv.Serve(l) }()
	c.http.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		l <- far
		return near, nil
	}}
	return func() {
		c.http.CloseIdleConnections()
		close(l)
		_ = srv.Close()
		time.Sleep(time.Hour) // handlers that hold a stream end
	}
}

// hold sends the head of an event stream, text, and nothing more for d.
func hold(w http.ResponseWriter, text string, d time.Duration) {
	answer(w, asEvents, text)
	_ = http.NewResponseController(w).Flush()
	time.Sleep(d)
}

// TestSteadyStreamIsReopenedAtOnce checks that the pauses before a stream is opened again grow
// while that fails, and that there is none after a stream that was open for a while.
func TestSteadyStreamIsReopenedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		start := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		c := New(Options{Name: "s", URL: "http://in.memory"})
		end := serveInMemory(c, func(w http.ResponseWriter, _ *http.Request) {
			at = append(at, time.Since(start))
			switch len(at) {
			case 1, 2, 5:
				w.WriteHeader(http.StatusBadGateway)
			case 3, 4:
				hold(w, "retry: 7000\n\n: nothing\n\n", time.Minute)
			default:
				cancel(enough)
				hold(w, "", time.Minute)
			}
		})
		if err := c.Listen(ctx, nil); !errors.Is(err, enough) {
			t.Errorf("Listen = %v", err)
		}
		if want := []time.Duration{
			0, 500 * time.Millisecond, 1500 * time.Millisecond, 61500 * time.Millisecond, 121500 * time.Millisecond,
			128500 * time.Millisecond,
		}; !slices.Equal(at, want) {
			t.Errorf("opened at %v\n    want %v", at, want)
		}
		end()
	})
}

// TestLongCallIsResumedOften checks that a call whose stream is closed again and again gets its
// answer, if the stream was open for a while each time, or brought a new event id.
func TestLongCallIsResumedOften(t *testing.T) {
	for name, x := range map[string]struct {
		text string
		open time.Duration
	}{
		"closed by a load balancer":      {": nothing\n\n", time.Minute},
		"closed by a server for polling": {"id: %d\nretry: 5000\ndata:\n\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gets := 0
				c := New(Options{Name: "s", URL: "http://in.memory"})
				end := serveInMemory(c, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						answer(w, asEvents, "id: 0\ndata:\n\n")
						return
					}
					gets++
					if gets == 20 {
						answer(w, asEvents, "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n")
						return
					}
					text := x.text
					if x.open == 0 {
						text = fmt.Sprintf(text, gets)
					}
					hold(w, text, x.open)
				})
				n := 0
				err := c.Send(t.Context(), []byte(callLine), func([]byte) error { n++; return nil })
				if err != nil || n != 1 || gets != 20 {
					t.Errorf("%v, %d lines after %d resumes", err, n, gets)
				}
				end()
			})
		})
	}
}

// TestShortRetryIsBounded checks that a server which asks for a wait of 1 ms, and closes each
// stream, is asked about once a second.
func TestShortRetryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gets := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := New(Options{Name: "s", URL: "http://in.memory"})
		end := serveInMemory(c, func(w http.ResponseWriter, _ *http.Request) {
			gets++
			answer(w, asEvents, "retry: 1\n\n")
		})
		if err := c.Listen(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || gets < 20 || gets > 65 {
			t.Errorf("%v after %d streams", err, gets)
		}
		end()
	})
}

// TestForgottenSessionOfIdleClient checks that a session which the server has forgotten is
// renewed when its stream cannot be opened again, without any message of the client.
func TestForgottenSessionOfIdleClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hellos := 0
		ctx, cancel := context.WithCancel(t.Context())
		c := New(Options{Name: "s", URL: "http://in.memory"})
		end := serveInMemory(c, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			now := fmt.Sprint("s", hellos)
			switch {
			case string(b) == helloLine:
				hellos++
				w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", hellos))
				answer(w, asJSON, helloBack)
			case r.Header.Get("Mcp-Session-Id") != now:
				w.WriteHeader(http.StatusNotFound)
			case r.Method == http.MethodGet && hellos == 1:
				hold(w, ": nothing\n\n", time.Minute)
				hellos++ // the server forgets the session
			case r.Method == http.MethodGet:
				cancel()
				hold(w, "", time.Minute)
			default:
				w.WriteHeader(http.StatusAccepted)
			}
		})
		for _, line := range []string{helloLine, readyLine} {
			if err := c.Send(ctx, []byte(line), func([]byte) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		b := &bridge{c: c, log: c.o.Log, out: &out, calls: map[string]*call{}}
		c.onRenewed = func() { b.listen(ctx) }
		b.listen(ctx)
		b.work.Wait()
		if got := c.session(); got.id != "s3" || !strings.Contains(out.String(), mcp.ToolsChanged) {
			t.Errorf("session %q, said %q", got.id, out.String())
		}
		end()
	})
}
