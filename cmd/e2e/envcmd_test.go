package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tellingServer returns the entry of a server that writes its variable TOKEN_A into a file when it starts, and then is
// toolserver. It does not start without the variable.
func (p *place) tellingServer(file string) map[string]any {
	script := fmt.Sprintf(`printf %%s "$TOKEN_A" >'%s'; [ -n "$TOKEN_A" ] && exec '%s' -ledger '%s'`,
		file, filepath.Join(programs, "toolserver"), p.effects())
	return map[string]any{"command": "sh", "args": []string{"-c", script}, "env": map[string]string{"TOKEN_A": "${TOKEN_A}"}}
}

// TestEnv_ServersHaveWhatIsKept keeps a variable, with the value of the shell and with one that is given. A server that
// is idle starts again with it; one with a call in flight does not, and is named. No value is ever shown.
func TestEnv_ServersHaveWhatIsKept(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	told := filepath.Join(p.dir, "told")
	entry := p.tellingServer(told)
	entry["holdline"] = hosting{"scope": "shared"}
	p.configure(map[string]any{"tools": entry})
	wants := func(value string) {
		t.Helper()
		if b, err := os.ReadFile(told); err != nil || string(b) != value {
			t.Errorf("the server has %q, %v, want %q", b, err, value)
		}
	}
	set := func(want string, args ...string) {
		t.Helper()
		out := p.must(append([]string{"env", "set"}, args...)...)
		if !strings.Contains(out, want) || strings.Contains(out, "value-") {
			t.Errorf("env set says\n%s\nwant %q", out, want)
		}
	}
	if out, errs, code := p.run("", "env", "set", "TOKEN_A"); code != exitFailure ||
		!strings.Contains(errs, "this shell has no variable TOKEN_A") {
		t.Errorf("without a value: exit %d\n%s%s", code, out, errs)
	}
	p.env = append(p.env, "TOKEN_A=value-1")
	set("TOKEN_A is used by servers tools", "TOKEN_A")
	path := filepath.Join(p.dir, "home/.config/holdline/env")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	p.env = without(p.env, "TOKEN_A")
	a := p.agent("--server", "tools").shake()
	if x := a.wait(a.call("effect", map[string]any{"token": "one"})); x.text() != "one" {
		t.Fatal(x.raw)
	}
	wants("value-1")
	id := a.call("hang", map[string]any{"token": "waits"})
	p.untilEffect("begin waits")
	set("tools has calls in flight and goes on with what it had", "TOKEN_A=value-2")
	wants("value-1")
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
	p.untilEffect("cancelled waits")
	if x := a.wait(a.call("effect", map[string]any{"token": "two"})); x.text() != "two" {
		t.Fatal(x.raw)
	}
	set("tools is started again", "TOKEN_A=value-3")
	if x := a.wait(a.call("effect", map[string]any{"token": "three"})); x.text() != "three" {
		t.Fatal(x.raw)
	}
	wants("value-3")
	a.leave()
	set("no server and no consult uses TOKEN_B yet", "TOKEN_B=value-b")
	set("consults with claude", "ANTHROPIC_BASE_URL=https://value-u.example")
	var list []struct {
		Name              string
		Servers, Consults []string
	}
	out := p.must("env", "list", "--json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 3 || strings.Contains(out, "value-") {
		t.Fatalf("env list: %v\n%s", err, out)
	}
	if !slices.Equal(list[1].Servers, []string{"tools"}) || !slices.Equal(list[0].Consults, []string{"claude"}) {
		t.Errorf("env list: %+v", list)
	}
	p.must("env", "unset", "TOKEN_B")
	if out := p.must("env"); strings.Contains(out, "TOKEN_B") || !strings.Contains(out, "TOKEN_A") {
		t.Errorf("env: %s", out)
	}
	for _, name := range []string{"TOKEN_B", "no name"} {
		if _, errs, code := p.run("", "env", "unset", name); code != exitFailure || !strings.Contains(errs, "env list") {
			t.Errorf("%q: exit %d: %s", name, code, errs)
		}
	}
	for arg, code := range map[string]int{"A B=c": exitUsage, "=x": exitUsage, "LD_PRELOAD=/x": exitFailure} {
		if _, errs, got := p.run("", "env", "set", arg); got != code {
			t.Errorf("env set %q: exit %d: %s", arg, got, errs)
		}
	}
}

// TestSetup_UnusableVariablesAreOneError checks that setup starts nothing if the file of variables can be read by
// others: it says so once, with the command that helps.
func TestSetup_UnusableVariablesAreOneError(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	told := filepath.Join(p.dir, "told")
	p.putHome(t, map[string]string{
		".claude.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{
			"a": p.tellingServer(told), "b": p.tellingServer(told + "2"),
		}}),
		".config/holdline/env": "TOKEN_A=secret\n",
	})
	path := filepath.Join(p.dir, "home/.config/holdline/env")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	before := p.home(t)
	for _, args := range [][]string{{"setup", "--yes"}, {"setup", "--dry-run"}, {"import", "--write"}} {
		out, errs, code := p.run("", args...)
		if code != exitFailure || strings.Count(out+errs, "chmod 600") != 1 || strings.Contains(out+errs, "secret\n") {
			t.Errorf("%q: exit %d\n%s%s", args, code, out, errs)
		}
	}
	p.sameHome(t, before)
	if _, err := os.Stat(told); err == nil {
		t.Error("a server was started")
	}
}

// TestSetup_NamesVariablesThatOnlyThisShellHas checks that setup without questions names the command that keeps such
// a variable, and that a default which stands in for one is in the plan.
func TestSetup_NamesVariablesThatOnlyThisShellHas(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	told := filepath.Join(p.dir, "told")
	entry := p.tellingServer(told)
	own := p.toolsEntry(nil)
	delete(own, "holdline")
	own["env"] = map[string]string{"MODE": "${MODE_A:-fast}"}
	p.putHome(t, map[string]string{
		".claude.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{"tells": entry, "modes": own}}),
	})
	p.env = append(p.env, "TOKEN_A=value-1")
	out, errs, code := p.run("", "setup", "--dry-run")
	flat := strings.Join(strings.Fields(out), " ")
	if code != exitOK || !strings.Contains(errs, "holdline env set TOKEN_A") || strings.Contains(out+errs, "value-1") ||
		!strings.Contains(flat, "modes lacks MODE_A, which is not set for the daemon: the default in its entry counts") ||
		!strings.Contains(flat, "stays tells Claude Code: it does not start: variable TOKEN_A is not set") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	p.must("env", "set", "TOKEN_A")
	out = p.must("setup", "--yes")
	if !strings.Contains(out, "2 servers moved") {
		t.Errorf("with the variable:\n%s", out)
	}
}

// TestConsult_GatewayWithoutAddressIsNamed checks that a consult whose program reaches its API by a host without an
// address fails at once with the name of the host, and that doctor names it, too.
func TestConsult_GatewayWithoutAddressIsNamed(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.must("env", "set", "ANTHROPIC_BASE_URL=http://gateway.invalid:8080/v1")
	p.daemon()
	if _, errs, code := p.run("", "consult", "hello"); code != exitFailure ||
		!strings.Contains(errs, "gateway.invalid") || !strings.Contains(errs, "ANTHROPIC_BASE_URL") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if out, _, _ := p.run("", "doctor"); !strings.Contains(out, "gateway.invalid") {
		t.Errorf("doctor:\n%s", out)
	}
	p.must("env", "unset", "ANTHROPIC_BASE_URL")
	p.must("consult", "hello")
}
