package configcmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/programtest"
)

// TestInterruptInEditor checks that what the user writes counts although the terminal has
// interrupted the shell that waits for the editor, too.
func TestInterruptInEditor(t *testing.T) {
	dir := t.TempDir()
	editor, path := filepath.Join(dir, "editor"), filepath.Join(dir, "config.json")
	programtest.Write(t, editor, "#!/bin/sh\nkill -INT $PPID\necho '{\"log\": {}}' >\"$1\"\n")
	variables := map[string]string{"EDITOR": editor, "HOME": dir, "XDG_RUNTIME_DIR": dir, "PATH": os.Getenv("PATH")}
	var out bytes.Buffer
	proc := &cmdenv.Process{
		Getenv: func(name string) string { return variables[name] },
		Stdin:  strings.NewReader(""), Stdout: &out, Stderr: &out,
	}
	cmd := &cobra.Command{}
	cmd.Flags().String("socket", "", "")
	cmd.SetContext(t.Context())
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetIn(proc.Stdin)
	err := editFile(cmd, proc, path)
	if text, _ := os.ReadFile(path); err != nil || string(text) != "{\"log\": {}}\n" {
		t.Errorf("%v; the file is %q; %s", err, text, out.String())
	}
}
