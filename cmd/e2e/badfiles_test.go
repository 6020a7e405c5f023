package e2e

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// badThings are what another program can put in the place of a file. victim is a file
// elsewhere that a symbolic link then points to.
var badThings = map[string]func(path, victim string) error{
	"a named pipe": func(path, _ string) error {
		return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600))
	},
	linkToVictim: func(path, victim string) error {
		return errors.Join(os.Rename(path, victim), os.Symlink(victim, path))
	},
	hugeFile: func(path, _ string) error { return os.Truncate(path, 6<<30) },
}

const (
	linkToVictim = "a link"
	hugeFile     = "6 GiB of nothing"
)

// spoil replaces the file at path with something else. At the end of the test the victim's
// content must be unchanged.
func spoil(t *testing.T, path, what string) {
	t.Helper()
	victim := filepath.Join(t.TempDir(), "victim")
	if err := badThings[what](path, victim); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) }) // the test's own cleanup would block on it
	if what != linkToVictim {
		return
	}
	before, err := os.ReadFile(victim)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if after, err := os.ReadFile(victim); err != nil || !bytes.Equal(before, after) {
			t.Errorf("what the link leads to has changed from %.300q to %.300q, %v", before, after, err)
		}
	})
}

// stateFiles returns one file of each kind in the state and runtime directories of a place,
// by its path within the place.
func (p *place) stateFiles(t *testing.T) []string {
	t.Helper()
	kinds := map[string]string{}
	// The parts in which the paths of files of one kind differ.
	ids := regexp.MustCompile(`/(stools-[0-9a-f]+|[0-9a-f]{12}|[0-9]+)(/|$)`)
	for _, dir := range []string{p.stateRoot(), filepath.Join(p.dir, "run")} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				rel := strings.TrimPrefix(path, p.dir+"/")
				kinds[ids.ReplaceAllString(rel, "/ID$2")] = rel
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var files []string
	for _, file := range kinds {
		files = append(files, file)
	}
	slices.Sort(files)
	return files
}

// worn returns a place with all files that a daemon can leave: the daemon was killed and,
// if workers is true, so were its workers.
func worn(t *testing.T, workers bool) (*place, *agent) {
	t.Helper()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	p.untilReady("tools")
	a.wait(a.call("consult", p.slow(0)))
	a.call("consult", p.hangs())
	p.untilSteps(3)
	a.effect("x", int(time.Hour.Milliseconds()))
	p.untilEffect("begin x")
	p.run("", "install", "--path")
	var workerPIDs []int
	if workers {
		for _, w := range p.status().Workers {
			workerPIDs = append(workerPIDs, w.PID)
		}
	}
	kill9(t, d.Process.Pid)
	for _, pid := range workerPIDs {
		kill9(t, pid)
	}
	return p, a
}

// TestBadFiles replaces each file of the state and runtime directories with each of
// badThings. The daemon serves, or exits and names the file. It never hangs, reads without
// end, or writes to where a link points.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	old, a := worn(t, true)
	_ = a.cmd.Process.Kill()
	for _, file := range old.stateFiles(t) {
		for what := range badThings {
			t.Run(strings.ReplaceAll(file, "/", ":")+" is "+what, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				for _, dir := range []string{"home", "run"} {
					copyTree(t, filepath.Join(old.dir, dir), filepath.Join(p.dir, dir))
				}
				p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
				path := filepath.Join(p.dir, file)
				spoil(t, path, what)
				// No daemon may serve then: all processes must find the same lock.
				if filepath.Base(file) == "daemon.lock" && what != hugeFile {
					if log := p.failsToStart(t); !strings.Contains(log, path+" is a") {
						t.Errorf("a daemon that cannot take its lock says: %s", log)
					}
					return
				}
				p.daemon()
				a := p.agent().shake()
				if x := a.wait(a.effect("y", 0)); x.Error != nil || x.Result.IsError {
					t.Errorf("a call: %s", x.raw)
				}
				if strings.Contains(file, "/consult") {
					if x := a.wait(a.call("consult", p.slow(0))); x.Error != nil || x.Result.IsError {
						t.Errorf("a consult: %s", x.raw)
					}
				}
				a.rest()
				p.must("servers", "logs", "tools")
			})
		}
	}
}

// TestBadFilesOfLiveWorker does the same with the files of a living worker. Its call ends,
// too, and is not made twice.
func TestBadFilesOfLiveWorker(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"calls.jsonl", "spec.json", "state.json", "server.json", "lists.json", "lock", "stderr.log", "worker.log",
	} {
		for what := range badThings {
			t.Run(name+" is "+what, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
				d := p.daemon()
				a := p.agent("--no-autostart").shake()
				worker := p.workerOf(p.untilReady("tools"))
				running := a.effect("x", 1000)
				p.untilEffect("begin x")
				a.wait(a.call("tools__noise", map[string]any{"token": "n"}))
				var found []string
				waitFor(t, name+" of the worker", func() bool {
					found, _ = filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*", name))
					if len(found) != 1 || name != "stderr.log" {
						return len(found) == 1
					}
					info, err := os.Stat(found[0]) // it is made before the first line is written
					return err == nil && info.Size() > 0
				})
				kill9(t, d.Process.Pid)
				spoil(t, found[0], what)
				// A worker that cannot be adopted ends by itself, but later.
				t.Cleanup(func() { _ = syscall.Kill(worker, syscall.SIGKILL) })
				p.daemon()
				x := a.wait(running)
				if code := x.code(); x.Error != nil || code != "" && code != "outcome_unknown" ||
					p.effectsOf("begin x") != 1 {
					t.Errorf("the call that was running began %d times: %s", p.effectsOf("begin x"), x.raw)
				}
				if y := a.wait(a.effect("y", 0)); y.Error != nil || y.Result.IsError {
					t.Errorf("a call afterwards: %s", y.raw)
				}
				a.rest()
			})
		}
	}
}

// copyTree copies directories and regular files.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dest := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case e.IsDir():
			return os.MkdirAll(dest, 0o700)
		case e.Type().IsRegular():
			return copyFile(path, dest)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// failsToStart starts a daemon that must exit by itself, and returns its output.
func (p *place) failsToStart(t *testing.T) string {
	t.Helper()
	var log strings.Builder
	cmd := p.command("daemon")
	cmd.Stdout, cmd.Stderr = io.Discard, &log
	if err := cmd.Run(); err == nil {
		t.Errorf("the daemon started")
	}
	return log.String()
}
