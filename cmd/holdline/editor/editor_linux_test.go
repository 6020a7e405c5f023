package editor

import (
	"bytes"
	"errors"
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

// rig is a command at a terminal, with an editor that is a shell script. Its stderr is the writer errs.
type rig struct {
	cmd  *cobra.Command
	proc *cmdenv.Process
	home string
}

// newRig returns a rig.
func newRig(t *testing.T, script string, errs interface{ Write([]byte) (int, error) }) *rig {
	t.Helper()
	tty, _ := ttytest.Open(t)
	r := &rig{cmd: &cobra.Command{Use: "edit"}, home: t.TempDir()}
	editor := filepath.Join(t.TempDir(), "editor")
	programtest.Write(t, editor, "#!/bin/sh\n"+script+"\n")
	variables := map[string]string{"EDITOR": editor, "HOME": r.home, "PATH": os.Getenv("PATH")}
	r.proc = &cmdenv.Process{
		Getenv: func(name string) string { return variables[name] }, Stdin: tty, Stdout: tty, Stderr: tty,
	}
	r.cmd.SetContext(t.Context())
	r.cmd.SetErr(errs)
	r.cmd.SetIn(tty)
	return r
}

// edit edits the text "before" until it does not have the word "wrong".
func (r *rig) edit(t *testing.T) (*Draft, []byte, error) {
	t.Helper()
	draft, err := New(r.cmd, r.proc, "config.json", []byte("before\n"), "a hint")
	if err != nil {
		t.Fatal(err)
	}
	after, err := draft.Edit(func(text []byte) error {
		if bytes.Contains(text, []byte("wrong")) {
			return errors.New("a mistake")
		}
		return nil
	})
	return draft, after, err
}

// left returns what is in the state directory.
func (r *rig) left(t *testing.T) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(r.home, ".local/state/holdline/*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// TestInterruptInEditor_TextCounts checks that what the user writes counts although the terminal has
// interrupted the shell that waits for the editor, too.
func TestInterruptInEditor_TextCounts(t *testing.T) {
	r := newRig(t, `kill -INT $PPID; grep -q before "$1" && echo after >"$1"`, new(bytes.Buffer))
	draft, after, err := r.edit(t)
	if string(after) != "after\n" || err != nil {
		t.Errorf("got %q, %v", after, err)
	}
	if draft.Close(); len(r.left(t)) > 0 {
		t.Errorf("left: %v", r.left(t))
	}
}

// TestTerminalGone_NothingIsKept checks that a command whose terminal has gone ends with an error, applies
// nothing and leaves no copy.
func TestTerminalGone_NothingIsKept(t *testing.T) {
	r := newRig(t, `echo after >"$1"; kill -HUP `+"$(cut -d' ' -f4 /proc/$PPID/stat); read x", new(bytes.Buffer))
	draft, after, err := r.edit(t)
	if after != nil || !errors.Is(err, errKilled) || cmdenv.HasHint(draft.Keep(err)) {
		t.Errorf("got %q, %v", after, err)
	}
	if draft.Close(); len(r.left(t)) > 0 {
		t.Errorf("left: %v", r.left(t))
	}
}

// interrupter interrupts this process when the question is asked.
type interrupter struct{}

func (interrupter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("Edit again?")) {
		return len(b), syscall.Kill(os.Getpid(), syscall.SIGINT)
	}
	return len(b), nil
}

// TestGivenUp_TextIsKeptForTheUserAlone checks that an interrupt ends the question whether to edit again, and that
// what the user has written is kept where the error says, for the user alone.
func TestGivenUp_TextIsKeptForTheUserAlone(t *testing.T) {
	r := newRig(t, `echo wrong >"$1"; chmod 644 "$1"`, interrupter{})
	draft, _, err := r.edit(t)
	if err == nil || !strings.Contains(err.Error(), "given up") {
		t.Errorf("%v, want it to be given up", err)
	}
	var words strings.Builder
	cmdenv.Report(&words, draft.Keep(err))
	draft.Close()
	left := r.left(t)
	if len(left) != 1 || !strings.Contains(words.String(), filepath.Join(left[0], "config.json")) {
		t.Fatalf("left %v; %s", left, words.String())
	}
	info, err := os.Stat(left[0])
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestNoPlaceForTheText_NothingIsPutElsewhere checks that a text which cannot be kept, since no directory can be made
// for it, does not replace a file of its name in the current directory, and that the error says so.
func TestNoPlaceForTheText_NothingIsPutElsewhere(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	t.Chdir(here)
	for dir, text := range map[string]string{here: "of another", there: "a secret"} {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	draft := &Draft{dir: filepath.Join(there, "gone", "draft-1"), file: filepath.Join(there, "config.json")}
	err := draft.Keep(errors.New("given up"))
	if err == nil || !strings.Contains(err.Error(), "cannot be kept") || cmdenv.HasHint(err) {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile("config.json"); err != nil || string(text) != "of another" {
		t.Errorf("the file in the current directory has %q, %v", text, err)
	}
}
