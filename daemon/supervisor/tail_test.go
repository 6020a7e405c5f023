package supervisor

import (
	"slices"
	"testing"
)

// TestStderrTail checks that the last lines of a program are those that it wrote itself, without
// what npm says of its downloads.
func TestStderrTail(t *testing.T) {
	w := &Worker{tail: []byte("TOKEN is not set\r\n\nnpm http fetch GET 200 https://registry.npmjs.org/zod 7ms\nhalf a line")}
	if got, want := w.StderrTail(), []string{"TOKEN is not set", "half a line"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
