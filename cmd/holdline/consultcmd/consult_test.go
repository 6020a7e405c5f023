package consultcmd

import (
	"os"
	"testing"
	"time"

	"holdline/cmd/holdline/console"
)

// TestPipedInput checks that the command does not wait for a pipe into which nothing is
// written.
func TestPipedInput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if begins(r, 0) {
		t.Error("something is said to be in an empty pipe")
	}
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if !begins(r, time.Minute) || !console.IsPiped(r) {
		t.Error("nothing is said to be in a pipe")
	}
}
