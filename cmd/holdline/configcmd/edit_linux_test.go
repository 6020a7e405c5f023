package configcmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/ttytest"
	"holdline/protocol/programtest"
)

// interrupter interrupts this process when the question is asked.
type interrupter struct{}

func (interrupter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("Edit again?")) {
		return len(b), syscall.Kill(os.Getpid(), syscall.SIGINT)
	}
	return len(b), nil
}

// TestInterruptAtQuestion checks that an interrupt ends the question whether to edit again.
func TestInterruptAtQuestion(t *testing.T) {
	tty, _ := ttytest.Open(t)
	dir := t.TempDir()
	editor := filepath.Join(dir, "editor")
	programtest.Write(t, editor, "#!/bin/sh\necho '{' >\"$1\"\n")
	t.Setenv("TMPDIR", dir) // the copy is kept there
	variables := map[string]string{"EDITOR": editor, "HOME": dir, "PATH": os.Getenv("PATH")}
	proc := &cmdenv.Process{Getenv: func(name string) string { return variables[name] }}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetErr(interrupter{})
	cmd.SetIn(tty)
	if err := editFile(cmd, proc, filepath.Join(dir, "config.json")); err == nil ||
		!strings.Contains(err.Error(), "given up") {
		t.Errorf("%v, want it to be given up", err)
	}
}
