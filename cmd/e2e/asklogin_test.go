package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/daemon/login/logintest"
)

// urlMode are the capabilities of a client that shows addresses to its person.
var urlMode = map[string]any{"elicitation": map[string]any{"url": map[string]any{}}}

// shakeURL makes the handshake of such a client.
func (a *agent) shakeURL() *agent {
	a.t.Helper()
	a.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": urlMode,
		"clientInfo": map[string]string{"name": "test", "version": "1"},
	})
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

// offered is what an agent is asked instead of getting an answer.
type offered struct {
	id, url, state string
	again          map[string]any // members of the modern request that repeats the call, but for the action
}

// secret makes sure that the address is the start address of a login on this machine, and returns
// what of it nobody else may see.
func (o *offered) secret(t *testing.T) string {
	t.Helper()
	at, secret, ok := strings.Cut(o.url, "/start/")
	if !ok || !strings.HasPrefix(at, "http://127.0.0.1:") || len(secret) < 43 {
		t.Fatalf("the address is %q", o.url)
	}
	return secret
}

// open opens the address in a browser, and logs in.
func (o *offered) open(t *testing.T) {
	t.Helper()
	if code := browserMain(o.url); code != 0 {
		t.Errorf("the browser fails at %s", o.url)
	}
}

// offer returns what the failure of a legacy client's call offers.
func (a *agent) offer(x answer) offered {
	a.t.Helper()
	var data struct {
		Elicitations []struct{ Mode, ElicitationID, URL, Message string }
		Fault        struct{ Code, Detail string }
		Cause        struct{ Reason string }
	}
	if x.Error == nil || x.Error.Code != -32042 {
		a.t.Fatalf("nothing is asked: %s", x.raw)
	}
	decode(a.t, string(x.Error.Data), &data)
	if len(data.Elicitations) != 1 || data.Elicitations[0].Mode != "url" || data.Elicitations[0].ElicitationID == "" ||
		!strings.Contains(data.Elicitations[0].Message, "far") || data.Fault.Code != "unauthenticated" ||
		data.Cause.Reason != "not_logged_in" || x.Error.Message != data.Fault.Detail {
		a.t.Fatalf("the call fails with %s", x.raw)
	}
	return offered{id: data.Elicitations[0].ElicitationID, url: data.Elicitations[0].URL}
}

// modernEcho begins a call of far's tool by a modern client with these capabilities. more are members of its params.
func (a *agent) modernEcho(capabilities, more map[string]any) int {
	a.t.Helper()
	params := modernly(map[string]any{"name": "far__echo", "arguments": map[string]any{}},
		"io.modelcontextprotocol/clientCapabilities", capabilities)
	maps.Copy(params, more)
	return a.begin("tools/call", params)
}

// requiredURL returns what the answer to a modern client's call offers.
func (a *agent) requiredURL(id int) offered {
	a.t.Helper()
	x := a.wait(id)
	var m struct {
		Result struct {
			ResultType    string
			RequestState  string
			InputRequests map[string]struct {
				Method string
				Params map[string]string
			}
		}
	}
	decode(a.t, x.raw, &m)
	if m.Result.ResultType != "input_required" || len(m.Result.InputRequests) != 1 ||
		!strings.HasPrefix(m.Result.RequestState, "login:") || x.Error != nil {
		a.t.Fatalf("nothing is asked: %s", x.raw)
	}
	for key, r := range m.Result.InputRequests {
		if _, ok := r.Params["elicitationId"]; ok || r.Method != "elicitation/create" || r.Params["mode"] != "url" ||
			!strings.Contains(r.Params["message"], "far") {
			a.t.Fatalf("the call is answered with %s", x.raw)
		}
		return offered{url: r.Params["url"], state: m.Result.RequestState, again: map[string]any{
			"requestState": m.Result.RequestState, "inputResponses": map[string]any{key: nil},
		}}
	}
	return offered{}
}

// with returns the members of the request that repeats the call after the person has done that.
func (o *offered) with(action string) map[string]any {
	responses := o.again["inputResponses"].(map[string]any)
	for key := range responses {
		responses[key] = map[string]any{"action": action}
	}
	return o.again
}

