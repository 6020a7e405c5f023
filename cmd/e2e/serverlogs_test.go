package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestServerWithoutProcess_LogIsThatOfItsLastOne checks that the log of a server that was stopped, is
// disabled, or whose daemon was killed or stopped is what its last process wrote, without its
// secrets, and that nothing is left of it once the server is removed.
func TestServerWithoutProcess_LogIsThatOfItsLastOne(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-value"
	p := newPlace(t)
	entry := p.toolsEntry(hosting{"scope": "shared", "lazy": true})
	entry["env"] = map[string]string{"KEY": secret}
	d := p.configure(map[string]any{"tools": entry}).daemon()
	a := p.agent().shake()
	if x := a.wait(a.call("tools__words", map[string]any{"token": "its last words, " + secret})); x.Result.IsError {
		t.Fatalf("words: %s", x.raw)
	}
	kept := func(when, hint string) {
		t.Helper()
		out, errs, code := p.run("", "logs", "tools")
		if code != 0 || !strings.Contains(out, "toolserver: its last words, ***\n") || strings.Contains(out, secret) ||
			!strings.Contains(errs, hint) {
			t.Errorf("%s: exit %d\n%s%s", when, code, out, errs)
		}
		if out, _, _ := p.run("", "logs", "tools", "--since", "1h"); !strings.Contains(out, "its last words") {
			t.Errorf("%s: since an hour ago:\n%s", when, out)
		}
		if out, _, _ := p.run("", "logs", "tools", "--since", "2099-01-01"); out != "" {
			t.Errorf("%s: since a time to come:\n%s", when, out)
		}
	}
	p.must("servers", "stop", "tools")
	kept("stopped", "no process of server tools runs; to start one: holdline servers start tools")
	kill9(t, d.Process.Pid)
	a.rest()
	p.daemon()
	kept("the daemon was killed", "holdline servers start tools")
	p.must("servers", "disable", "tools")
	kept("disabled", "holdline servers enable tools")
	p.must("stop")
	kept("no daemon runs", "no daemon runs")
	p.daemon()
	p.must("servers", "remove", "tools")
	p.must("reload")
	left, err := filepath.Glob(filepath.Join(p.stateRoot(), "servers", "*.log"))
	if err != nil || len(left) > 0 {
		t.Errorf("of a removed server is left: %v, %v", left, err)
	}
}

// TestLogsOfAllServers checks that the logs of all servers are shown together, each line with its
// server, at once and followed, and that a wrong time is refused.
func TestLogsOfAllServers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"one": p.toolsEntry(hosting{"scope": "shared"}), "second": p.toolsEntry(hosting{"scope": "shared"}),
	}).daemon()
	if out, errs, code := p.run("", "logs", "--all"); code != 0 || out != "" || !strings.Contains(errs, "no server has a log yet") {
		t.Errorf("without a process: exit %d, %q, %q", code, out, errs)
	}
	a := p.agent().shake()
	p.untilReady("one")
	p.untilReady("second")
	followed := p.command("logs", "-f", "--all")
	out := new(words)
	followed.Stdout = out
	if err := followed.Start(); err != nil {
		t.Fatal(err)
	}
	a.wait(a.call("one__words", map[string]any{"token": "of one"}))
	a.wait(a.call("second__words", map[string]any{"token": "of two"}))
	const first, second = "one    | toolserver: of one\n", "second | toolserver: of two\n"
	for _, args := range [][]string{
		{"logs", "--all"}, {"servers", "logs"}, {"logs", "--all", "--since", "10m"}, {"logs", "-a", "-n", "1"},
	} {
		waitFor(t, strings.Join(args, " "), func() bool {
			out := p.must(args...)
			return strings.Count(out, first) == 1 && strings.Count(out, second) == 1
		})
	}
	followedLine := func(line string) bool { return regexp.MustCompile(`(?m)^` + line + `$`).MatchString(out.String()) }
	waitFor(t, "both in the log that is followed", func() bool {
		return followedLine(`one +\| toolserver: of one`) && followedLine(`second \| toolserver: of two`)
	})
	_ = followed.Process.Signal(os.Interrupt)
	if err := followed.Wait(); err != nil {
		t.Errorf("logs -f --all ended with %v", err)
	}
	for _, args := range [][]string{
		{"logs", "one", "--all"}, {"logs", "--since", "soon"}, {"servers", "logs", "one", "--since", "-1m"},
	} {
		if _, _, code := p.run("", args...); code != 2 {
			t.Errorf("%v: exit %d, want 2", args, code)
		}
	}
	a.rest()
}
