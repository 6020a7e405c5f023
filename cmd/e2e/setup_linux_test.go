package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/cmd/holdline/ttytest"
	"holdline/daemon/sandbox"
)

// onTerminal runs a command on a terminal on which the user has typed something before. Once the
// terminal shows the text until, it calls then with the user's end, and returns all that was
// shown when the command has ended. Its exit code is in cmd.ProcessState.
func onTerminal(t *testing.T, cmd *exec.Cmd, typed, until string, then func(screen *os.File)) string {
	t.Helper()
	return onTerminalSeen(t, cmd, typed, until, func(screen *os.File, _ string) { then(screen) })
}

// onTerminalSeen is [onTerminal] for a user who reads what the terminal shows.
func onTerminalSeen(
	t *testing.T, cmd *exec.Cmd, typed, until string, then func(screen *os.File, shown string),
) string {
	t.Helper()
	return onTerminalAll(t, cmd, typed, prompted{until, then})
}

// prompted is what a terminal shows before the user does something.
type prompted struct {
	until string
	then  func(screen *os.File, shown string)
}

// typing returns what a user does who types that.
func typing(t *testing.T, text string) func(screen *os.File, shown string) {
	t.Helper()
	return func(screen *os.File, _ string) {
		if _, err := screen.WriteString(text); err != nil {
			t.Error(err)
		}
	}
}

// onTerminalAll is [onTerminalSeen] for several questions, one after the other.
func onTerminalAll(t *testing.T, cmd *exec.Cmd, typed string, questions ...prompted) string {
	t.Helper()
	tty, screen := ttytest.Open(t)
	if _, err := screen.WriteString(typed); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	shown := &words{}
	ended := make(chan struct{})
	go func() { // ends when the command has closed the terminal
		defer close(ended)
		b := make([]byte, 4096)
		for {
			n, err := screen.Read(b)
			_, _ = shown.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	seen := 0
	for _, q := range questions {
		for deadline := time.Now().Add(waitLimit); !strings.Contains(shown.String()[seen:], q.until); {
			if time.Now().After(deadline) {
				t.Fatalf("%q does not show %q: %q", cmd.Args, q.until, shown.String())
			}
			time.Sleep(5 * time.Millisecond)
		}
		all := shown.String()
		seen += strings.Index(all[seen:], q.until) + len(q.until)
		q.then(screen, all)
	}
	_ = cmd.Wait() // the caller looks at the exit code
	<-ended
	return shown.String()
}

// TestSetup_AsksOnATerminal checks that setup asks before it changes anything: that it does
// nothing after a no, that what was typed before the question is no answer, and that it moves
// the servers after a yes. No line is longer than the terminal.
func TestSetup_AsksOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.env = append(p.env, "TERM=xterm", "COLUMNS=80")
	own := p.toolsEntry(nil)
	delete(own, "holdline")
	p.putHome(t, map[string]string{
		".cursor/mcp.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{
			"tools": own, "missing": map[string]any{"command": "no-such-program-anywhere"},
		}}),
	})
	before := p.home(t)
	for _, c := range []struct {
		answer, want string
		code         int
	}{
		{"n\n", "Nothing was changed.", exitFailure},
		{"\n", "Done: 1 server moved, 3 files written; all 3 entries that start holdline work.", exitOK},
	} {
		cmd := p.command("--color", "never", "setup")
		got := onTerminal(t, cmd, "y\n", "Do this?", func(screen *os.File) { // the y comes too early
			if _, err := screen.WriteString(c.answer); err != nil {
				t.Error(err)
			}
		})
		if code := cmd.ProcessState.ExitCode(); code != c.code ||
			!strings.Contains(strings.Join(strings.Fields(got), " "), c.want) {
			t.Errorf("%q: exit %d\n%s", c.answer, code, got)
		}
		proposes := strings.Contains(strings.Join(strings.Fields(got), " "),
			"holdline config set mcpServers.NAME.holdline.confine project")
		if can := sandbox.Refusal(false) == nil; proposes != (can && c.code == exitOK) {
			t.Errorf("%q: that servers are confined is proposed: %v, and they can be: %v\n%s", c.answer, proposes, can, got)
		}
		if c.code != exitOK {
			p.sameHome(t, before)
		}
	}
	if _, err := os.Stat(filepath.Join(p.dir, "home/.config/holdline/config.json")); err != nil {
		t.Error(err)
	}
}
