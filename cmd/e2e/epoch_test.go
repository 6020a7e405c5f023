package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestEpochFileWentBack_CallAnsweredOnceAndNewOnesServed damages the files with the number of daemons while
// none runs and a call is in flight. The worker knows the number of its daemon, and refuses a lower one. The
// call gets its answer all the same, a new agent is served at once, and the number goes up again.
func TestEpochFileWentBack_CallAnsweredOnceAndNewOnesServed(t *testing.T) {
	t.Parallel()
	put := func(text string) func(path string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for name, damage := range map[string]func(path string) error{
		"cut":        func(path string) error { return os.Truncate(path, 14) },
		"gone":       os.Remove,
		"emptied":    put(""),
		"blank":      put(" \n\n"),
		"other text": put("not a number\n"),
		"negative":   put("-3\n"),
		"highest":    put("9223372036854775807\n"),
		"old copy":   put("0000000000000001\n"),
		"unreadable": func(path string) error { return os.Chmod(path, 0) },
		"directory": func(path string) error {
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
			run, state := filepath.Join(p.dir, "run/holdline/epoch"), filepath.Join(p.stateRoot(), "epoch")
			// No clock that is right shows so many seconds: it was set back since.
			ahead := time.Now().Add(24 * time.Hour).Unix()
			if err := errors.Join(os.MkdirAll(filepath.Dir(run), 0o700),
				os.WriteFile(run, fmt.Appendf(nil, "%016d\n", ahead), 0o600)); err != nil {
				t.Fatal(err)
			}
			d := p.daemon()
			a := p.agent("--no-autostart").shake()
			p.untilReady("tools")
			id := a.effect("x", 2000)
			p.untilEffect("begin x")
			kill9(t, d.Process.Pid)
			if err := errors.Join(damage(run), damage(state)); err != nil {
				t.Fatal(err)
			}
			p.daemon()
			begin := time.Now()
			b := p.agent().shake()
			if y := b.wait(b.effect("y", 0)); y.text() != "y" {
				t.Errorf("a new agent's call: %s", y.raw)
			}
			if late := time.Since(begin); late > endBound {
				t.Errorf("a new call took %v", late)
			}
			if x := a.wait(id); x.text() != "x" || p.effectsOf("begin x") != 1 {
				t.Errorf("the call in flight began %d times: %s", p.effectsOf("begin x"), x.raw)
			}
			if now := p.status().Daemon; now.Epoch <= ahead+1 {
				t.Errorf("the daemon has the number %d, and the worker knew %d", now.Epoch, ahead+1)
			} else if name == "directory" && !strings.Contains(now.Degraded, run) {
				t.Errorf("status does not name the file: %q", now.Degraded)
			} else if name != "directory" {
				b, err := os.ReadFile(run)
				if n, nerr := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err != nil || nerr != nil || n != now.Epoch {
					t.Errorf("the file has %q, %v, the daemon %d", b, err, now.Epoch)
				}
			}
			a.rest()
		})
	}
}
