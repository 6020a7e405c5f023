package far

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/farwire"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/programtest"
)

// hostsBy returns hosts that are reached by a program ssh with this script. Each run of it leaves a
// line in the file runs.
func hostsBy(t *testing.T, script string) (h *Hosts, runs string) {
	t.Helper()
	dir := t.TempDir()
	runs = filepath.Join(dir, "runs")
	text := fmt.Sprintf("#!/bin/sh\necho >> %s\n%s\n", runs, script)
	programtest.Write(t, filepath.Join(dir, "ssh"), text)
	h = &Hosts{
		Environ: func(context.Context) []string { return []string{"PATH=" + dir + ":/usr/bin:/bin"} },
		Origin:  func() (string, error) { return "test", nil },
	}
	t.Cleanup(func() {
		if err := h.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return h, runs
}

// hello returns a script that says hello, and answers nothing.
func hello(workers int) string {
	h := farwire.Hello{Version: farwire.Version, Workers: workers, Node: "n", Program: "1.2.3"}
	return "echo 'holdline-far " + string(jsonrpc.Encode(h)) + "'; cat > /dev/null"
}

// TestDialFails checks what is said of a host that does not answer as it has to, and what to do. The
// next attempt waits: until then the same is said, and nothing is run.
func TestDialFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, words, fix string }{
		"its key is refused": {
			"echo banner >&2; echo 'me@box: Permission denied (publickey).' >&2; exit 255",
			"me@box: Permission denied (publickey)", "ssh box true",
		},
		"holdline is missing":     {"echo 'sh: exec: holdline: not found' >&2; exit 127", "holdline was not found there", "hosts add box"},
		"another program":         {"echo something else; exit 0", "the connection ended (exit code 0)", "box true"},
		"a holdline of before":    {hello(process.Newest() - 1), "its holdline (1.2.3) speaks another protocol", "hosts add box"},
		"it ends without a word":  {"exit 3", "the connection ended (exit code 3)", "box true"},
		"it says too much before": {"yes | head -c 70000; echo enough >&2; exec sleep 30", "enough", "box true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, runs := hostsBy(t, c.script)
			for range 2 {
				_, err := h.Dial(t.Context(), "box")
				lost, ok := errors.AsType[*UnreachableError](err)
				if !ok || !strings.Contains(lost.Words, c.words) || !strings.Contains(lost.Fix, c.fix) {
					t.Fatalf("Dial = %+v, %v", lost, err)
				}
				if f := lost.Fault("x"); f.Reason() != fault.Unreachable || f.Stage != fault.Host {
					t.Errorf("the fault is %+v", f)
				}
			}
			if b, err := os.ReadFile(runs); err != nil || len(b) != 1 {
				t.Errorf("ssh was run %d times, want once: %v", len(b), err)
			}
			if h.Last("box") == nil || h.Pause("box") <= 0 || h.Pause("box") > longest {
				t.Errorf("the next attempt is in %v, since %v", h.Pause("box"), h.Last("box"))
			}
		})
	}
}

// TestDial checks that what a login prints before holdline is left out, and that a host that answers
// has no pause.
func TestDial(t *testing.T) {
	h, _ := hostsBy(t, "echo Welcome; "+hello(process.Newest()))
	for range 3 {
		s, err := h.Dial(t.Context(), "box")
		if err != nil || s.Node != "n" || s.Program != "1.2.3" {
			t.Fatalf("Dial = %+v, %v", s, err)
		}
		s.HangUp()
	}
	if h.Last("box") != nil || h.Pause("box") > 0 {
		t.Errorf("the host answers, and the next attempt is in %v", h.Pause("box"))
	}
}

// TestPauseAfter checks that the pause between attempts grows to half a minute.
func TestPauseAfter(t *testing.T) {
	for fails, most := range map[int]int64{0: int64(firstPause), 3: int64(firstPause) << 3, 100: int64(longest)} {
		for range 20 {
			if got := pauseAfter(fails); int64(got) < most/2 || int64(got) > most {
				t.Errorf("pauseAfter(%d) = %v", fails, got)
			}
		}
	}
}
