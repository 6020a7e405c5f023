package session_test

import (
	"testing"

	"holdline/protocol"
)

// TestRefusedInitializeChangesNothing checks that a refused handshake does not change what
// the daemon knows of the client.
func TestRefusedInitializeChangesNothing(t *testing.T) {
	h := start(t)
	c := h.greet(t, protocol.Greeting{Identity: "a"})
	c.next()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"roots":{}},"clientInfo":{"name":"other","version":"2"}}}`)
	want(t, c.next(), "1", "protocolVersion must be a string")
	if s := h.srv.Sessions(); s[0].Client != "" || s[0].Era != "" {
		t.Errorf("after a handshake that was refused: %+v", s[0])
	}
	c.shake()
	c.send(`{"jsonrpc":"2.0","id":2,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	want(t, c.next(), "2", "supportedVersions")
	c.send(`{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}}}}`)
	want(t, c.next(), "3", "already initialized")
	if s := h.srv.Sessions(); s[0].Client != "probe 1" || s[0].Era != "modern" {
		t.Errorf("after a second handshake: %+v", s[0])
	}
}
