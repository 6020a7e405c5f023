package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdline/protocol/bootclock"
	"holdline/protocol/bulk"
)

// setClock changes the files in the place's state and runtime directories as if the
// machine's clock had been set since they were written: forward by the duration, or back if
// it is negative. It shifts every wall clock time in them, and the times of the files, the
// other way.
func (p *place) setClock(t *testing.T, forward time.Duration) {
	t.Helper()
	// A number that can only be a wall clock time in milliseconds.
	wallMS := regexp.MustCompile(`\b1[6-9]\d{11}\b`)
	shiftFile := func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if ext := filepath.Ext(path); ext == ".json" || ext == ".jsonl" {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			now := wallMS.ReplaceAllFunc(b, func(ms []byte) []byte {
				n, _ := strconv.ParseInt(string(ms), 10, 64)
				return strconv.AppendInt(nil, n-forward.Milliseconds(), 10)
			})
			if err := os.WriteFile(path, sealedAgain(path, b, now), 0o600); err != nil {
				return err
			}
		}
		at := info.ModTime().Add(-forward)
		return os.Chtimes(path, at, at)
	}
	shift := func(path string, e fs.DirEntry, err error) error {
		if err := shiftFile(path, e, err); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil // a worker has removed it meanwhile
	}
	for _, dir := range []string{p.stateRoot(), filepath.Join(p.dir, "run")} {
		if err := filepath.WalkDir(dir, shift); err != nil {
			t.Fatal(err)
		}
	}
}

// sealedAgain returns now, the changed content of the file at path, with the checksums that fit it wherever
// the content before has a line with one.
func sealedAgain(path string, before, now []byte) []byte {
	file, dir := filepath.Base(path), filepath.Base(filepath.Dir(path))
	names := []string{file, strings.TrimSuffix(file, filepath.Ext(file)), dir, dir + "/" + file}
	old, lines := bytes.SplitAfter(before, []byte("\n")), bytes.SplitAfter(now, []byte("\n"))
	for i, line := range lines {
		text := bytes.TrimSuffix(line, []byte("\n"))
		for _, name := range names {
			if at := bytes.LastIndex(text, []byte(`,"sum":`)); at >= 0 && bulk.IsSealed(name, bytes.TrimSuffix(old[i], []byte("\n"))) {
				lines[i] = append(bulk.Seal(name, append(text[:at:at], '}')), line[len(text):]...)
				break
			}
		}
	}
	return bytes.Join(lines, nil)
}

// jumps are clock changes that must not affect any deadline.
var jumps = map[string]time.Duration{"forward": 24 * time.Hour, "back": -24 * time.Hour}

// TestClockSetDuringCall checks that a call and a consult that are adopted after the clock
// was set have no less than the rest of their time.
func TestClockSetDuringCall(t *testing.T) {
	t.Parallel()
	for name, by := range jumps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
			d := p.daemon()
			a := p.agent("--no-autostart").shake()
			p.untilReady("tools")
			slow, open := p.slowUntil(t) // while the files are changed, neither may end
			call := a.call("tools__effect", map[string]any{"token": "x", "until": p.latch("x")})
			consult := a.call("consult", slow)
			p.untilEffect("begin x")
			p.untilSteps(1)
			kill9(t, d.Process.Pid)
			p.setClock(t, by)
			p.daemon()
			p.letThrough("x")
			open()
			for id, x := range a.waitAll(call, consult) {
				if x.Error != nil || x.Result.IsError ||
					id == consult && !strings.HasPrefix(x.text(), "the one answer") {
					t.Errorf("request %d, clock set %s: %s", id, name, x.raw)
				}
			}
			a.rest()
		})
	}
}

// TestClockSetTimeout checks that an adopted call has no more than the rest of its time: it
// ends although the clock was set back.
func TestClockSetTimeout(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "timeout": "3s"})})
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	p.untilReady("tools")
	// Progress would restart the time of the call.
	args := map[string]any{"token": "x", "ms": 10 * waitLimit.Milliseconds()}
	id := a.begin("tools/call", map[string]any{"name": "tools__effect", "arguments": args})
	p.untilEffect("begin x")
	kill9(t, d.Process.Pid)
	p.setClock(t, -24*time.Hour)
	p.daemon()
	if x := a.wait(id); x.code() != "timeout" {
		t.Errorf("got %s, want the code timeout", x.raw)
	}
	a.rest()
}

// TestClockSetAfterStop_StartStarts checks that "holdline stop" holds and "holdline start" starts the daemon, even if
// the clock was set in between.
func TestClockSetAfterStop_StartStarts(t *testing.T) {
	t.Parallel()
	for name, by := range jumps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login()
			p.agent().shake().rest()
			p.must("stop")
			p.setClock(t, by)
			p.refusedAgent()
			p.must("start")
			p.agent().shake().rest()
		})
	}
}

// TestStoppedWhileStarting checks that a daemon that was requested before the user said
// stop does not start. One that is requested afterwards starts, and so does one that finds
// the mark of an earlier boot.
func TestStoppedWhileStarting(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	asked := bootclock.Now()
	p.must("stop")
	_, _, code := p.run("", "daemon", "--started-by", "proxy", "--wanted", asked.String())
	if _, err := os.Stat(filepath.Join(p.dir, "run/holdline/stopped")); err != nil || code == 3 {
		t.Errorf("exit code %d; the mark: %v", code, err)
	}
	if p.listens() {
		t.Error("a daemon that was asked for before the stop runs")
	}
	mark := fmt.Appendf(nil, "an-earlier-boot %d\n", int64(math.MaxInt64))
	if err := os.WriteFile(filepath.Join(p.dir, "run/holdline/stopped"), mark, 0o600); err != nil {
		t.Fatal(err)
	}
	p.daemon("--started-by", "proxy", "--wanted", asked.String())
}

// listens reports whether a daemon answers at the place.
func (p *place) listens() bool {
	_, _, code := p.run("", "status")
	return code == 0
}