// loginProcesses returns the processes that wait for a person to log in.
func (p *place) loginProcesses() (pids []int) {
	for pid, cmd := range p.processes() {
		if strings.Contains(cmd, " login far") && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// lockedAt is [locked] with a port for logins of its own.
func lockedAt(t *testing.T, o logintest.Options) (*place, *logintest.Server) {
	t.Helper()
	p, s := locked(t, o)
	p.loginPort(t)
	return p, s
}

// TestLegacyClientIsAskedToLogIn checks that clients of 2025-11-25 which show addresses get that of
// one login in place of the fault, and hear when somebody has logged in; that their calls work then;
// that a client which shows none gets the fault as ever; and that nobody else sees the address.
func TestLegacyClientIsAskedToLogIn(t *testing.T) {
	t.Parallel()
	p, s := lockedAt(t, logintest.Options{Life: time.Hour})
	a, b, plain := p.agent().shakeURL(), p.agent().shakeURL(), p.agent().shake()
	wantLogin(t, plain.echo())
	asked := a.offer(a.echo())
	secret := asked.secret(t)
	if other := b.offer(b.echo()); other.url != asked.url || len(p.loginProcesses()) != 1 {
		t.Errorf("two agents get %s and %s, of the processes %v", asked.url, other.url, p.loginProcesses())
	}
	if again := a.offer(a.echo()); again.url != asked.url || again.id != asked.id {
		t.Errorf("the next call gets %s after %s", again.url, asked.url)
	}
	wantLogin(t, plain.echo())
	status := p.must("status", "--json") + p.must("servers", "--json")
	log, err := os.ReadFile(filepath.Join(p.dir, "home/.local/state/holdline/logs/daemon.log"))
	if err != nil || strings.Contains(status+string(log)+fmt.Sprint(p.processes()), secret) {
		t.Errorf("the address is in a status, the log or an argument (%v)", err)
	}
	asked.open(t)
	for _, one := range []*agent{a, b} {
		for line := one.read(); !strings.Contains(line, asked.id); line = one.read() {
			if strings.Contains(line, `"id"`) {
				t.Fatalf("no word of the login before %s", line)
			}
		}
		if x := one.echo(); !strings.Contains(x.text(), "done") {
			t.Errorf("a call after the login: %s", x.raw)
		}
	}
	x := plain.begin("tools/call", map[string]any{"name": "far__echo", "arguments": map[string]any{}})
	for line := plain.read(); !strings.Contains(line, fmt.Sprintf(`"id":%d,`, x)); line = plain.read() {
		if strings.Contains(line, "elicitation") {
			t.Errorf("the client that shows no addresses gets %s", line)
		}
	}
	waitFor(t, "the end of the login", func() bool { return len(p.loginProcesses()) == 0 })
	if n := len(s.Registrations()); n != 1 {
		t.Errorf("%d registrations", n)
	}
	p.leaks(".json") // of the store
	a.rest()
	b.rest()
	plain.rest()
}

// TestModernClientIsAskedToLogIn checks that a call of a client of 2026-07-28 which shows addresses asks
// for a login and goes on after it, that it fails as ever after a refusal, and that a client which
// shows none gets the fault.
func TestModernClientIsAskedToLogIn(t *testing.T) {
	t.Parallel()
	p, s := lockedAt(t, logintest.Options{Life: time.Hour})
	m := p.agent()
	form := map[string]any{"elicitation": map[string]any{"form": map[string]any{}}}
	for _, capabilities := range []map[string]any{{}, form} {
		wantLogin(t, m.wait(m.modernEcho(capabilities, nil)))
	}
	if pids := p.loginProcesses(); len(pids) > 0 {
		t.Errorf("logins are under way for nobody: %v", pids)
	}
	for _, action := range []string{"decline", "cancel"} {
		asked := m.requiredURL(m.modernEcho(urlMode, nil))
		wantLogin(t, m.wait(m.modernEcho(urlMode, asked.with(action))))
	}
	asked := m.requiredURL(m.modernEcho(urlMode, nil))
	asked.secret(t)
	waiting := m.modernEcho(urlMode, asked.with("accept"))
	wantLogin(t, m.wait(m.modernEcho(form, nil))) // so the other call waits
	asked.open(t)
	if x := m.wait(waiting); !strings.Contains(x.text(), "done") {
		t.Errorf("the call that waits for the login: %s", x.raw)
	}
	if x := m.wait(m.modernEcho(urlMode, nil)); !strings.Contains(x.text(), "done") || s.Calls() != 2 {
		t.Errorf("a call after the login: %s, of %d", x.raw, s.Calls())
	}

	// A login elsewhere serves as well, and a logout ends what is under way.
	p.must("servers", "logout", "far")
	asked = m.requiredURL(m.modernEcho(urlMode, nil))
	pids := p.loginProcesses()
	p.must("servers", "logout", "far")
	waitFor(t, "the end of the login", func() bool { return len(p.loginProcesses()) == 0 })
	wantLogin(t, m.wait(m.modernEcho(urlMode, asked.with("accept"))))
	next := m.requiredURL(m.modernEcho(urlMode, nil))
	if next.url == asked.url || next.state == asked.state {
		t.Errorf("after the end of %v the address is %s again", pids, next.url)
	}
	waiting = m.modernEcho(urlMode, next.with("accept"))
	p.withBrowser().must("servers", "login", "far")
	if x := m.wait(waiting); !strings.Contains(x.text(), "done") {
		t.Errorf("the call that waits, after a login elsewhere: %s", x.raw)
	}
	waitFor(t, "the end of the login", func() bool { return len(p.loginProcesses()) == 0 })
	m.rest()
}

// TestKilledDaemonEndsLogin kills the daemon while a call waits for its person to log in: the login
// ends, and the call asks again.
func TestKilledDaemonEndsLogin(t *testing.T) {
	t.Parallel()
	p, _ := lockedAt(t, logintest.Options{Life: time.Hour})
	m, a := p.agent(), p.agent().shakeURL()
	asked := m.requiredURL(m.modernEcho(urlMode, nil))
	a.offer(a.echo())
	waiting := m.modernEcho(urlMode, asked.with("accept"))
	before := p.loginProcesses()
	kill9(t, p.pid(0))
	waitFor(t, "the end of the login", func() bool { return len(before) == 1 && !alive(before[0]) })
	next := m.requiredURL(waiting)
	if other := a.offer(a.echo()); other.url != next.url || next.url == asked.url {
		t.Errorf("the agents get %s and %s after %s", next.url, other.url, asked.url)
	}
	waiting = m.modernEcho(urlMode, next.with("accept"))
	next.open(t)
	if x := m.wait(waiting); !strings.Contains(x.text(), "done") {
		t.Errorf("the call after the login: %s", x.raw)
	}
	m.rest()
	a.rest()
}

// TestLoginThatTakesTerminal checks that a client which shows addresses gets the fault of a server
// for whose login a person has to type something, and of one that it may not use.
func TestLoginThatTakesTerminal(t *testing.T) {
	t.Parallel()
	s := logintest.Start(t, logintest.Options{Metadata: map[string]any{"registration_endpoint": nil}})
	p := newPlace(t).login().configure(map[string]any{"far": map[string]any{"url": s.URL}},
		"identities", map[string]any{"confined": map[string]any{"deny": []string{"far__*"}}})
	p.loginPort(t)
	a, confined := p.agent().shakeURL(), p.agent("--identity", "confined").shakeURL()
	wantLogin(t, a.echo())
	asked := len(s.Paths())
	wantLogin(t, a.echo())
	if n := len(s.Paths()); n != asked {
		t.Errorf("the next call asks the server %d times", n-asked)
	}
	if x := confined.echo(); strings.Contains(x.raw, "-32042") || strings.Contains(x.raw, "not_logged_in") {
		t.Errorf("a call that is denied: %s", x.raw)
	}
	a.rest()
	confined.rest()
}
