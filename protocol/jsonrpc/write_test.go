package jsonrpc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestMethodSpelled checks that a method is written and read as package json does it.
func TestMethodSpelled(t *testing.T) {
	for _, method := range []string{
		"tools/call", "", "a b~", `a"b`, `a\b`, "a<b>&c", "é", "\u2028", "a\tb", "\x7f", "\xff",
	} {
		want, err := json.Marshal(method)
		if err != nil {
			t.Fatal(err)
		}
		line := AppendRequest(nil, nil, method, nil)
		if !bytes.Contains(line, append([]byte(`"method":`), want...)) {
			t.Errorf("%q is spelled %s, want %s", method, line, want)
		}
		if m, err := Parse(line); err != nil || m.Method != strings.ToValidUTF8(method, "\ufffd") {
			t.Errorf("%s is read as %q, %v", line, m.Method, err)
		}
	}
}
