package consultcmd

import (
	"context"
	"errors"
	"io"
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

// TestInterruptedWhileStdinIsRead checks that an interrupt ends the wait for the end of stdin, which
// may never come.
func TestInterruptedWhileStdinIsRead(t *testing.T) {
	in, typed := io.Pipe()
	defer typed.Close()
	user := errors.New("the user has ended it")
	ctx, cancel := context.WithCancelCause(t.Context())
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetIn(in)
	cancel(user)
	if got, err := consultPrompt(cmd, nil, "prompt", "an example"); !errors.Is(err, user) {
		t.Errorf("the prompt is %q, %v", got, err)
	}
}
