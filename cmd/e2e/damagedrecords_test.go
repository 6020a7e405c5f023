package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/calls"
	"holdline/protocol/control"
	"holdline/protocol/process"
)

// recordDamages are what may happen to a file of a worker's directory. old has the file as it was
// before the calls, and other is the same file of another server's worker.
var recordDamages = map[string]func(path, old, other string) error{
	"emptied": func(path, _, _ string) error { return os.Truncate(path, 0) },
	"halved":  func(path, _, _ string) error { return cutFile(path, func(size int64) int64 { return size / 2 }) },
	"without its last byte": func(path, _, _ string) error {
		return cutFile(path, func(size int64) int64 { return size - 1 })
	},
	"with one bit flipped": func(path, _, _ string) error {
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 0 {
			b[len(b)/2] ^= 1
			err = os.WriteFile(path, b, 0o600)
		}
		return err
	},
	"old":     func(path, old, _ string) error { return os.WriteFile(path, []byte(old), 0o600) },
	"missing": func(path, _, _ string) error { return os.RemoveAll(path) },
	"swapped": func(path, _, other string) error {
		return errors.Join(os.Rename(path, path+".swap"), os.Rename(other, path), os.Rename(path+".swap", other))
	},
	"a directory": func(path, _, _ string) error { return errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700)) },
}

// cutFile cuts a file to the size that to returns for its size.
func cutFile(path string, to func(size int64) int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, max(0, to(info.Size())))
}

// damagedFiles are the files of a worker's directory that a daemon reads, by name; "" is the directory
// itself. The value says what may happen to the file so that the call of the living worker gets its
// answer all the same; "" stands for everything.
var damagedFiles = map[string]string{
	calls.File:           "without its last byte, with one bit flipped", // which is in an earlier record
	process.FileSpec:     "",
	process.FileState:    "",
	process.FileServer:   "",
	process.FileLists:    "",
	process.FileTaken:    "",
	"":                   "none",
	"../../known/WORKER": "",
}

// TestRecordsDamagedOverKill_EachCallHasOneHonestAnswer damages one file of a worker's directory while no daemon
// runs and calls are pending, for each file and each way. The worker lives, or was killed with the daemon. No call is
// made twice that may not be. A call gets its answer if its record can be believed and its worker lives, and
// outcome_unknown with the name of the file otherwise. Those of another server lose nothing, new calls work,
// and nothing is left running.
func TestRecordsDamagedOverKill_EachCallHasOneHonestAnswer(t *testing.T) {
	t.Parallel()
	for file, readable := range damagedFiles {
		for way, damage := range recordDamages {
			few := file == calls.File || way == "missing" || way == "swapped" && (file == process.FileSpec || file == "")
			if !few && os.Getenv("HOLDLINE_LONG") == "" || file == "" && way != "missing" && way != "swapped" ||
				strings.HasPrefix(file, "..") && way == "swapped" {
				continue
			}
			for _, worker := range []string{"lives", "killed"} {
				answered := worker == "lives" && (readable == "" || strings.Contains(readable, way))
				t.Run(fmt.Sprintf("%s %s, worker %s", file, way, worker), func(t *testing.T) {
					t.Parallel()
					(&damagedRecords{place: newPlace(t), file: file, damage: damage, killed: worker == "killed"}).run(t, answered)
				})
			}
		}
	}
}

// damagedRecords is one cell of the table.
type damagedRecords struct {
	*place
	file   string
	damage func(path, old, other string) error
	killed bool // the worker
}

// path returns the path of the file in the directory of the worker with that pid.
func (p *damagedRecords) path(t *testing.T, server string) string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/s"+server+"-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("directories %v, %v", dirs, err)
	}
	return filepath.Join(dirs[0], strings.ReplaceAll(p.file, "WORKER", filepath.Base(dirs[0])))
}

// run runs the cell. answered says that the call which must not run twice gets its answer.
func (p *damagedRecords) run(t *testing.T, answered bool) {
	t.Helper()
	calm := p.effects() + ".calm"
	p.configure(map[string]any{
		"held": p.heldEntry(hosting{"scope": "shared"}),
		"calm": p.heldEntry(hosting{"scope": "shared"}, "-ledger", calm),
	})
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	p.untilReady("held")
	p.untilReady("calm")
	path, other := p.path(t, "held"), p.path(t, "calm")
	old, _ := os.ReadFile(path)
	pending := map[string]int{
		"effect": a.call("held__effect", map[string]any{}),
		"look":   a.call("held__look", map[string]any{}),
		"calm":   a.call("calm__effect", map[string]any{}),
	}
	p.untilEffect("begin effect")
	p.untilEffect("begin look")
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		if b, _ := os.ReadFile(calm); strings.Contains(string(b), "begin effect") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the call of the other server does not begin")
		}
	}
	var held control.Worker
	for _, w := range p.until("the processes", func(s control.StatusAnswer) bool { return len(s.Workers) == 2 }).Workers {
		if w.Name == "held" {
			held = w
		}
	}
	kill9(t, d.Process.Pid)
	if p.killed {
		kill9(t, held.PID)
		_ = syscall.Kill(held.ChildPID, syscall.SIGKILL)
	}
	if err := p.damage(path, string(old), other); err != nil {
		t.Fatal(err)
	}
	p.daemon()
	p.until("the session", func(s control.StatusAnswer) bool { return len(s.Sessions) == 1 })
	if err := os.WriteFile(filepath.Join(p.dir, "gate"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for len(got) < len(pending) {
		line := a.read()
		for kind, id := range pending {
			if strings.Contains(line, fmt.Sprintf(`"id":%d,`, id)) {
				got[kind] = line
			}
		}
	}
	_, swaps := got["calm"], strings.Contains(t.Name(), "swapped")
	want := map[string]bool{"effect": answered, "look": true, "calm": true}
	for kind, line := range got {
		said := strings.Contains(line, `"text":"held `)
		switch {
		case kind == "calm" && swaps && strings.Contains(line, "outcome_unknown"): // its file is damaged, too
		case want[kind] != said, !said && !strings.Contains(line, "outcome_unknown"):
			t.Errorf("%s: %s", kind, line)
		}
	}
	if n := p.effectsOf("begin effect"); n != 1 {
		t.Errorf("the call was made %d times", n)
	}
	if b, _ := os.ReadFile(calm); strings.Count(string(b), "begin effect") != 1 {
		t.Errorf("the other server has done %s", b)
	}
	if x := a.wait(a.call("held__effect", map[string]any{})); x.text() != "held effect" {
		t.Errorf("a new call: %s", x.raw)
	}
	a.rest()
}
