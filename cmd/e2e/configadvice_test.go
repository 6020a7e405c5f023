package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestConfigAdvice checks that config check names the identities under which no client has
// connected, and the rules that match no name, and nothing else.
func TestConfigAdvice(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	servers := map[string]any{
		"tools": p.toolsEntry(hosting{
			"scope": "shared", "deny": []string{"efect", "look", "delete_*", "mem://nothing/*"},
			"contract": map[string]any{"loook": "convergent"},
		}, "-resources", "told"),
		"unlisted": p.toolsEntry(hosting{"scope": "shared", "lazy": true, "deny": []string{"anything"}}),
	}
	identities := map[string]any{
		"codexx": map[string]any{"deny": []string{"consult"}},
		"connected": map[string]any{"deny": []string{
			"tools__effect", "tools__efffect", "unlisted__x", "un*", "nobody__x",
		}},
		"caller":    map[string]any{"allow": []string{"consultt", "tools__*"}},
		"codex":     map[string]any{},
		"anonymous": map[string]any{},
		"nightly":   map[string]any{"deny": []string{"*"}},
	}
	p.configure(servers, "identities", identities).daemon()
	a := p.agent("--identity", "connected").shake()
	p.untilReady("tools")
	b := p.agent("--identity", "caller").shake()
	b.wait(b.call("tools__look", map[string]any{"token": "x"}))
	b.rest()
	waitFor(t, "the server's list and the call are kept", func() bool {
		log, _ := os.ReadFile(filepath.Join(p.dir, "home/.local/state/holdline/telemetry.jsonl"))
		_, err := os.Stat(filepath.Join(p.dir, "home/.local/state/holdline/catalog/tools.json"))
		return err == nil && strings.Contains(string(log), `"caller"`)
	})
	out, errs, code := p.run("", "config", "check")
	if code != 0 || !strings.HasSuffix(out, "config.json: ok\n") {
		t.Errorf("exit %d, %q", code, out)
	}
	want := []string{
		`holdline: identities.caller.allow: "consultt" names nothing that there is (is it "consult"?)`,
		`holdline: identities.codexx: no client is known by that name (is it "codex"?): it holds if one connects with --identity codexx`,
		`holdline: identities.connected.deny: "nobody__x" names nothing that there is`,
		`holdline: identities.connected.deny: "tools__efffect" names nothing that there is (is it "tools__effect"?)`,
		`holdline: identities.nightly: no client is known by that name: it holds if one connects with --identity nightly`,
		`holdline: mcpServers.tools.holdline.contract: "loook" names nothing that there is (is it "look"?)`,
		`holdline: mcpServers.tools.holdline.deny: "delete_*" names nothing that there is`,
		`holdline: mcpServers.tools.holdline.deny: "efect" names nothing that there is (is it "effect"?)`,
	}
	got := strings.Split(strings.TrimSpace(errs), "\n")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("warnings:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	// A client with another name of its own has one identity, and no other is suggested.
	identities = map[string]any{"codex-mcp-client": map[string]any{"deny": []string{"consult"}}}
	p.configure(servers, "identities", identities)
	if _, errs, code := p.run("", "config", "check"); code != 1 ||
		!strings.Contains(errs, `identities.codex-mcp-client: this client is called "codex" here`) {
		t.Errorf("another name of a client: exit %d, %s", code, errs)
	}
	a.rest()
}

// TestIdentityOfKnownClients checks that the rules of a well-known client apply to it
// whatever name it introduces itself by, and however it got its identity.
func TestIdentityOfKnownClients(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{}, "identities", map[string]any{
		"codex": map[string]any{"deny": []string{"health_snapshot"}}, "cursor": map[string]any{"token": "of cursor"},
	}).daemon()
	for client, want := range map[string]string{
		"codex-mcp-client": "codex", "Codex": "codex", "claude-code": "claude-code",
		"gemini-cli-mcp-client-holdline": "gemini", "cursor-vscode": "unverified:cursor", "something": "something",
	} {
		a := p.agent()
		a.ask("initialize", map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
			"clientInfo": map[string]string{"name": client, "version": "1"},
		})
		a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		x := a.wait(a.call("health_snapshot", nil))
		if denied := x.code() == "denied"; denied != (want == "codex") {
			t.Errorf("%s: %s", client, x.raw)
		}
		if s := p.status().Sessions; len(s) != 1 || s[0].Identity != want || !strings.HasPrefix(s[0].Client, client) {
			t.Errorf("%s: %+v, want identity %s", client, s, want)
		}
		a.rest()
		p.until("the session is over", func(s control.StatusAnswer) bool { return len(s.Sessions) == 0 })
	}
	a := p.agent("--identity", "codex-mcp-client").shake()
	if x := a.wait(a.call("health_snapshot", nil)); x.code() != "denied" {
		t.Errorf("--identity codex-mcp-client: %s", x.raw)
	}
	a.rest()
}
