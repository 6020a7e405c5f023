package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestStop_BesideWhatElseHappens stops holdline at the moment at which the daemon hands over to another program, was
// just killed so that a proxy starts the next one, or is told to stop by other commands, again and again: each time hits
// another instant. Each stop succeeds, uninstall does, too, no command says that something is broken, and no daemon and
// no worker is left.
func TestStop_BesideWhatElseHappens(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join(programs, "holdline"))
	if err != nil {
		t.Fatal(err)
	}
	rounds := 3
	if os.Getenv("HOLDLINE_LONG") != "" {
		rounds = 20
	}
	upgrades := func(p *place, _ int) {
		p.install(program, 0o700) // another file: the daemon may take it by itself, too
		p.run("", "upgrade")
	}
	for name, c := range map[string]struct {
		stops   [][]string // at the same time
		happens func(p *place, daemon int)
	}{
		"stop and an upgrade":       {[][]string{{"stop"}}, upgrades},
		"stop --all and an upgrade": {[][]string{{"stop", "--all"}}, upgrades},
		"uninstall and an upgrade":  {[][]string{{"uninstall"}}, upgrades},
		"stop --all and a proxy that starts the next daemon": {
			[][]string{{"stop", "--all"}}, func(_ *place, daemon int) { _ = syscall.Kill(daemon, syscall.SIGKILL) },
		},
		"stops": {
			[][]string{{"stop"}, {"stop", "--all"}, {"stop"}, {"stop", "--all"}}, func(*place, int) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
			for range rounds {
				p.install(program, 0o700)
				daemon := p.daemonAt(p.bin())
				a := p.agent().shake()
				if x := a.wait(a.effect("one", 1)); x.text() != "one" {
					t.Fatal(x.raw)
				}
				var all sync.WaitGroup
				all.Go(func() { c.happens(p, daemon.Process.Pid) })
				for _, args := range c.stops {
					all.Go(func() {
						out, errs, code := p.run("", args...)
						if said := out + errs; code != exitOK || strings.Contains(said, "broken") || strings.Contains(said, "reset") {
							t.Errorf("%v: exit %d: %s", args, code, said)
						}
					})
				}
				all.Wait()
				_ = a.stdin.Close()
				for range a.lines {
				}
				_ = a.cmd.Wait() // it may have lost its daemon
				if c.stops[0][len(c.stops[0])-1] == "stop" {
					p.must("stop", "--all") // the workers go on
				}
				p.untilEmpty(t)
				if t.Failed() {
					return
				}
			}
		})
	}
}
