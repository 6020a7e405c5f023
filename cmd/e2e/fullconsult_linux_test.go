package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/daemon/adapter/engine/claude/claudetest"
)

// TestConsultDiskFullRoot fills the disk of the state directory while a consult runs: when its
// program has just begun, when that has ended, and when the outcome is written but the answer
// is not. The answer arrives once all the same, and doctor names the files that could not be
// written. An answer that is only in memory is on disk once there is room.
func TestConsultDiskFullRoot(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		point string // at which the disk is filled; "" while the program waits
		freed string // point at which there is room again; "" for none
		want  []string
		not   []string
	}{
		{name: "at the transcript", want: []string{"transcript.jsonl", "outcome.json", "answer.json"}},
		{
			name: "at the outcome", point: "adapter.exited", freed: "private.followed",
			want: []string{"outcome.json"}, not: []string{"answer.json"},
		},
		{
			name: "at the answer", point: "private.followed",
			want: []string{"answer.json"}, not: []string{"transcript.jsonl", "outcome.json"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).faults()
			state := filepath.Join(p.dir, "home/.local/state/holdline")
			if err := os.MkdirAll(state, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("tmpfs", state, "tmpfs", 0, "size=2m,mode=0700"); errors.Is(err, syscall.EPERM) {
				t.Skip("mounting a file system needs root")
			} else if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(state, syscall.MNT_DETACH) })
			fifo := filepath.Join(p.programs(), "wait") // the program waits there for a reader
			if err := errors.Join(os.MkdirAll(filepath.Dir(fifo), 0o700), syscall.Mkfifo(fifo, 0o600)); err != nil {
				t.Fatal(err)
			}
			for _, point := range []string{tc.point, tc.freed} {
				if point != "" {
					p.dieAs(point, death{held: true})
				}
			}
			d := p.daemon()
			a := p.agent("--no-autostart").shake()
			id := a.call("consult", map[string]any{"prompt": claudetest.Prompt("x",
				claudetest.Step{Do: "ledger", Message: p.ledger()},
				claudetest.Step{Do: "ledger", Message: fifo},
				claudetest.Step{
					Text: new(strings.Repeat("word ", 4000)),
					Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "x"}},
				},
				claudetest.Say("the one answer"))})
			p.untilSteps(1)
			filler := filepath.Join(state, "filler")
			full := func() {
				if err := fillDisk(filler); err != nil {
					t.Fatal(err)
				}
			}
			if tc.point == "" {
				full()
			}
			reader, err := os.OpenFile(fifo, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			if tc.point != "" {
				waitFor(t, tc.point, func() bool { return p.died(tc.point) })
				full()
				p.letGo(tc.point)
			}
			if tc.freed != "" {
				waitFor(t, tc.freed, func() bool { return p.died(tc.freed) })
				if err := os.Remove(filler); err != nil {
					t.Fatal(err)
				}
				p.letGo(tc.freed)
			}
			if x := a.wait(id); x.Error != nil || x.Result.IsError || !strings.Contains(x.text(), "the one answer") {
				t.Errorf("the answer: %s", x.raw)
			}
			dir := filepath.Join(state, "consults", p.id(t))
			p.doctorNames(t, dir, tc.want, tc.not)
			a.rest(id)
			if _, err := os.Stat(filler); err == nil {
				if err := os.Remove(filler); err != nil {
					t.Fatal(err)
				}
				p.must("stop")
				waitFor(t, "the daemon's end", func() bool { return !alive(d.Process.Pid) })
			}
			if b, err := os.ReadFile(filepath.Join(dir, "answer.json")); err != nil ||
				!strings.Contains(string(b), "the one answer") {
				t.Errorf("the answer on disk: %v, %s", err, b)
			}
			if n := p.steps(); n != 1 {
				t.Errorf("the program took %d steps, want 1: it ran once", n)
			}
		})
	}
}

// doctorNames checks which files of the consult in dir doctor names as unwritten, and that it
// says of each what to do.
func (p *place) doctorNames(t *testing.T, dir string, want, not []string) {
	t.Helper()
	out, errs, _ := p.run("", "doctor", "--json")
	var findings []struct{ Check, State, What, Why, Fix string }
	if err := json.Unmarshal([]byte(out), &findings); err != nil {
		t.Fatalf("doctor: %v, %s%s", err, out, errs)
	}
	named := map[string]bool{}
	for _, f := range findings {
		if f.Check != "file of a consult" {
			continue
		}
		path, _, _ := strings.Cut(f.What, " ")
		named[filepath.Base(path)] = true
		if filepath.Dir(path) != dir || f.Why == "" || !strings.Contains(f.Fix, "make room on the disk of "+dir) {
			t.Errorf("finding %+v, want one about a file in %s", f, dir)
		}
		if lost := filepath.Base(path) == "answer.json"; lost != (f.State == "problem") {
			t.Errorf("finding %+v: only an answer that could be lost is a problem", f)
		}
	}
	for _, name := range want {
		if !named[name] {
			t.Errorf("doctor does not name %s: %+v", name, findings)
		}
	}
	for _, name := range not {
		if named[name] {
			t.Errorf("doctor names %s: %+v", name, findings)
		}
	}
}
