package mcp

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestNegotiate checks which version a legacy client gets.
func TestNegotiate(t *testing.T) {
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2024-11-05", "2025-11-25": "2025-11-25", "2026-07-28": "2025-11-25", "": "2025-11-25",
		"x": "2025-11-25",
	} {
		if got := Negotiate(asked); got != want {
			t.Errorf("Negotiate(%q) = %q, want %q", asked, got, want)
		}
	}
}

// TestParseParams checks that members are read as they are spelled, and that a repeated one
// is an error.
func TestParseParams(t *testing.T) {
	p, err := ParseParams(json.RawMessage(`{"name":"x","Other":"y","arguments":{"a":1.0},"_meta":{"progressToken":1e3,"io.modelcontextprotocol/protocolVersion":"v"},"requestId":"r"}`))
	if err != nil || string(p.Name) != `"x"` || string(p.Arguments) != `{"a":1.0}` ||
		string(p.Meta.Progress) != "1e3" || string(p.Meta.Version) != `"v"` || string(p.RequestID) != `"r"` {
		t.Errorf("ParseParams = %+v, %v", p, err)
	}
	if p, err := ParseParams(nil); err != nil || p.Name != nil {
		t.Errorf("no params: %+v, %v", p, err)
	}
	for _, bad := range []string{
		`[]`, `{"name":1,"name":2}`, `{"_meta":7}`, `{"_meta":{"progressToken":1,"progressToken":2}}`,
		`{"name":"x","Name":"y"}`, `{"_meta":{"ProgressToken":1}}`, `{"_META":{}}`, `{"clientInfo":{"Name":"x"}}`,
		`{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"x","NAME":"y"}}}`,
	} {
		if _, err := ParseParams(json.RawMessage(bad)); err == nil {
			t.Errorf("ParseParams(%s) gives no error", bad)
		}
	}
}

// TestLevels checks which log messages a level covers.
func TestLevels(t *testing.T) {
	for _, c := range []struct {
		level, message string
		covers         bool
	}{
		{"debug", "debug", true},
		{"debug", "emergency", true},
		{"warning", "error", true},
		{"error", "warning", false},
		{"", "emergency", false},
		{"debug", "chatty", false},
		{"chatty", "debug", false},
	} {
		if got := Covers(c.level, c.message); got != c.covers {
			t.Errorf("Covers(%q, %q) = %t", c.level, c.message, got)
		}
	}
	for _, c := range []struct{ a, b, want string }{
		{"", "", ""},
		{"info", "", "info"},
		{"", "info", "info"},
		{"info", "error", "info"},
		{"error", "debug", "debug"},
		{"alert", "alert", "alert"},
	} {
		if got := Verbose(c.a, c.b); got != c.want {
			t.Errorf("Verbose(%q, %q) = %q, want %q", c.a, c.b, got, c.want)
		}
	}
}

// TestString checks that a string is read as package json reads it.
func TestString(t *testing.T) {
	for _, raw := range []string{
		`"a"`, `""`, `"a b~"`, `"\u0061"`, `"a\"b"`, `"é"`, "\"\xff\"", "\"a\tb\"", `"a`, `"`, `"a"b"`, `7`, `null`, ``,
		"\"\x7f\"", `"<&>"`,
	} {
		var want string
		ok := strings.HasPrefix(raw, `"`) && json.Unmarshal([]byte(raw), &want) == nil
		if !ok {
			want = ""
		}
		if got, is := String(json.RawMessage(raw)); got != want || is != ok {
			t.Errorf("%s is %q, %v, want %q, %v", raw, got, is, want, ok)
		}
	}
}
