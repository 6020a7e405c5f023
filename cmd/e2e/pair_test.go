package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdline/cmd/holdline/pair"
	"holdline/protocol/control"
)

// imageOf returns the name of the program that a process runs.
func imageOf(t *testing.T, pid int) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says which file a process runs")
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
}

// calledAs returns the first word of a process's command line.
func calledAs(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	word, _, _ := strings.Cut(string(b), "\x00")
	return word
}

// agentAt starts an agent whose proxy is that command.
func (p *place) agentAt(path string, args ...string) *agent {
	p.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(p.t.Context()), path, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = p.env, p.project, 5*time.Second
	return p.agentOf(cmd)
}

// replace puts the file at from in the place of the installed file of that name, as a whole.
func (p *place) replace(from, name string) {
	p.t.Helper()
	to := filepath.Join(filepath.Dir(p.bin()), name)
	err := os.MkdirAll(filepath.Dir(to), 0o700)
	if err == nil {
		err = os.Link(from, to+".new")
	}
	if err == nil {
		err = os.Rename(to+".new", to)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestProxyIsSmall checks that `holdline mcp-stdio` becomes the holdline-stdio beside it if that
// is of the same build, and does the work itself otherwise. Either way the process stays, and
// the daemon that it starts is the program by the path that the agent has called.
func TestProxyIsSmall(t *testing.T) {
	t.Parallel()
	whole, small := filepath.Join(programs, pair.Whole), filepath.Join(programs, pair.Small)
	put := func(text string, mode os.FileMode) func(*testing.T, *place, string) {
		return func(t *testing.T, _ *place, at string) {
			t.Helper()
			if err := os.WriteFile(at, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	beside := func(_ *testing.T, p *place, _ string) { p.replace(small, pair.Small) }
	for name, c := range map[string]struct {
		put    func(t *testing.T, p *place, at string) // puts what is at the path of holdline-stdio
		called string                                  // name under which the agent starts the proxy; "" is holdline
		linked bool                                    // the agent calls a link that lies elsewhere
		args   []string
		image  string // of the proxy
	}{
		"beside":                {put: beside, args: []string{pair.Command}, image: pair.Small},
		"through a link":        {put: beside, linked: true, args: []string{pair.Command}, image: pair.Small},
		"by its own name":       {put: beside, called: pair.Small, image: pair.Small},
		"by its name, in words": {put: beside, called: pair.Small, args: []string{pair.Command}, image: pair.Small},
		"missing":               {args: []string{pair.Command}, image: pair.Whole},
		"no program":            {put: put("garbage", 0o700), args: []string{pair.Command}, image: pair.Whole},
		"of another build": {
			put: func(t *testing.T, p *place, _ string) {
				t.Helper()
				p.replace(filepath.Join(filepath.Dir(build(t, older)), pair.Small), pair.Small)
			},
			args: []string{pair.Command}, image: pair.Whole,
		},
		"a directory": {
			put:  func(_ *testing.T, p *place, at string) { p.makeDir(at) },
			args: []string{pair.Command}, image: pair.Whole,
		},
		"not executable": {
			put: func(t *testing.T, _ *place, at string) {
				t.Helper()
				if err := errors.Join(copyFile(small, at), os.Chmod(at, 0o600)); err != nil {
					t.Fatal(err)
				}
			},
			args: []string{pair.Command}, image: pair.Whole,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.replace(whole, pair.Whole)
			dir := filepath.Dir(p.bin())
			if c.put != nil {
				c.put(t, p, filepath.Join(dir, pair.Small))
			}
			called, daemon := p.bin(), p.bin()
			if c.called != "" {
				called = filepath.Join(dir, c.called)
			}
			if c.linked {
				called = filepath.Join(p.project, pair.Whole)
				daemon = called
				if err := os.Symlink(p.bin(), called); err != nil {
					t.Fatal(err)
				}
			}
			a := p.agentAt(called, c.args...).shake()
			if got := imageOf(t, a.cmd.Process.Pid); got != c.image {
				t.Errorf("the proxy is %s, want %s", got, c.image)
			}
			if got := calledAs(t, p.pid(0)); got != daemon {
				t.Errorf("the daemon was started as %s, want %s", got, daemon)
			}
			a.leave()
		})
	}
}

// TestWorkerIsSmall checks that the worker of a server and that of a consult run the
// holdline-stdio beside holdline, that holdline itself starts their children, and that neither
// is left with more than it needs. Without holdline-stdio the workers run holdline.
func TestWorkerIsSmall(t *testing.T) {
	t.Parallel()
	for _, image := range []string{pair.Small, pair.Whole} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.replace(filepath.Join(programs, pair.Whole), pair.Whole)
			if image == pair.Small {
				p.replace(filepath.Join(programs, pair.Small), pair.Small)
			}
			p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
			a := p.agentAt(p.bin(), pair.Command).shake()
			a.call("consult", map[string]any{"prompt": hang()})
			children := map[string]string{"server": "toolserver", "consult": pair.Whole}
			s := p.until("two children", func(s control.StatusAnswer) bool {
				ready := 0
				for _, w := range s.Workers {
					if w.State == "ready" && w.ChildPID > 0 && imageOf(t, w.ChildPID) == children[w.Kind] {
						ready++
					}
				}
				return ready == 2
			})
			for _, w := range s.Workers {
				if got := imageOf(t, w.PID); got != image {
					t.Errorf("the worker of %s runs %s, want %s", w.Name, got, image)
				}
				for _, pid := range []int{w.PID, w.ChildPID} {
					open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
					for _, fd := range open {
						if to, _ := os.Readlink(fd); to == p.bin() {
							t.Errorf("process %d of %s has %s open as %s", pid, w.Name, to, fd)
						}
					}
				}
				environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", w.ChildPID))
				if err != nil || strings.Contains(string(environ), pair.EnvWhole) {
					t.Errorf("the child of %s: %v, environment %q", w.Name, err, environ)
				}
			}
			a.leave()
		})
	}
}

// makeDir makes a directory.
func (p *place) makeDir(path string) {
	p.t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		p.t.Fatal(err)
	}
}

