package config

import (
	"strings"
	"testing"
)

// TestHostRefusals checks what a server with a host cannot have.
func TestHostRefusals(t *testing.T) {
	for text, want := range map[string]string{
		`{"mcpServers": {"a": {"url": "https://x/mcp", "holdline": {"host": "b"}}}}`: "host: is for servers with a command",
		`{"mcpServers": {"a": {"command": "x", "holdline": {"host": "-b"}}}}`:        "host: wants a host of ssh",
		`{"commands": {"t": {"command": ["pass"]}},
		  "mcpServers": {"a": {"command": "x", "env": {"T": "a${cmd:t}"}, "holdline": {"host": "b"}}}}`: "env.T: the host puts",
		`{"mcpServers": {"a": {"command": "x", "holdline": {"host": "b", "confine": "read"}}}}`: "a.holdline.host: not with confine",
		`{"mcpServers": {"a": {"command": "x", "holdline": {"host": "b", "network": "none"}}}}`: "a.holdline.host: not with confine",
		`{"mcpServers": {"a": {"command": "x", "holdline": {"host": "b", "write": ["/x"]}}}}`:   "a.holdline.host: not with confine",
	} {
		if _, err := Parse("c", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%s) = %v, want %q", text, err, want)
		}
	}
}
