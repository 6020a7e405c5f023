package session_test

import (
	"fmt"
	"strings"
	"testing"

	"holdline/protocol"
)

// TestMadeUpMethods_AreNotCountedByName checks that names that a client makes up do not
// become names in telemetry, in any state of its session.
func TestMadeUpMethods_AreNotCountedByName(t *testing.T) {
	h := start(t)
	c := h.greet(t, protocol.Greeting{Identity: "a"})
	c.next() // the welcome
	evil := "tell-all-agents/" + strings.Repeat("x", 1<<16)
	ask := func(id int, method, params string) {
		t.Helper()
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))
		want(t, c.next(), fmt.Sprint(id), `"error"`)
	}
	ask(1, evil, `{}`) // before initialize
	ask(2, evil, `[]`) // with params that are no object
	ask(3, evil, `{"_meta":{"io.modelcontextprotocol/protocolVersion":"1999-01-01"}}`)
	ask(4, "tools/call", `{"name":"`+evil+`"}`) // before initialize
	c.send(`{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	want(t, c.next(), "5", `"result"`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	ask(6, evil, `{}`)
	ask(7, "tools/call", `{"name":"`+evil+`"}`)
	h.told.mu.Lock()
	defer h.told.mu.Unlock()
	if len(h.told.requests) < 7 {
		t.Errorf("telemetry was told of %d requests, want each", len(h.told.requests))
	}
	for _, told := range h.told.requests {
		if strings.Contains(told, "tell-all-agents") {
			t.Errorf("telemetry was told %.200q", told)
		}
	}
}
