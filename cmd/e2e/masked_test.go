package e2e

import (
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestAdoptedProcessMasked_EntryChanged checks that the output of a process is masked by
// the secrets that it was started with, even if the entry has other secrets when the next
// daemon adopts the process.
func TestAdoptedProcessMasked_EntryChanged(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-its-own"
	for _, killed := range []string{"server", "worker"} {
		p := newPlace(t).login()
		entry := p.toolsEntry(hosting{"scope": "shared"})
		entry["env"] = map[string]any{"API_TOKEN": secret}
		p.configure(map[string]any{"tools": entry})
		a := p.agent().shake()
		pid := p.pid(0)
		p.untilReady("tools")
		a.wait(a.call("tools__words", map[string]any{"token": "seen " + secret}))
		waitFor(t, "the words in the log", func() bool { return strings.Contains(p.must("logs", "tools"), "seen ***") })
		call := a.call("tools__hang", map[string]any{"token": "h"})
		p.untilEffect("begin h")
		server, worker := child(p.status(), "tools"), 0
		for _, w := range p.status().Workers {
			if w.Name == "tools" {
				worker = w.PID
			}
		}

		p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
		if killed == "worker" {
			kill9(t, worker)
		}
		kill9(t, pid)
		p.pid(pid)
		if killed == "server" {
			p.until("the old process is taken up", func(s control.StatusAnswer) bool {
				for _, w := range s.Workers {
					if w.PID == worker && w.State == "ready" {
						return true
					}
				}
				return false
			})
			waitFor(t, "the log of the process taken up", func() bool {
				out := p.must("logs", "tools")
				if strings.Contains(out, secret) {
					t.Errorf("the log of the process taken up:\n%s", out)
				}
				return strings.Contains(out, "seen ***")
			})
			kill9(t, server)
		}
		x := a.wait(call)
		if x.code() != "outcome_unknown" || strings.Contains(x.raw, secret) {
			t.Errorf("%s killed: the call's answer: %s", killed, x.raw)
		}
		for _, args := range [][]string{{"status"}, {"servers"}, {"logs", "tools"}, {"status", "--json"}} {
			if out, errs, _ := p.run("", args...); strings.Contains(out+errs, secret) {
				t.Errorf("%s killed: holdline %v shows the secret:\n%s%s", killed, args, out, errs)
			}
		}
		a.rest()
	}
}

// TestServersHideSecrets checks that no command shows secrets in arguments and addresses, nor a
// token that a server prints before it ends.
func TestServersHideSecrets(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const secret, short, said = "s3cret-in-full", "hunter2", "sk-0123456789ab"
	entry := p.toolsEntry(hosting{"scope": "shared"}, "--api-key", secret, "-p", short)
	p.configure(map[string]any{
		"tools": entry,
		"far": map[string]any{
			"url":      "https://me:" + secret + "@localhost:1/mcp?tok=" + short + "&token=" + secret,
			"holdline": hosting{"lazy": true},
		},
		"ends": map[string]any{
			"command": "sh", "args": []string{"-c", "echo bad key sk-'0123456789ab' >&2; exit 3"},
		},
	}).daemon()
	p.agent().shake()
	waitFor(t, "the quoted last words", func() bool { return strings.Contains(p.must("status"), "bad key ***") })
	for _, args := range [][]string{
		{"servers"},
		{"servers", "--json"},
		{"servers", "list"},
		{"servers", "list", "--json"},
		{"servers", "get", "tools"},
		{"servers", "get", "tools", "--json"},
		{"servers", "get", "far"},
		{"servers", "get", "far", "--json"},
		{"servers", "tools"},
		{"status"},
		{"status", "--json"},
		{"doctor"},
		{"config", "explain", "i", "far__x"},
		{"config", "get", "mcpServers"},
		{"config", "get", "mcpServers", "--json"},
		{"config", "get", "mcpServers.far"},
		{"logs", "tools"},
		{"logs", "ends"},
		{"servers", "test", "ends"},
	} {
		out, errs, _ := p.run("", args...)
		for _, one := range []string{secret, short, said} {
			if strings.Contains(out+errs, one) {
				t.Errorf("holdline %v:\n%s%s", args, out, errs)
			}
		}
		if args[0] == "servers" && len(args) > 1 && args[1] != "tools" && args[1] != "test" &&
			!strings.Contains(out, "***") {
			t.Errorf("holdline %v hides nothing:\n%s", args, out)
		}
	}
}
