package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude/claudetest"
)

// memoryOf returns a value of a process's status, in MiB.
func memoryOf(t *testing.T, pid int, key string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == key+":" {
			kib, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib >> 10
		}
	}
	t.Fatalf("process %d has no %s", pid, key)
	return 0
}

// TestMemoryGivenBack checks that memory needed for answers of the largest size, and for
// lines over the limit, is returned to the system as soon as the daemon is idle, whether or
// not an agent is connected.
func TestMemoryGivenBack(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	const most = 100 // MiB; one answer has 62
	p := newPlace(t)
	a, b := p.wild(hosting{"max_restarts": 100})
	p.untilReady("wild")
	daemon := p.status().Daemon.PID
	for range 3 {
		const size = 65_000_000
		if x := a.wait(a.call("wild__long", map[string]any{"bytes": size})); len(x.text()) != size {
			t.Fatalf("a large answer has %d bytes: %.300s", len(x.text()), x.raw)
		}
	}
	peak := memoryOf(t, daemon, "VmHWM")
	waitFor(t, "memory to be given back", func() bool { return memoryOf(t, daemon, "VmRSS") < most })
	b.wait(b.call("wild__endless", map[string]any{}))
	a.rest()
	b.rest()
	waitFor(t, "memory to be given back without an agent", func() bool { return memoryOf(t, daemon, "VmRSS") < most })
	t.Logf("at most %d MiB under answers, %d MiB in all, %d MiB at the end", peak, memoryOf(t, daemon, "VmHWM"),
		memoryOf(t, daemon, "VmRSS"))
}

// TestAdapterMemoryGivenBack checks that the engine process of a consult gives back what its start
// has needed of the program's pages, while the consult's program works, and so does the process of
// a remote server while nothing is asked.
func TestAdapterMemoryGivenBack(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	shrinks := func(t *testing.T, pid int) {
		t.Helper()
		waitFor(t, "half of its memory to be given back", func() bool {
			return memoryOf(t, pid, "VmRSS") <= memoryOf(t, pid, "VmHWM")/2
		})
		t.Logf("at most %d MiB, %d MiB now", memoryOf(t, pid, "VmHWM"), memoryOf(t, pid, "VmRSS"))
	}
	t.Run("consult", func(t *testing.T) {
		p := newPlace(t)
		p.daemon()
		p.agent().shake().call("consult", p.worksAlone())
		p.untilConsultSays(t, saidSoFar)
		shrinks(t, p.consultProcess(t, "engine"))
	})
	t.Run("remote server", func(t *testing.T) {
		f := newFar(t, false)
		p := newPlace(t).remote(f, f.token)
		p.daemon()
		p.agent().shake().ask("tools/list", map[string]any{})
		shrinks(t, p.untilReady("far"))
	})
}

// ticksOf returns the time that a process has computed, in hundredths of a second.
func ticksOf(t *testing.T, pid int) (ticks int) {
	t.Helper()
	_, rest, _ := strings.Cut(content(t, fmt.Sprintf("/proc/%d/stat", pid)), ") ")
	for _, field := range strings.Fields(rest)[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks
}

// readTicks returns the time, in hundredths of a second, that this process computes to read a transcript once: a busy or
// slow machine takes longer for everything.
func readTicks(t *testing.T, path string) int {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	computed := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begin := computed()
	for line := range strings.Lines(content(t, path)) {
		var event map[string]any
		_ = json.Unmarshal([]byte(line), &event) // the daemon may be writing the last one
	}
	return int((computed() - begin) / (10 * time.Millisecond))
}

// TestLongTranscriptWatched checks that the daemon neither computes nor needs memory for a consult
// that is watched, whose transcript has the largest size, and little when something is said to it.
func TestLongTranscriptWatched(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	wait, open := p.hold(t, "held")
	daemon := p.daemon().Process.Pid
	a := p.agent("--no-autostart").shake()
	talks := slices.Repeat([]claudetest.Step{{Do: "talk", N: 1024}}, 17)
	id := consultID(t, a.wait(a.call("consult", map[string]any{
		"wait_s": 0, "render": "json", "prompt": claudetest.Prompt("x", append(talks, wait, claudetest.Say("done"))...),
	})))
	file := filepath.Join(p.dir, "home/.local/state/holdline/consults", id, engine.FileTranscript)
	waitFor(t, "a transcript of 14 MiB", func() bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() > 14<<20
	})
	waitFor(t, "a full transcript", func() bool { return p.lines(t, id, engine.KindCut) == 1 })
	ticks, peak := ticksOf(t, daemon), memoryOf(t, daemon, "VmHWM")
	view := p.asking(t, "consult", "show", "-f", id)
	view.until("more is not recorded")
	ticks, peak = ticksOf(t, daemon)-ticks, memoryOf(t, daemon, "VmHWM")-peak
	unit := readTicks(t, file)
	t.Logf("the daemon has computed for %d0 ms and needed %d MiB more; to read the transcript takes %d0 ms", ticks, peak, unit)
	if ticks > max(20*slowness, unit) || peak > 12 {
		t.Error("that is too much")
	}
	ticks = ticksOf(t, daemon)
	p.must("consult", "say", id, "go on") // it looks for two seconds whether the program has that
	if ticks = ticksOf(t, daemon) - ticks; ticks > max(70*slowness, 3*unit) {
		t.Errorf("the daemon has computed for %d0 ms about a message", ticks)
	}
	open()
	view.end(0)
	a.rest()
}
