package e2e

import (
	"strings"
	"testing"

	"holdline/daemon/login/logintest"
)

// TestServersRemove_AsksOnATerminal checks that a server and its entries stay after a no, and go after a yes.
func TestServersRemove_AsksOnATerminal(t *testing.T) {
	t.Parallel()
	p, _, _ := connected(t)
	p.env = append(p.env, "TERM=xterm", "COLUMNS=80")
	before := p.read(t, ".cursor/mcp.json")
	const asks = "Remove tools, and remove these entries? [Y/n] "
	for _, c := range []struct {
		types string
		code  int
	}{{"n\n", exitFailure}, {"\n", exitOK}} {
		if now := p.read(t, ".cursor/mcp.json"); now != before {
			t.Fatalf("Cursor has %s", now)
		}
		cmd := p.command("--color", "never", "servers", "remove", "tools")
		got := onTerminalAll(t, cmd, "", prompted{asks, typing(t, c.types)})
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(got, "2 entries start it: ") {
			t.Errorf("%q: exit %d\n%s", c.types, code, got)
		}
	}
	if now := p.read(t, ".cursor/mcp.json"); strings.Contains(now, "tools") {
		t.Errorf("Cursor has %s", now)
	}
}

// TestServersAdd_OffersTheLogin checks that a server which wants a login is added, and that its login is offered on
// a terminal.
func TestServersAdd_OffersTheLogin(t *testing.T) {
	t.Parallel()
	srv := logintest.Start(t, logintest.Options{})
	p := newPlace(t).login().withBrowser()
	p.loginPort(t)
	p.env = append(p.env, "TERM=xterm", "COLUMNS=80")
	for _, c := range []struct{ name, types, want string }{
		{"later", "n\n", "later needs a login: holdline servers login later"},
		{"now", "\n", "now: logged in"},
	} {
		cmd := p.command("--color", "never", "servers", "add", c.name, srv.URL)
		got := onTerminalAll(t, cmd, "", prompted{c.name + " needs a login. Log in now? [Y/n] ", typing(t, c.types)})
		if code := cmd.ProcessState.ExitCode(); code != exitOK || !strings.Contains(got, c.want) {
			t.Errorf("%s: exit %d\n%s", c.name, code, got)
		}
	}
}
