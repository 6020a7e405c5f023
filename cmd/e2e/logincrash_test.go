package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/remote"
	"holdline/daemon/login"
	"holdline/daemon/login/logintest"
)

// Rules of renewals. TestBrokenRule_IsNoticed in package login breaks them.
const (
	brokenLoginLock  = "login.lock"   // one process at a time renews a login
	brokenLoginRead  = "login.reread" // it looks first whether another one has
	brokenLoginStore = "login.store"  // a new token is stored before it is used
	brokenLoginMark  = "login.mark"   // a refresh token is marked before it is sent
)

// loginCrashes are the deaths of a process that renews a login, in the order of a renewal.
var loginCrashes = []crash{
	{point: "login.locked"},
	{point: "file.durable.half"},           // of what the server asks for
	{point: "file.durable.half", times: 2}, // of the mark
	{point: "login.marked"},                // the server has seen nothing yet
	{point: "login.sent"},                  // the server has handled it
	{point: "login.answered"},              // and the answer was read
	{point: "file.durable.half", times: 3}, // of the successor
	{point: "login.stored"},
	{point: "login.released"},
}

// rotations are those of which each death is tested.
var rotations = map[string]logintest.Rotation{
	"strict": logintest.Strict, "graceful": logintest.Graceful, "none": logintest.Fixed,
}

// spent reports whether the process dies between the server's answer and the store, so that
// nobody has the successor of its refresh token.
func (c crash) spent() bool {
	return c.point == "login.sent" || c.point == "login.answered" || c.times == 3
}

// logins returns the store of the place's logins.
func (p *place) logins() *login.Store {
	return login.Open(filepath.Join(p.dir, "home/.local/state/holdline/logins"), nil)
}

