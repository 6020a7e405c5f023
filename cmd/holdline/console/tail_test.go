package console

import "testing"

// TestEndOf checks that the last lines of a text are returned.
func TestEndOf(t *testing.T) {
	for lines, want := range map[uint]string{0: "", 1: "c\n", 2: "b\nc\n", 3: "a\nb\nc\n", 9: "a\nb\nc\n"} {
		if got := string(EndOf([]byte("a\nb\nc\n"), lines)); got != want {
			t.Errorf("the last %d lines are %q, want %q", lines, got, want)
		}
	}
}
