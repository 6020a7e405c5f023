package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/daemon/adapter/engine/claude/claudetest"
)

// hold makes a pipe at which a consult program waits until open is called, and returns the step
// that waits there.
func (p *place) hold(tb testing.TB, name string) (wait claudetest.Step, open func()) {
	tb.Helper()
	path := filepath.Join(p.programs(), name) // the program may write there
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		tb.Fatal(err)
	}
	return claudetest.Step{Do: "ledger", Message: path}, func() {
		f, err := os.OpenFile(path, os.O_RDWR, 0) // the program opens the pipe once it has a reader
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { f.Close() })
	}
}

// until waits until the command has printed a text.
func (a *asking) until(text string) {
	a.t.Helper()
	waitFor(a.t, text, func() bool { return strings.Contains(a.out.String(), text) })
}

// TestConsultLive watches a consult whose daemon is killed meanwhile. The view goes on without a
// daemon, shows each step once, and ends with the consult; one that is begun without a daemon
// shows the same. An interrupt ends the view alone. Neither a secret nor a control character is
// shown.
func TestConsultLive(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-the-configuration"
	for _, back := range []bool{true, false} {
		t.Run(map[bool]string{true: "with the next daemon", false: "without another daemon"}[back], func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.configure(map[string]any{}, "consult", map[string]any{"env": map[string]any{"KEY": secret}})
			first, openFirst := p.hold(t, "first")
			last, openLast := p.hold(t, "last")
			read := func(name, text string) claudetest.Step {
				return claudetest.Step{
					Text: new(text), Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": name}},
				}
			}
			daemon := p.daemon()
			a := p.agent("--no-autostart").shake()
			id := consultID(t, a.wait(a.call("consult", map[string]any{
				"wait_s": 0, "render": "json", "prompt": claudetest.Prompt("x",
					read("one.go", "The key is "+secret+"\x1b[2J."), first, read("two.go", "So far so good."), last,
					claudetest.Say("the one answer")),
			})))
			view, lines := p.asking(t, "consult", "show", "-f", id), p.asking(t, "consult", "show", "-f", "--json", id)
			view.until("one.go")
			kill9(t, daemon.Process.Pid)
			openFirst()
			view.until("two.go")

			late := p.asking(t, "consult", "show", "--follow", id[:7])
			late.until("two.go")
			if err := late.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			shown := late.end(exitFailure)
			if errs := late.errs.String(); !strings.Contains(errs, "interrupted: consult "+id+" goes on") {
				t.Errorf("interrupted: %q", errs)
			}
			if _, errs, code := p.run("", "consult", "show", "-f", "000000000000"); code != exitFailure ||
				!strings.Contains(errs, `no consult "000000000000"; those that there are: holdline consult list`) {
				t.Errorf("an unknown id: exit %d, %q", code, errs)
			}
			if _, _, code := p.look("status"); code != exitNoDaemon {
				t.Errorf("with a view there is a daemon: status exits with %d", code)
			}

			if back {
				p.daemon()
			}
			openLast()
			got := view.end(0)
			wantOnce(t, got, "started, level read", "The key is ***?[2J.\n", "one.go", "So far so good.\n", "two.go",
				"the one answer\n", "the consult is over: done\n")
			if errs := view.errs.String(); !strings.HasPrefix(errs, "[consult "+id+", ") ||
				!strings.Contains(errs, "$") {
				t.Errorf("below it is %q", errs)
			}
			if !strings.Contains(got, shown) { // it may begin with a word on the queue
				t.Errorf("begun without a daemon, the view shows %q, not a part of %q", shown, got)
			}
			events := lines.end(0)
			for i, line := range strings.Split(strings.TrimSuffix(events, "\n"), "\n") {
				var e struct {
					Q int    `json:"q"`
					K string `json:"k"`
				}
				if err := json.Unmarshal([]byte(line), &e); err != nil || e.Q != i+1 || e.K == "" {
					t.Errorf("line %d is %q: %v", i+1, line, err)
				}
			}
			if again := p.must("consult", "show", "-f", "last"); !strings.HasSuffix(got, again) {
				t.Errorf("after its end it is shown as %q, not as %q", again, got)
			}
			if all := got + events + shown; strings.Contains(all, secret) || strings.Contains(all, "\x1b") {
				t.Errorf("a secret or a control character is shown: %q", all)
			}
			a.leave(exitFailure, exitNoDaemon, exitLost)
		})
	}
}

// wantOnce checks that a text has all words once, in that order.
func wantOnce(t *testing.T, text string, words ...string) {
	t.Helper()
	at := 0
	for _, word := range words {
		if i := strings.Index(text, word); i < at || strings.Count(text, word) != 1 {
			t.Errorf("%q is not once in its place in %q", word, text)
		} else {
			at = i
		}
	}
}

// TestPanelLive checks that the view of a panel shows the steps of all its members in the order of
// time, each once and with its label, without a daemon, too, and then the answers side by side.
func TestPanelLive(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	wait, open := p.hold(t, "step")
	daemon := p.daemon()
	a := p.agent("--no-autostart").shake()
	id := consultID(t, a.wait(a.call("consult", map[string]any{
		"wait_s": 0, "render": "json", "engines": []string{"claude", "claude/opus"},
		"prompt": claudetest.Prompt("x",
			claudetest.Step{
				Text: new("Let me look."), Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "a.go"}},
			}, wait, claudetest.Say("It is fine.")),
	})))
	view, lines := p.asking(t, "consult", "show", "-f", id), p.asking(t, "consult", "show", "-f", "--json", id)
	for _, label := range []string{"[A]", "[B]"} {
		view.until(label + " Read a.go")
	}
	kill9(t, daemon.Process.Pid)
	open()
	for _, label := range []string{"[A]", "[B]"} {
		view.until(label + " the consult is over: done")
	}
	p.daemon() // the next daemon puts the answers together
	got := view.end(0)
	for _, label := range []string{"[A]", "[B]"} {
		wantOnce(t, got, label+" Let me look.\n", label+" Read a.go\n", label+" It is fine.\n",
			label+" the consult is over: done\n")
	}
	if !strings.Contains(got, "2 of 2 answered") {
		t.Errorf("the view does not end with the answers: %s", got)
	}
	seen := map[string]int{}
	for line := range strings.Lines(lines.end(0)) {
		var e struct {
			Label string `json:"label"`
			Q     int    `json:"q"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Q != seen[e.Label]+1 {
			t.Errorf("line %q: %v, want number %d", line, err, seen[e.Label]+1)
		}
		seen[e.Label] = e.Q
	}
	if len(seen) != 2 || seen["A"] == 0 || seen["B"] == 0 {
		t.Errorf("lines of %v, want of A and B", seen)
	}
}
