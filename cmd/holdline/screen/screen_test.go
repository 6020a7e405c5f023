package screen

import (
	"bytes"
	"strings"
	"testing"
)

// TestFilter checks that text is made harmless however it is cut into pieces, and that a writer
// to what is no terminal changes nothing.
func TestFilter(t *testing.T) {
	const text, want = "a\tü\x1b[2J\u202eb\n日本\u00a0é\xff\n", "a\tü?[2J?b\n日本 é\ufffd\n"
	for size := 1; size <= len(text); size++ {
		var f Filter
		var got strings.Builder
		for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			got.Write(f.Legible(rest[:min(size, len(rest))]))
		}
		if got.String() != want {
			t.Errorf("in pieces of %d bytes: %q, want %q", size, got.String(), want)
		}
	}
	var b bytes.Buffer
	if n, err := NewWriter(&b).Write([]byte(text)); n != len(text) || err != nil || b.String() != text {
		t.Errorf("in a file: %d, %v, %q", n, err, b.String())
	}
}