// TestSmallHasItsOwnWay checks that holdline-stdio, started by its own name, leaves help and
// --direct to holdline, and refuses a wrong flag as holdline does.
func TestSmallHasItsOwnWay(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "project"})})
	for _, args := range [][]string{{"--help"}, {"--direct", "nope"}, {"--nonsense"}, {"--drain", "soon"}} {
		out, errs, code := p.run("", append([]string{pair.Command}, args...)...)
		p.exe = filepath.Join(programs, pair.Small)
		if o, e, c := p.run("", args...); o != out || e != errs || c != code {
			t.Errorf("%q: holdline-stdio exits with %d\n%s%s\nholdline with %d\n%s%s", args, c, o, e, code, out, errs)
		}
		p.exe = ""
	}
	a := p.agentAt(filepath.Join(programs, pair.Small), "--direct", "tools").shake()
	if x := a.wait(a.call("effect", map[string]any{"token": "once"})); x.text() != "once" {
		t.Errorf("effect: %s", x.raw)
	}
	a.leave()
}

// TestUpgradeOfBothFiles replaces the two files one after the other, in either order. An agent
// that starts in between works, with a proxy of one build with its daemon's program. The proxy
// from before outlives everything, and starts the newer daemon when its own is killed.
func TestUpgradeOfBothFiles(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{pair.Whole, pair.Small}, {pair.Small, pair.Whole}} {
		t.Run(order[0]+" first", func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			from := func(v, name string) { p.replace(filepath.Join(filepath.Dir(build(t, v)), name), name) }
			from(older, pair.Whole)
			from(older, pair.Small)
			works := func(a *agent, image string) {
				t.Helper()
				if got := imageOf(t, a.cmd.Process.Pid); got != image {
					t.Errorf("the proxy is %s, want %s", got, image)
				}
				x := a.ask("tools/call", map[string]any{"name": "health_snapshot"})
				if x.Result.IsError || x.Error != nil {
					t.Errorf("health = %s", x.raw)
				}
			}
			before := p.installed().shake()
			works(before, pair.Small)
			from(newer, order[0])
			between := p.installed().shake()
			works(between, pair.Whole)
			from(newer, order[1])
			after := p.installed().shake()
			works(after, pair.Small)
			if out, errs, code := p.run("", "upgrade"); code != 0 || !strings.Contains(out, newer) {
				t.Errorf("upgrade: exit %d, %s%s", code, out, errs)
			}
			works(before, pair.Small)
			daemon := p.pid(0)
			kill9(t, daemon)
			works(before, pair.Small)
			p.until("the next daemon", func(s control.StatusAnswer) bool {
				return s.Daemon.PID != daemon && s.Daemon.Version == newer
			})
			for _, a := range []*agent{before, between, after} {
				works(a, imageOf(t, a.cmd.Process.Pid))
				a.leave()
			}
		})
	}
}

// TestInstallOfBothFiles installs a link to one version, and then copies of both programs of
// another. The proxy is the small one each time, doctor says so, and uninstall removes all.
func TestInstallOfBothFiles(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	bin := filepath.Join(p.dir, "home/.local/bin")
	for _, c := range []struct {
		version, flag string
		small         func(bin string) string // returns where holdline-stdio is
	}{
		{older, "--link", func(string) string { return filepath.Dir(build(t, older)) }},
		{newer, "--copy", func(bin string) string { return bin }},
	} {
		p.exe = build(t, c.version)
		p.must("install", c.flag)
		p.exe = filepath.Join(bin, pair.Whole)
		a := p.agentAt(p.exe, pair.Command).shake()
		if got := imageOf(t, a.cmd.Process.Pid); got != pair.Small {
			t.Errorf("%s: the proxy is %s", c.flag, got)
		}
		if got := calledAs(t, p.pid(0)); got != p.exe {
			t.Errorf("%s: the daemon was started as %s", c.flag, got)
		}
		want := "ok       holdline-stdio: " + filepath.Join(c.small(bin), pair.Small)
		if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, want) {
			t.Errorf("%s: doctor:\n%s", c.flag, out)
		}
		a.leave()
	}
	if err := os.Remove(filepath.Join(bin, pair.Small)); err != nil {
		t.Fatal(err)
	}
	if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, "note     holdline-stdio: ") {
		t.Errorf("doctor without the small program:\n%s", out)
	}
	p.exe = build(t, newer)
	p.must("install", "--bin")
	p.must("uninstall")
	if left, err := os.ReadDir(bin); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v, %v", left, err)
	}
}
