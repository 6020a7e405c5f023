package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestSecretByCommand checks a server whose secrets commands print. Each start runs a command once,
// the server gets the secrets, and nothing shows or stores them, also for the daemon that adopts
// the server. While the command fails, calls say why, the server is not given up for it, and the
// call after that serves.
func TestSecretByCommand(t *testing.T) {
	t.Parallel()
	const secret = "Tr0ub4dor-and-3"
	p := newPlace(t).login()
	runs, vault := filepath.Join(p.dir, "runs"), filepath.Join(p.dir, "vault")
	read := p.script("vault-read", fmt.Sprintf(
		"#!/bin/sh\necho run >>%s\ncat %s || { echo 'the vault is locked' >&2; exit 7; }\n",
		runs, vault))
	ran := func() int {
		b, _ := os.ReadFile(runs)
		return strings.Count(string(b), "run\n")
	}
	unlock := func() {
		t.Helper()
		if err := os.WriteFile(vault, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unlock()
	entry := p.toolsEntry(hosting{"scope": "shared", "max_restarts": 1, "circuit_threshold": 1})
	argv := map[string]any{"command": []string{read, "op://work/token"}}
	entry["env"] = map[string]any{"API_TOKEN": argv, "HEADER": "Bearer ${cmd:vault}"}
	p.configure(map[string]any{"tools": entry}, "commands", map[string]any{"vault": argv, "idle": argv})
	a := p.agent().shake()
	daemon, server := p.pid(0), p.untilReady("tools")
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", server))
	if got := "\x00" + string(environ); err != nil || !strings.Contains(got, "\x00API_TOKEN="+secret+"\x00") ||
		!strings.Contains(got, "\x00HEADER=Bearer "+secret+"\x00") {
		t.Errorf("the server's environment, %v: %q", err, environ)
	}
	if n := ran(); n != 1 {
		t.Errorf("the command ran %d times for one start", n)
	}
	shown := func(when string) {
		t.Helper()
		a.wait(a.call("tools__words", map[string]any{"token": when + " " + secret}))
		waitFor(t, "the words in the log", func() bool {
			return strings.Contains(p.must("logs", "tools"), when+" ***")
		})
		for _, args := range [][]string{
			{"status"},
			{"status", "--json"},
			{"servers"},
			{"servers", "get", "tools"},
			{"servers", "get", "tools", "--json"},
			{"servers", "test", "tools"},
			{"logs", "tools"},
			{"config", "get", "mcpServers"},
			{"config", "check"},
			{"doctor"},
		} {
			if out, errs, _ := p.run("", args...); strings.Contains(out+errs, secret) {
				t.Errorf("%s: holdline %v shows the secret:\n%s%s", when, args, out, errs)
			}
		}
		for pid, cmdline := range p.processes() {
			if strings.Contains(cmdline, secret) {
				t.Errorf("%s: the arguments of %d have the secret: %s", when, pid, cmdline)
			}
		}
		err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || path == vault {
				return nil //nolint:nilerr // files go while the tree is walked
			}
			if b, _ := os.ReadFile(path); strings.Contains(string(b), secret) && !strings.HasSuffix(path, "/stderr.log") {
				t.Errorf("%s: %s has the secret", when, path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	shown("at first")
	tried := ran() // by servers test
	kill9(t, daemon)
	p.pid(daemon)
	if pid := p.untilReady("tools"); pid != server || ran() != tried {
		t.Errorf("the next daemon has process %d, was %d, and the command ran %d times, had %d", pid, server, ran(), tried)
	}
	shown("adopted")

	out := p.must("servers", "get", "tools")
	if !strings.Contains(out, "env.API_TOKEN: "+read+" op://work/token") {
		t.Errorf("servers get:\n%s", out)
	}
	if _, errs, _ := p.run("", "config", "check"); !strings.Contains(errs, "commands.idle: no server has") {
		t.Errorf("config check: %s", errs)
	}
	if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, "env.API_TOKEN of server tools") {
		t.Errorf("doctor:\n%s", out)
	}

	if err := os.Remove(vault); err != nil {
		t.Fatal(err)
	}
	kill9(t, server)
	const want = `mcpServers.tools.env.HEADER: the command vault-read failed: exit code 7, "the vault is locked"`
	p.until("the server's fault", func(s control.StatusAnswer) bool {
		return s.Servers[0].LastFault != nil && strings.Contains(s.Servers[0].LastFault.Fault.Detail, want)
	})
	before := ran()
	for range 3 {
		x := a.wait(a.call("tools__look", map[string]any{"token": "locked"}))
		if x.code() != "unauthenticated" || x.reason() != "secret_command" ||
			!strings.Contains(x.raw, "the vault is locked") {
			t.Errorf("a call while the vault is locked: %s", x.raw)
		}
		p.must("servers", "list")
		p.run("", "servers", "start", "tools") // ends the pause between starts
	}
	if ran() == before {
		t.Error("no call has run the command again")
	}
	if _, errs, code := p.run("", "servers", "test", "tools"); code == 0 ||
		!strings.Contains(errs, "the vault is locked") {
		t.Errorf("servers test while the vault is locked: exit %d: %s", code, errs)
	}
	unlock()
	if x := a.wait(a.call("tools__look", map[string]any{"token": "open"})); x.text() != "open" {
		t.Errorf("a call after the vault was unlocked: %s", x.raw)
	}
	a.rest()
}
