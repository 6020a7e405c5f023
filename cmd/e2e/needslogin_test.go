package e2e

import (
	"strings"
	"testing"
	"time"

	"holdline/daemon/login"
	"holdline/daemon/login/logintest"
	"holdline/protocol/control"
)

// locked returns a place with a server by address, far, that wants a login.
func locked(t *testing.T, o logintest.Options) (*place, *logintest.Server) {
	t.Helper()
	s := logintest.Start(t, o)
	p := newPlace(t).login().configure(map[string]any{"far": map[string]any{"url": s.URL}})
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
// start nothing and count as no failure, and that a login is noticed by the next call.
func TestCallsWithoutLogin(t *testing.T) {
	t.Parallel()
	p, s := locked(t, logintest.Options{})
	a := p.agent().shake()
	wantLogin(t, a.echo()) // the daemon learns from the server that it wants a login
	starts, asked := p.status().Workers, len(s.Paths())
	var longest time.Duration
	for range 100 {
		begun := time.Now()
		wantLogin(t, a.echo())
		longest = max(longest, time.Since(begun))
	}
	far := p.server("far")
	if far.State != control.NeedsLogin || far.Ejected || far.Circuit != "closed" || far.Restarts != 0 || far.Active ||
		far.Login == nil || far.Login.State != login.StateNeeds || len(p.status().Workers) > len(starts) {
		t.Errorf("after 100 calls: %+v, login %+v", far, far.Login)
	}
	if n := len(s.Paths()); n != asked {
		t.Errorf("the server was asked %d times for 100 calls", n-asked)
	}
	if !raceEnabled && longest > time.Second { // it takes well below 1 ms; other tests run beside this one
		t.Errorf("a call took %v", longest)
	}
	s.LogIn(t, p.logins())
	if x := a.echo(); !strings.Contains(x.text(), "done") {
		t.Errorf("a call after the login: %s", x.raw)
	}
	if far := p.server("far"); far.State != "ready" || far.Login.State != login.StateIn || far.LastFault != nil {
		t.Errorf("after the login: %+v, login %+v", far, far.Login)
	}
	a.rest()
}
