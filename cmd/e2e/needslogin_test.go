package e2e

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdline/daemon/login"
	"holdline/daemon/login/logintest"
	"holdline/protocol/control"
)

// locked returns a place with a remote server, far, that wants a login.
func locked(t *testing.T, o logintest.Options) (*place, *logintest.Server) {
	t.Helper()
	s := logintest.Start(t, o)
	p := newPlace(t).login().configure(map[string]any{"far": map[string]any{"url": s.URL}}, "identities", searcher())
	return p, s
}

// echo calls the tool of far.
func (a *agent) echo() answer {
	a.t.Helper()
	return a.wait(a.call("far__echo", map[string]any{}))
}

// wantLogin fails the test unless an answer says that far needs a login, and what helps.
func wantLogin(t *testing.T, x answer) {
	t.Helper()
	if x.code() != "unauthenticated" || !strings.Contains(x.raw, `"reason":"not_logged_in"`) ||
		!strings.Contains(x.text(), "the person at this machine runs: holdline servers login far") {
		t.Errorf("a call without a login: %s", x.raw)
	}
}

// TestCallsWithoutLogin checks that calls of a server that nobody has logged in to fail at once,
// start nothing and count as no failure, and that a login is noticed by the next call of each project.
func TestCallsWithoutLogin(t *testing.T) {
	t.Parallel()
	p, s := locked(t, logintest.Options{})
	const start = "launch.dirs" // of a process
	p.faults()
	other := filepath.Join(p.dir, "other")
	if err := os.MkdirAll(filepath.Join(other, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := p.command("mcp-stdio")
	cmd.Dir = other
	a, b := p.agent().shake(), p.agentOf(cmd).shake() // of two projects
	wantLogin(t, a.echo())                            // the daemon learns from the server that it wants a login
	wantLogin(t, b.echo())
	starts, asked := p.status().Workers, len(s.Paths())
	p.dieAt(start, 1)
	for range 100 {
		wantLogin(t, a.echo())
	}
	if p.died(start) {
		t.Error("a process was started for a call")
	}
	if err := os.Remove(filepath.Join(p.dir, faultDir, start)); err != nil {
		t.Fatal(err)
	}
	far := p.server("far")
	if far.State != control.NeedsLogin || far.Ejected || far.Circuit != "closed" || far.Restarts != 0 || far.Active ||
		far.Login == nil || far.Login.State != login.StateNeeds || len(p.status().Workers) > len(starts) {
		t.Errorf("after 100 calls: %+v, login %+v", far, far.Login)
	}
	if n := len(s.Paths()); n != asked {
		t.Errorf("the server was asked %d times for 100 calls", n-asked)
	}
	s.LogIn(t, p.logins())
	for _, one := range []*agent{a, b} {
		if x := one.echo(); !strings.Contains(x.text(), "done") {
			t.Errorf("a call after the login: %s", x.raw)
		}
	}
	if far := p.server("far"); far.State != "ready" || far.Login.State != login.StateIn || far.LastFault != nil {
		t.Errorf("after the login: %+v, login %+v", far, far.Login)
	}
	a.rest()
	b.rest()
}

// TestLoginIsShown checks where people and models read that a server needs a login: servers,
// status, doctor, health_snapshot, find_tools, and the instructions of a session of that server.
func TestLoginIsShown(t *testing.T) {
	t.Parallel()
	p, s := locked(t, logintest.Options{Life: time.Hour})
	a := p.agent().shake()
	wantLogin(t, a.echo())
	const fix = "holdline servers login far"
	shown := func(what, text, want string) {
		t.Helper()
		if !strings.Contains(text, want) {
			t.Errorf("%s: %s\nwant %s", what, text, want)
		}
	}
	tool := func(name string, args map[string]any) string { return a.wait(a.call(name, args)).text() }
	shown("servers", p.must("servers"), "far: needs a login: "+fix)
	_, errs, _ := p.run("", "servers", "test", "far")
	shown("servers test", errs, "far needs a login\nhint: "+fix+"\n")
	shown("servers --json", p.must("servers", "--json"), `"state": "needs_login"`)
	shown("status", p.must("status"), fix)
	doctor, _, code := p.run("", "doctor", "-v")
	if shown("doctor", doctor, fix); code != exitFailure {
		t.Errorf("doctor: exit %d", code)
	}
	shown("health_snapshot", tool("health_snapshot", map[string]any{"detail": "full"}), fix)
	search := p.agent("--identity", "s").shake()
	f := search.find(map[string]any{"query": "echo"})
	if len(f.Errors) != 1 || !strings.Contains(f.Errors[0].Error, fix) {
		t.Errorf("find_tools: %+v", f)
	}
	search.leave()
	only := p.agent("--server", "far")
	hello := only.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "x", "version": "1"},
	})
	shown("instructions", hello.raw, fix)
	only.leave()

	s.LogIn(t, p.logins(), "a")
	if x := a.echo(); !strings.Contains(x.text(), "done") {
		t.Errorf("a call after the login: %s", x.raw)
	}
	shown("servers", p.must("servers"), "far: logged in until ")
	shown("doctor", p.must("doctor", "--json"), `"login of far"`)
	shown("servers test", p.must("servers", "test", "far"), "far works: 1 tool")
	a.rest()
	p.must("stop")
	shown("servers without a daemon", p.must("servers"), "far: logged in until ")
}

