package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"holdline/daemon/commands"
	"holdline/daemon/listener"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// start serves handlers on a socket of its own. stop ends the server and waits for it.
func start(t *testing.T, handlers map[string]commands.Handler) (c *control.Client, stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	srv := &commands.Server{
		Log: log, Handlers: handlers,
		Welcome: func() protocol.Welcome { return protocol.Welcome{Daemon: protocol.DaemonInfo{PID: 7}} },
	}
	l := listener.New(listener.Options{
		Log: log, UIDs: []int{os.Getuid()}, MaxConns: 4,
		Handlers: map[string]listener.Handler{protocol.RoleControl: srv.ServeConn},
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, ln.(*net.UnixListener)) }()
	ended := false
	stop = func() {
		cancel()
		if !ended {
			ended = true
			if err := <-done; err != nil {
				t.Errorf("Serve = %v", err)
			}
		}
	}
	t.Cleanup(stop)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = control.NewClient(t.Context(), conn, "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, stop
}

// codeOf returns the fault code of a command's error.
func codeOf(err error) fault.Code {
	remote, ok := errors.AsType[*control.RemoteError](err)
	if !ok || remote.Fault == nil {
		return ""
	}
	return remote.Fault.Fault.Code
}

// TestAnswers checks that results, progress, faults and other errors of handlers reach the
// client, and that an unknown command is refused.
func TestAnswers(t *testing.T) {
	c, _ := start(t, map[string]commands.Handler{
		"twice": func(_ context.Context, params json.RawMessage, progress commands.Progress) (any, error) {
			var n int
			if err := json.Unmarshal(params, &struct{ N *int }{&n}); err != nil {
				return nil, err
			}
			progress(control.Progress{Message: "thinking"})
			return 2 * n, nil
		},
		"fail": func(context.Context, json.RawMessage, commands.Progress) (any, error) {
			return nil, fault.New(fault.Denied, fault.Host, "fail", "no")
		},
		"break": func(context.Context, json.RawMessage, commands.Progress) (any, error) {
			return nil, errors.New("broken")
		},
	})
	var got int
	var told []string
	show := func(p control.Progress) { told = append(told, p.Message) }
	if err := c.Call(t.Context(), "twice", struct{ N int }{21}, &got, show); err != nil || got != 42 || len(told) != 1 {
		t.Errorf("twice = %d, %v, told %q", got, err, told)
	}
	for method, want := range map[string]fault.Code{
		"fail": fault.Denied, "break": fault.InternalFailure, "nope": fault.UnknownMethod,
	} {
		if err := c.Call(t.Context(), method, nil, nil, nil); codeOf(err) != want {
			t.Errorf("%s = %v, want %s", method, err, want)
		}
	}
}

// TestStopping checks that a command that is cut off by the end of the daemon says so, and
// does not count as a failure of the daemon.
func TestStopping(t *testing.T) {
	began := make(chan struct{})
	c, stop := start(t, map[string]commands.Handler{
		"wait": func(ctx context.Context, _ json.RawMessage, _ commands.Progress) (any, error) {
			close(began)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		},
	})
	answer := make(chan error, 1)
	go func() { answer <- c.Call(t.Context(), "wait", nil, nil, nil) }()
	<-began
	stop()
	if err := <-answer; codeOf(err) != fault.TransportFailure {
		t.Errorf("wait = %v, want %s", err, fault.TransportFailure)
	}
}
