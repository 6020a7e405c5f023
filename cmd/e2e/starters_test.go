package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/programtest"
)

// starts counts the daemons that proxies of this place start from now on, whether they come to
// serve or leave the socket to another, and the login shells that daemons ask.
func (p *place) starts(t *testing.T) (daemons, shells func() int) {
	t.Helper()
	daemonLog, shellLog := filepath.Join(p.dir, "daemons"), filepath.Join(p.dir, "shells")
	p.testVariable(countStarts + "=" + daemonLog)
	shell := filepath.Join(p.dir, "shell")
	text := fmt.Sprintf("#!/bin/sh\ncase $2 in -i) ;; *) echo login >> %s ;; esac\nexec /bin/sh \"$@\"\n", shellLog)
	programtest.Write(t, shell, text)
	p.env = append(without(p.env, "SHELL"), "SHELL="+shell)
	lines := func(path string) func() int {
		return func() int {
			b, err := os.ReadFile(path)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			return strings.Count(string(b), "\n")
		}
	}
	return lines(daemonLog), lines(shellLog)
}

// countStarts is the variable with the path of a file to which each daemon adds a line when it
// starts.
const countStarts = "HOLDLINE_TEST_STARTS"

// countStart adds that line.
func countStart() {
	path := os.Getenv(countStarts)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		panic(err)
	}
}

// TestManySessionsAfterKill checks that the sessions of a killed daemon share one start of the next
// one, and that no more than one login shell is asked.
func TestManySessionsAfterKill(t *testing.T) {
	t.Parallel()
	const sessions = 30
	p := newPlace(t)
	daemons, shells := p.starts(t)
	agents := make([]*agent, sessions)
	for i := range agents {
		agents[i] = p.agent()
	}
	for _, a := range agents {
		a.shake()
	}
	for range 2 {
		pid, before, asked := p.pid(0), daemons(), shells()
		begin := time.Now()
		kill9(t, pid)
		ids := make([]int, sessions)
		for i, a := range agents {
			ids[i] = a.begin("ping", map[string]any{})
		}
		for i, a := range agents {
			a.wait(ids[i])
		}
		waitFor(t, "the login shell was asked", func() bool { return shells() > asked })
		// A start that takes longer than a second, on a busy machine, is taken for one that hangs; and one of the
		// kill before may come to be counted only now.
		most := 4 + int(time.Since(begin)/time.Second)
		if n := daemons() - before; n > most {
			t.Errorf("%d daemons after a kill, want at most %d", n, most)
		}
		if n := shells() - asked; n > 1 {
			t.Errorf("%d login shells after a kill, want at most 1", n)
		}
	}
}