// TestLogoutStopsCalls checks that calls fail at once after a logout, and that another person's
// login gets a process of its own.
func TestLogoutStopsCalls(t *testing.T) {
	t.Parallel()
	p, s := locked(t, logintest.Options{})
	s.LogIn(t, p.logins())
	a := p.agent().shake()
	if x := a.echo(); !strings.Contains(x.text(), "done") {
		t.Fatalf("a call with a login: %s", x.raw)
	}
	p.must("servers", "logout", "far")
	asked := s.Calls()
	wantLogin(t, a.echo())
	if far := p.server("far"); far.State != control.NeedsLogin || s.Calls() != asked {
		t.Errorf("after the logout: %+v", far)
	}
	a.rest()
}

// aged makes the last refusals of servers without a login older than the pause after which they are asked again.
func (p *place) aged(t *testing.T) {
	t.Helper()
	ids, err := p.logins().IDs(&login.Target{})
	if err != nil || len(ids) == 0 {
		t.Fatalf("targets: %q, %v", ids, err)
	}
	for _, id := range ids {
		var target login.Target
		if err := p.logins().Update(t.Context(), id, &target, func() error {
			target.Seen = target.Seen.Add(-2 * time.Minute)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestServerStopsAsking checks that a server that has wanted a login and wants none any more is used
// without one, whichever way it is asked again, and that one which still wants a login is asked once.
func TestServerStopsAsking(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(t *testing.T, p *place, s *logintest.Server){
		"call": func(t *testing.T, p *place, _ *logintest.Server) {
			t.Helper()
			p.aged(t)
		},
		"login": func(t *testing.T, p *place, _ *logintest.Server) {
			t.Helper()
			if out, errs, code := p.run("", "servers", "login", "far"); code != exitFailure ||
				!strings.Contains(errs, "far: it asks for no login, and has no metadata for one") {
				t.Errorf("servers login: exit %d, %s%s", code, out, errs)
			}
		},
		"restart": func(t *testing.T, p *place, _ *logintest.Server) {
			t.Helper()
			p.aged(t)
			p.must("servers", "restart", "far")
		},
		"daemon killed": func(t *testing.T, p *place, _ *logintest.Server) {
			t.Helper()
			p.aged(t)
			kill9(t, p.pid(0))
		},
		"address changed": func(t *testing.T, p *place, _ *logintest.Server) {
			t.Helper()
			other := logintest.Start(t, logintest.Options{Public: true})
			p.configure(map[string]any{"far": map[string]any{"url": other.URL}}, "identities", searcher())
			p.must("servers", "reload")
		},
		"logged out by another name": func(t *testing.T, p *place, s *logintest.Server) {
			t.Helper()
			s.LogIn(t, p.logins())
			ids, err := p.logins().IDs(&login.Login{})
			if err != nil || len(ids) != 1 || p.logins().Remove(t.Context(), ids[0], &login.Login{}) != nil {
				t.Fatalf("logins: %q, %v", ids, err)
			}
			p.aged(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := locked(t, logintest.Options{})
			s.LogIn(t, p.logins())
			a := p.agent().shake()
			if x := a.echo(); x.text() != "done" {
				t.Fatalf("a call with a login: %s", x.raw)
			}
			p.must("servers", "logout", "far")
			wantLogin(t, a.echo())
			p.aged(t)
			asked := len(s.Paths())
			wantLogin(t, a.echo())
			if n := len(s.Paths()) - asked; n == 0 {
				t.Error("the server is not asked again")
			}
			s.Set(func(o *logintest.Options) { o.Public = true })
			asked = len(s.Paths())
			wantLogin(t, a.echo()) // it was asked a moment ago
			if n := len(s.Paths()) - asked; n != 0 {
				t.Errorf("the server was asked %d times within the pause", n)
			}
			if far := p.server("far"); far.State != control.NeedsLogin {
				t.Errorf("before it is asked again: %+v", far)
			}
			ask(t, p, s)
			if x := a.echo(); x.text() != "done" {
				t.Errorf("a call of a server that wants no login: %s", x.raw)
			}
			if far := p.server("far"); far.State != "ready" || far.LastFault != nil || far.Login.State != login.StateNone {
				t.Errorf("after a call: %+v, login %+v", far, far.Login)
			}
			if out := p.must("servers"); strings.Contains(out, "far:") {
				t.Errorf("servers says %s", out)
			}
			a.rest()
		})
	}
}

// TestLostLoginOfServerThatStopsAsking checks that the way out of a login that does not work and that the
// server does not want any more is named.
func TestLostLoginOfServerThatStopsAsking(t *testing.T) {
	t.Parallel()
	p, s := locked(t, logintest.Options{})
	s.LogIn(t, p.logins())
	s.Revoke()
	a := p.agent().shake()
	wantLogin(t, a.echo())
	s.Set(func(o *logintest.Options) { o.Public = true })
	const want = "far: it asks for no login, and has no metadata for one\n" +
		"hint: to end the login that it had: holdline servers logout far\n"
	if out, errs, code := p.run("", "servers", "login", "far"); code != exitFailure || !strings.HasSuffix(errs, want) {
		t.Errorf("servers login: exit %d, %s%s", code, out, errs)
	}
	p.must("servers", "logout", "far")
	if x := a.echo(); x.text() != "done" {
		t.Errorf("a call after the logout: %s", x.raw)
	}
	a.rest()
}

// withAndWithoutLogin returns a place with one remote server under two names: far has a login, and
// header has a token in its configuration.
func withAndWithoutLogin(tb testing.TB) (*place, *logintest.Server) {
	tb.Helper()
	s := logintest.Start(tb, logintest.Options{Life: 24 * time.Hour})
	p := newPlace(tb).login().configure(map[string]any{
		"far": map[string]any{"url": s.URL},
		"header": map[string]any{"url": s.URL, "headers": map[string]any{
			"Authorization": "Bearer " + s.Issue().Access,
		}},
	})
	s.LogIn(tb, p.logins())
	return p, s
}

// TestCallWithLogin_IsOneRequest checks that a login adds no request to a call, neither to the server
// nor to its authorization server.
func TestCallWithLogin_IsOneRequest(t *testing.T) {
	t.Parallel()
	p, s := withAndWithoutLogin(t)
	a := p.agent().shake()
	for _, server := range []string{"header", "far"} {
		call := func() {
			t.Helper()
			if x := a.wait(a.call(server+"__echo", map[string]any{})); x.text() != "done" {
				t.Errorf("%s: %s", server, x.raw)
			}
		}
		call() // begins the session with the server, whose lists are asked for beside the first calls
		var paths []string
		waitFor(t, "20 calls with a request each", func() bool {
			before, calls := len(s.Paths()), s.Calls()
			for range 20 {
				call()
			}
			paths = slices.DeleteFunc(s.Paths()[before:], func(path string) bool { return path == "GET /mcp" }) // to listen
			return len(paths) == s.Calls()-calls
		})
		if slices.Sort(paths); len(paths) != 20 || len(slices.Compact(paths)) != 1 || paths[0] != "POST /mcp" {
			t.Errorf("%s: %d requests for 20 calls: %q", server, len(paths), paths)
		}
	}
	a.rest()
}

// TestLogoutNamesServersThatShareTheLogin checks that a logout says which other servers lose the login,
// and names none that has another one.
func TestLogoutNamesServersThatShareTheLogin(t *testing.T) {
	t.Parallel()
	s, other := logintest.Start(t, logintest.Options{}), logintest.Start(t, logintest.Options{})
	p := newPlace(t).login().withBrowser().configure(map[string]any{
		"far": map[string]any{"url": s.URL}, "twin": map[string]any{"url": s.URL},
		"kin":   map[string]any{"url": s.URL, "oauth": map[string]any{"issuer": s.Base}}, // with a target of its own
		"alien": map[string]any{"url": other.URL}, "program": map[string]any{"command": "x"},
	})
	p.loginPort(t)
	p.must("servers", "login", "alien")
	p.must("servers", "login", "far")
	if out := p.must("servers", "login", "kin"); !strings.HasPrefix(out, "kin: already logged in") {
		t.Fatalf("a server with the same login: %s", out)
	}
	const back = ": logged out; the authorization server has taken its tokens back\n"
	if out, want := p.must("servers", "logout", "far"), "far"+back+
		"kin: logged out as well, since it had the same login; to log in again: holdline servers login kin\n"+
		"twin: logged out as well, since it had the same login; to log in again: holdline servers login twin\n"; out != want {
		t.Errorf("servers logout says %s\nwant %s", out, want)
	}
	if out := p.must("servers", "logout", "alien"); out != "alien"+back {
		t.Errorf("the logout of a server with a login of its own says %s", out)
	}
	p.must("servers", "login", "kin")
	if out := p.must("servers", "logout", "--url", s.URL); !strings.Contains(out, "kin: logged out as well") {
		t.Errorf("servers logout --url says %s", out)
	}
}

// TestLoginCannotBeRenewed_EachCallSaysWhy lets the gateway before the authorization server answer 502 while the
// login has run out. The server is neither ejected nor left alone, also if its process has to be started
// meanwhile: each call says what the gateway answers. The login is there again by itself afterwards.
func TestLoginCannotBeRenewed_EachCallSaysWhy(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	p, s := locked(t, logintest.Options{Life: time.Hour, Token: func(int, url.Values) *logintest.Reply {
		if down.Load() {
			return &logintest.Reply{Status: http.StatusBadGateway, Text: "<html>the gateway is upset</html>"}
		}
		return nil
	}})
	s.LogIn(t, p.logins())
	a := p.agent().shake()
	if x := a.echo(); !strings.Contains(x.text(), "done") {
		t.Fatalf("a call before: %s", x.raw)
	}
	const restarts = 5 // so many failed starts eject a server
	for _, started := range []bool{false, true} {
		down.Store(true)
		s.Expire()
		if started {
			_, _, _ = p.run("", "servers", "restart", "far") // its start fails
		}
		for range restarts + 2 {
			if text := a.echo().text(); !strings.Contains(text, "the gateway is upset") ||
				!strings.Contains(text, "cannot be renewed at the moment") {
				t.Errorf("started anew: %t, a call says: %s", started, text)
			}
		}
		if far := p.server("far"); far.Ejected || far.Circuit != "closed" || far.Restarts != 0 {
			t.Errorf("started anew: %t, %+v", started, far)
		}
		down.Store(false)
		waitFor(t, "the login is renewed", func() bool { return strings.Contains(a.echo().text(), "done") })
	}
	a.rest()
}
