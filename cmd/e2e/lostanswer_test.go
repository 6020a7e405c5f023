package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLongAnswerLost_CallEndsAtOnce takes away, or spoils, the file with the long answer of a call
// before the daemon has read it, or before the next daemon has. The call ends at once and by the
// law: a convergent one is made again, any other one gets outcome_unknown, which names the file. If
// what is left of the answer does not show whose it was, each call in flight ends so, and is
// cancelled. The server lives on.
func TestLongAnswerLost_CallEndsAtOnce(t *testing.T) {
	t.Parallel()
	spoil := map[string]func(path string) error{
		"gone":    os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 1000) },
		"damaged": func(path string) error { return flipBit(path, 200_000) },
	}
	for _, next := range []bool{false, true} {
		for _, late := range []bool{false, true} {
			for _, tool := range []string{"effect", "look"} {
				for name, damage := range spoil {
					if late && name == "cut" {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/late=%v/next=%v", tool, name, late, next), func(t *testing.T) {
						t.Parallel()
						lostAnswer(t, tool, next, late, damage)
					})
				}
			}
		}
	}
}

// latch returns the path of a file for which a call of the tool server waits.
func (p *place) latch(name string) string { return filepath.Join(p.dir, "latch."+name) }

// letThrough makes that file.
func (p *place) letThrough(name string) {
	p.t.Helper()
	if err := os.WriteFile(p.latch(name), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// flipBit changes one bit of a file, at that byte.
func flipBit(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 1
	_, err = f.WriteAt(b, at)
	return err
}

// halt stops a process, and waits until none of its threads runs.
func halt(tb testing.TB, pid int) {
	tb.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	waitFor(tb, "all threads to be stopped", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, path := range threads {
			b, err := os.ReadFile(path)
			if _, rest, _ := strings.Cut(string(b), ") "); err == nil && !strings.HasPrefix(rest, "T") {
				return false
			}
		}
		return true
	})
}

// lostAnswer damages the file of a long answer while the daemon is stopped, and has it go on, or
// the next one.
func lostAnswer(t *testing.T, tool string, next, late bool, damage func(path string) error) {
	t.Helper()
	const bytes = 300_000
	var args []string
	if late {
		args = append(args, "-late")
	}
	p := newPlace(t).serve("shared", args...).login()
	a, b := p.agent().shake(), p.agent().shake()
	daemon := p.pid(0)
	long := a.call("tools__"+tool, map[string]any{"token": "long", "until": p.latch("long"), "bytes": bytes})
	other := b.call("tools__effect", map[string]any{"token": "other", "until": p.latch("other")})
	p.untilEffect("begin other")
	p.untilEffect(map[string]string{"effect": "begin long", "look": "look long"}[tool])
	halt(t, daemon)
	p.letThrough("long")
	var path string
	waitFor(t, "the file of the answer", func() bool {
		found, _ := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*/long.*"))
		if len(found) == 0 {
			return false
		}
		path = found[0]
		info, err := os.Stat(path)
		return err == nil && info.Size() > bytes+1
	})
	if err := damage(path); err != nil {
		t.Fatal(err)
	}
	if next {
		kill9(t, daemon)
	} else if err := syscall.Kill(daemon, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	x := a.wait(long)
	if took := time.Since(begun); took > endBound {
		t.Errorf("the answer took %v", took)
	}
	if tool == "look" {
		if n := p.effectsOf("look long"); x.text() != "long"+strings.Repeat("x", bytes) || n != 2 {
			t.Errorf("the convergent call ran %d times and got %.300s", n, x.raw)
		}
	} else {
		if n := p.effectsOf("begin long"); x.code() != "outcome_unknown" || n != 1 {
			t.Errorf("the call ran %d times and got %.300s", n, x.raw)
		}
		if !strings.Contains(x.raw, path) {
			t.Errorf("the answer does not name %s: %.500s", path, x.raw)
		}
	}
	if !late {
		p.letThrough("other")
	}
	switch x := b.wait(other); {
	case late && (x.code() != "outcome_unknown" || !strings.Contains(x.raw, path)):
		t.Errorf("the other call, whose answer may be lost: %s", x.raw)
	case late:
		p.untilEffect("cancelled other")
	case x.text() != "other":
		t.Errorf("the other call: %s", x.raw)
	}
	if x := b.wait(b.effect("after", 0)); x.text() != "after" {
		t.Errorf("the next call: %s", x.raw)
	}
	if is := p.serverPIDs("begin"); len(is) != 1 {
		t.Errorf("the calls were made by the processes %v", is)
	}
	a.rest(long)
	b.rest(other)
	waitFor(t, "the end of the files", func() bool { return len(p.longFiles()) == 0 })
}