// remoteCall has a process holdline remote of its own make a call, and returns its answer, or ""
// if the process died.
func (p *place) remoteCall(srv *logintest.Server, target string) string {
	p.t.Helper()
	cmd := p.command("remote")
	at := remote.Target{Name: "sentry", URL: srv.URL, Login: &remote.LoginAt{Dir: p.logins().Dir(), Target: target}}
	cmd.Env = append(slices.Clone(p.env), remote.EnvTarget+"="+at.Encode())
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	_, _ = io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`+"\n")
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = in.Close()
	_ = cmd.Wait()
	return line
}

// TestCrashesOfLogin kills a process at each point of a renewal. The next process goes on: the
// login is there in all cases but one, in which the server has given out a refresh token that
// died with the process, and takes the old one for stolen.
func TestCrashesOfLogin(t *testing.T) {
	t.Parallel()
	for name, rotation := range rotations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range loginCrashes {
				t.Run(c.String(), func(t *testing.T) {
					t.Parallel()
					srv := logintest.Start(t, logintest.Options{Rotation: rotation, Life: time.Hour})
					p := newPlace(t).faults()
					target := srv.LogIn(t, p.logins())
					srv.Watch(p.logins().Dir())
					srv.Expire()
					p.dieAt(c.point, max(1, c.times))
					first := p.remoteCall(srv, target)
					if !p.died(c.point) || first != "" && c.point != "login.released" && c.point != "login.stored" {
						t.Fatalf("died: %v, and answered %q", p.died(c.point), first)
					}
					lost := c.spent() && rotation == logintest.Strict
					answer := p.remoteCall(srv, target)
					switch {
					case lost && (!strings.Contains(answer, `"not_logged_in"`) ||
						!strings.Contains(answer, "the answer to a renewal was lost")):
						t.Errorf("the next process: %s, want it to say that the login is lost", answer)
					case !lost && !strings.Contains(answer, `"done"`):
						t.Errorf("the next process: %s", answer)
					}
					for _, wrong := range srv.Wrong() {
						t.Error(wrong)
					}
					want := 1
					if c.spent() {
						want = 2
					}
					if all, most := srv.Renewals(); all != want || most != want {
						t.Errorf("%d renewals, one token %d times, want %d", all, most, want)
					}
				})
			}
		})
	}
}

// TestLoginOutlivesDaemon holds a renewal at a point, kills the daemon, and lets the renewal go on:
// the call is answered, and the token was spent once. Then it kills the worker at the same point: the
// next call is answered, unless a strict server's refresh token died with the process.
func TestLoginOutlivesDaemon(t *testing.T) {
	t.Parallel()
	for name, rotation := range rotations {
		for _, c := range loginCrashes {
			if os.Getenv("HOLDLINE_LONG") == "" && rotation != logintest.Strict && c.point != "login.sent" {
				continue
			}
			t.Run(c.String()+" "+name, func(t *testing.T) {
				t.Parallel()
				c.outlive(t, rotation)
			})
		}
	}
}

// outlive makes the daemon die while a renewal is held at the point, and the worker during the next one.
func (c crash) outlive(t *testing.T, rotation logintest.Rotation) {
	t.Helper()
	srv := logintest.Start(t, logintest.Options{Rotation: rotation, Life: time.Hour})
	p := newPlace(t).login().faults().configure(map[string]any{"sentry": map[string]any{"url": srv.URL}})
	target := srv.LogIn(t, p.logins())
	srv.Watch(p.logins().Dir())
	a := p.agent().shake()
	a.ask("tools/list", map[string]any{})
	child := p.untilReady("sentry")

	srv.Expire()
	d := death{times: max(1, c.times), who: "remote", held: true}
	p.dieAs(c.point, d)
	id := a.call("sentry__echo", map[string]any{})
	waitFor(t, "the renewal", func() bool { return p.died(c.point) })
	kill9(t, p.pid(0))
	p.letGo(c.point)
	if x := a.wait(id); x.Error != nil || x.Result.IsError || x.text() != "done" {
		t.Errorf("the call during which the daemon died: %s", x.raw)
	}
	if all, most := srv.Renewals(); all != 1 || most != 1 || srv.Calls() != 1 {
		t.Errorf("%d renewals, one token %d times, %d calls", all, most, srv.Calls())
	}

	for _, name := range []string{faultReached, faultLetGo} {
		_ = os.Remove(filepath.Join(p.dir, faultDir, c.point+name))
	}
	var known login.Target
	if err := p.logins().Update(t.Context(), target, &known, func() error {
		known.Challenge = login.Challenge{} // so that the next one is written, too
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	srv.Expire()
	d.times *= 2 // the process goes on counting
	p.dieAs(c.point, d)
	id = a.call("sentry__echo", map[string]any{})
	waitFor(t, "the second renewal", func() bool { return p.died(c.point) })
	kill9(t, p.workerOf(child))
	waitFor(t, "the end of the child", func() bool { return !alive(child) })
	p.letGo(c.point)
	a.wait(id) // its outcome is not known
	x := a.wait(a.call("sentry__echo", map[string]any{}))
	lost := c.spent() && rotation == logintest.Strict
	if lost != strings.Contains(x.raw, "the answer to a renewal was lost") || lost == (x.text() == "done") {
		t.Errorf("the call after the worker has died: %s", x.raw)
	}
	for _, wrong := range srv.Wrong() {
		t.Error(wrong)
	}
	a.rest(id)
}

// TestStopDuringRenewal_CostsNoLogin ends all workers, with and without a daemon, while a strict
// server takes its time with a renewal, longer than other processes are given. The login is there
// afterwards.
func TestStopDuringRenewal_CostsNoLogin(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]time.Duration{"daemon": 2300 * time.Millisecond, "no daemon": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, answer := make(chan struct{}, 9), make(chan struct{})
			srv := logintest.Start(t, logintest.Options{Life: time.Hour, Token: func(int, url.Values) *logintest.Reply {
				asked <- struct{}{}
				return &logintest.Reply{Handle: true, Wait: answer}
			}})
			p := newPlace(t).login().configure(map[string]any{"sentry": map[string]any{"url": srv.URL}})
			srv.LogIn(t, p.logins())
			a := p.agent().shake()
			a.ask("tools/list", map[string]any{})
			child := p.untilReady("sentry")
			srv.Expire()
			a.call("sentry__echo", map[string]any{})
			<-asked
			if name == "no daemon" {
				a.leave()
				kill9(t, p.pid(0))
			}
			time.AfterFunc(slow, func() { close(answer) })
			if out, errs, code := p.run("", "stop", "--all"); code != exitOK {
				t.Errorf("stop: %d\n%s%s", code, out, errs)
			}
			if alive(child) {
				t.Error("the child still runs after the stop")
			}
			if answer := p.remoteCall(srv, login.TargetID(srv.URL, "", "", "")); !strings.Contains(answer, `"done"`) {
				t.Errorf("after the stop: %s", answer)
			}
			if all, most := srv.Renewals(); all != 1 || most != 1 {
				t.Errorf("%d renewals, one token %d times", all, most)
			}
		})
	}
}

// TestLostProxyOrReboot_CostsNoLogin kills the proxy whose call renews, or everything as a reboot does,
// while the server takes its time. The next agent's call works.
func TestLostProxyOrReboot_CostsNoLogin(t *testing.T) {
	t.Parallel()
	for name, rotation := range map[string]logintest.Rotation{"proxy": logintest.Strict, "reboot": logintest.Graceful} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, answer := make(chan struct{}, 9), make(chan struct{})
			srv := logintest.Start(t, logintest.Options{Rotation: rotation, Life: time.Hour, Token: func(int, url.Values) *logintest.Reply {
				asked <- struct{}{}
				return &logintest.Reply{Handle: true, Wait: answer}
			}})
			p := newPlace(t).login().configure(map[string]any{"far": map[string]any{"url": srv.URL}})
			srv.LogIn(t, p.logins())
			srv.Watch(p.logins().Dir())
			a := p.agent().shake()
			a.ask("tools/list", map[string]any{})
			p.untilReady("far")
			srv.Expire()
			a.call("far__echo", map[string]any{})
			<-asked
			kill9(t, a.cmd.Process.Pid)
			if name == "reboot" {
				for pid := range p.processes() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				p.untilEmpty(t)
				p.reboot(t, 0)
			}
			close(answer)
			b := p.agent().shake()
			if x := b.echo(); x.text() != "done" {
				t.Errorf("the next agent's call: %s", x.raw)
			}
			want := map[string]int{"proxy": 1, "reboot": 2}[name]
			if all, most := srv.Renewals(); all != want || most != want {
				t.Errorf("%d renewals, one token %d times, want %d", all, most, want)
			}
			for _, wrong := range srv.Wrong() {
				t.Error(wrong)
			}
			b.rest()
		})
	}
}

// loginRounds is how often all tokens of TestManyAgents_OneRenewal run out, without and with HOLDLINE_LONG=1.
const loginRounds, manyLoginRounds = 8, 50

// TestManyAgents_OneRenewal lets five agents call six servers of one address, of each scope two,
// while their common token has run out, under strict rotation. Each round costs one renewal and no
// call fails, also if the daemon is killed or upgraded or a caller cancels meanwhile.
func TestManyAgents_OneRenewal(t *testing.T) {
	t.Parallel()
	srv := logintest.Start(t, logintest.Options{Rotation: logintest.Strict, Life: time.Hour})
	servers, names := map[string]any{}, []string{}
	for _, scope := range []string{"project", "session", "shared"} {
		for _, n := range []string{"one", "two"} {
			name := scope + "-" + n
			names = append(names, name)
			servers[name] = map[string]any{"url": srv.URL, "holdline": map[string]any{"scope": scope}}
		}
	}
	p := newPlace(t).login().configure(servers)
	program, err := os.ReadFile(filepath.Join(programs, "holdline"))
	if err != nil {
		t.Fatal(err)
	}
	p.install(program, 0o700)
	p.exe = p.bin()
	srv.LogIn(t, p.logins())
	srv.Watch(p.logins().Dir())
	var agents []*agent
	for range 5 {
		agents = append(agents, p.installed().shake())
	}
	call := func(round int) {
		var calls sync.WaitGroup
		for i, a := range agents {
			calls.Go(func() {
				var ids []int
				for _, name := range names {
					ids = append(ids, a.call(name+"__echo", map[string]any{}))
				}
				if cancelled := a.call(names[0]+"__echo", map[string]any{}); i == round%len(agents) {
					a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, cancelled))
				} else {
					ids = append(ids, cancelled)
				}
				for id, x := range a.waitAll(ids...) {
					if x.Error != nil || x.Result.IsError || x.text() != "done" {
						t.Errorf("round %d, agent %d, call %d: %s", round, i, id, x.raw)
					}
				}
			})
		}
		switch round % 4 {
		case 1:
			_ = syscall.Kill(p.pid(0), syscall.SIGKILL)
		case 3:
			p.install(program, 0o700) // another file, which the daemon takes for another program
			if out, errs, code := p.run("", "upgrade"); code != exitOK {
				t.Errorf("upgrade: %d\n%s%s", code, out, errs)
			}
		}
		calls.Wait()
	}
	call(0) // starts all servers
	rounds := loginRounds
	if os.Getenv("HOLDLINE_LONG") != "" {
		rounds = manyLoginRounds
	}
	for round := 1; round <= rounds && !t.Failed(); round++ {
		srv.Expire()
		call(round)
		if all, most := srv.Renewals(); all != round || most != 1 {
			t.Fatalf("%d renewals in %d rounds, one token %d times", all, round, most)
		}
	}
	for _, wrong := range srv.Wrong() {
		t.Error(wrong)
	}
}

// TestHundredAgents_OneRenewal lets a hundred agents call at the same time, by a process of the server for
// each of them and by one for all, while their common token has run out, under strict rotation.
func TestHundredAgents_OneRenewal(t *testing.T) {
	if os.Getenv("HOLDLINE_LONG") == "" {
		t.Skip("HOLDLINE_LONG=1 is not set: it starts three hundred processes")
	}
	t.Parallel()
	srv := logintest.Start(t, logintest.Options{Rotation: logintest.Strict, Life: time.Hour})
	p := newPlace(t).login().configure(map[string]any{
		"each": map[string]any{"url": srv.URL, "holdline": map[string]any{"scope": "session"}},
		"all":  map[string]any{"url": srv.URL, "holdline": map[string]any{"scope": "shared"}},
	})
	srv.LogIn(t, p.logins())
	srv.Watch(p.logins().Dir())
	var agents []*agent
	for range 100 {
		agents = append(agents, p.agent().shake())
	}
	for _, a := range agents {
		a.wait(a.call("each__echo", map[string]any{}))
	}
	if n := p.server("each").Processes; n != len(agents) {
		t.Fatalf("%d processes for %d agents", n, len(agents))
	}
	srv.Expire()
	var calls sync.WaitGroup
	for i, a := range agents {
		calls.Go(func() {
			for id, x := range a.waitAll(a.call("each__echo", map[string]any{}), a.call("all__echo", map[string]any{})) {
				if x.text() != "done" {
					t.Errorf("agent %d, call %d: %s", i, id, x.raw)
				}
			}
		})
	}
	calls.Wait()
	if all, most := srv.Renewals(); all != 1 || most != 1 || len(srv.Wrong()) > 0 {
		t.Errorf("%d renewals, one token %d times, %q", all, most, srv.Wrong())
	}
}
