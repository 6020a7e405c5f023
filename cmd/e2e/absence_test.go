package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEpochLost checks that a daemon starts although both files with the daemons' numbers
// are garbage, and that workers of earlier daemons accept it.
func TestEpochLost(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	id := a.call("consult", p.slow(1))
	p.untilSteps(1)
	before := p.status().Daemon.Epoch
	kill9(t, d.Process.Pid)
	for _, file := range []string{"run/holdline/epoch", "home/.local/state/holdline/epoch"} {
		file = filepath.Join(p.dir, file)
		if _, err := os.Stat(file); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.daemon()
	if now := p.status().Daemon.Epoch; now <= before {
		t.Errorf("epoch %d after %d", now, before)
	}
	if x := a.wait(id); x.Error != nil || x.Result.IsError || !strings.Contains(x.text(), "the one answer") {
		t.Errorf("the consult's answer: %s", x.raw)
	}
	a.rest(id)
	if log, err := os.ReadFile(filepath.Join(p.dir, "daemon.log")); err != nil ||
		!strings.Contains(string(log), "counting on from the clock") {
		t.Errorf("the log does not say so: %v", err)
	}
}

// TestEndedInAbsence checks that a consult that ended without a daemon has its own time of
// end, not the time at which the next daemon found it.
func TestEndedInAbsence(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		p := newPlace(t).windows(60)
		d := p.daemon()
		a := p.agent("--no-autostart").shake()
		args, open := p.slowUntil(t)
		if killed {
			args = p.hangs()
		}
		args["wait_s"] = 0
		a.wait(a.call("consult", args))
		p.untilSteps(1)
		a.rest()
		worker := p.status().Workers[0].PID
		kill9(t, d.Process.Pid)
		dir := filepath.Join(p.dir, "home/.local/state/holdline/consults", p.id(t))
		var want int64
		if killed {
			_ = syscall.Kill(worker, syscall.SIGKILL)
			waitFor(t, "the worker's end", func() bool { return !alive(worker) })
		} else {
			open()
			st := p.untilLeft(dir)
			if want = st.Exit.UnixMS; want == 0 || want > st.UnixMS {
				t.Fatalf("the worker says that its child ended at %d, and itself at %d", want, st.UnixMS)
			}
		}
		found := time.Now().UnixMilli()
		p.daemon()
		p.ended()
		var answer struct {
			Created int64 `json:"created_unix_ms"`
			Ended   int64 `json:"ended_unix_ms"`
			Took    int64 `json:"duration_ms"`
		}
		b, err := os.ReadFile(filepath.Join(dir, "answer.json"))
		if err == nil {
			err = json.Unmarshal(b, &answer)
		}
		if err != nil || answer.Ended > found || want != 0 && answer.Ended > want ||
			answer.Took > answer.Ended-answer.Created {
			t.Errorf("killed %v: %v, %+v, want an end at %d or just before, and before %d", killed, err, answer,
				want, found)
		}
	}
}
