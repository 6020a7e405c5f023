package consultcmd

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/spf13/cobra"

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

// TestInterruptedWhileStdinIsRead checks that an interrupt ends the wait for a pipe whose writer
// never ends, with words on the command line and without.
func TestInterruptedWhileStdinIsRead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	user := errors.New("the user has ended it")
	for _, words := range [][]string{nil, {"why?"}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cmd := &cobra.Command{}
		cmd.SetContext(ctx)
		cmd.SetIn(r)
		cancel(user)
		if got, err := consultPrompt(cmd, words, "prompt", "an example"); !errors.Is(err, user) {
			t.Errorf("with the words %q the prompt is %q, %v", words, got, err)
		}
	}
}
