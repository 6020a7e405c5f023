package session_test

import (
	"strings"
	"sync"
	"testing"

	"holdline/protocol"
)

const (
	farewellLine = `{"holdline":1,"bye":"stopped","message":"holdline was stopped"}`
	otherUUID    = "89abcdef-89ab-cdef-0123-456789abcdef"
)

// wantFarewell expects these lines, by a part of each, and then the farewell.
func (c *client) wantFarewell(before ...string) {
	c.t.Helper()
	for _, part := range before {
		if line := c.next(); !strings.Contains(line, part) {
			c.t.Fatalf("got %s, want %s before the farewell", line, part)
		}
	}
	if line := c.next(); line != farewellLine {
		c.t.Fatalf("got %s, want %s", line, farewellLine)
	}
}

// TestFarewell_LaterClients checks that a stopping daemon accepts no new session: the
// client is refused and finds the next daemon. A session that resumes gets its answers and
// then the farewell.
func TestFarewell_LaterClients(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	c.send(callLine(1, "steps"))
	want(t, c.next(), "1", "done")
	c.conn.Close()
	h.detached(t)
	h.srv.Farewell(protocol.ByeStopped, "holdline was stopped")

	c = h.again(t, protocol.Greeting{Identity: "a", Next: 4, Pending: []int64{3}})
	c.wantFarewell(`"resumed":true`, "done")

	c = h.again(t, protocol.Greeting{Session: otherUUID, Next: 2})
	c.wantFarewell(`"resumed":false`)
	c.end()

	c = h.greet(t, protocol.Greeting{Session: otherUUID})
	if line := c.next(); !strings.Contains(line, `"code":"stopping"`) {
		t.Errorf("a new client got %s, want a refusal", line)
	}
	c.end()
}

// TestFarewell_DuringWelcome checks that a client that connects while the daemon stops is
// either refused or gets the welcome before the farewell.
func TestFarewell_DuringWelcome(t *testing.T) {
	h := start(t)
	var once sync.Once
	stop := func() {
		once.Do(func() { h.srv.Farewell(protocol.ByeStopped, "holdline was stopped") })
	}
	h.greets.Store(&stop)
	c := h.greet(t, protocol.Greeting{Identity: "a"})
	if line := c.next(); !strings.Contains(line, `"code":"stopping"`) {
		t.Fatalf("first line %s, want a refusal", line)
	}
	c.end()
}

// TestFarewell_Connected checks that a connected client gets the farewell behind its other
// lines.
func TestFarewell_Connected(t *testing.T) {
	h := start(t)
	c := h.greet(t, protocol.Greeting{Identity: "a"})
	c.next()
	c.send(initLine)
	c.next()
	h.srv.Farewell(protocol.ByeStopped, "holdline was stopped")
	c.wantFarewell()
}
