package asklogin_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"holdline/daemon/hosted/asklogin"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// legacy is a legacy client that shows addresses to its person.
type legacy struct {
	tool.Client
	asked chan string
}

func (legacy) Capabilities() json.RawMessage { return json.RawMessage(`{"elicitation":{"url":{}}}`) }

func (c legacy) Ask(line []byte) bool {
	c.asked <- string(line)
	return true
}

// TestCallAtTheEndOfALogin checks that a client hears of the end of a login whose address it was
// given after the process has ended, while the servers still learn of the login.
func TestCallAtTheEndOfALogin(t *testing.T) {
	ended, goOn := make(chan struct{}), make(chan struct{})
	a := asklogin.New(asklogin.Options{
		Log: slog.New(slog.DiscardHandler),
		Command: func(string) (string, []string, []string) {
			return "target", []string{"/bin/sh", "-c", `echo '{"url":"http://localhost/"}'`}, nil
		},
		Changed: func() {
			close(ended)
			<-goOn
		},
	})
	failure := fault.New(fault.Denied, fault.Server, "tools/call", "no login").WithCause(fault.Cause{Reason: fault.NotLoggedIn})
	call := func(session string) chan string {
		t.Helper()
		c := legacy{asked: make(chan string, 1)}
		res, err := a.Call(t.Context(), "s", func() tool.Client { return c },
			&tool.RemoteCall{Caller: tool.Caller{Session: session}},
			func(*tool.RemoteCall, bool) (tool.RemoteResult, error) { return tool.RemoteResult{}, failure })
		if err != nil || !strings.Contains(string(res.Error), "http://localhost/") {
			t.Fatalf("the client gets %s, %v", res.Error, err)
		}
		return c.asked
	}
	first := call("first")
	<-ended
	second := call("second")
	close(goOn)
	a.Close() // waits for all that the login tells
	for name, asked := range map[string]chan string{"before": first, "after": second} {
		select {
		case line := <-asked:
			if !strings.Contains(line, "notifications/elicitation/complete") {
				t.Errorf("the client that called %s the end gets %s", name, line)
			}
		default:
			t.Errorf("the client that called %s the end does not hear of it", name)
		}
	}
}
