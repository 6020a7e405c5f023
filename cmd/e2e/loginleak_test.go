package e2e

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/daemon/login/logintest"
)

// marked is in all secrets that a stand-in issues.
const marked = "marked-secret"

// leaks fails the test for each file of the place, and each process, that has a marked secret. Files
// whose names end with one of the names are left out.
func (p *place) leaks(except ...string) {
	p.t.Helper()
	err := filepath.WalkDir(p.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // files come and go while the place lives
		}
		for _, name := range except {
			if strings.HasSuffix(path, name) {
				return nil
			}
		}
		if b, _ := os.ReadFile(path); strings.Contains(string(b), marked) {
			p.t.Errorf("%s has a secret: %.2000s", path, b)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for pid, cmd := range p.processes() {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if strings.Contains(cmd, marked) || strings.Contains(string(env), marked) {
			p.t.Errorf("process %d has a secret in its arguments or its environment: %s", pid, cmd)
		}
	}
}

// repeats has a token endpoint answer with an error that repeats what came.
func repeats(code string, status int) func(int, url.Values) *logintest.Reply {
	return func(_ int, form url.Values) *logintest.Reply {
		return &logintest.Reply{Status: status, Text: fmt.Sprintf(`{"error":%q,"error_description":"it was %s"}`, code,
			form.Get("refresh_token")+form.Get("client_secret")+form.Get("code")+form.Get("client_assertion"))}
	}
}

// TestLoginsDoNotLeak lets people and machines log in, renews, fails in several ways with a server that
// repeats tokens in its errors, and looks for secrets in all files, arguments and environments. A key
// command is configured in between: from the next renewal on no file of the store has a secret either.
// Without the key calls fail, and nothing is lost.
func TestLoginsDoNotLeak(t *testing.T) {
	t.Parallel()
	person, machine := logintest.Start(t, logintest.Options{Life: time.Hour}), logintest.Start(t, logintest.Options{Life: time.Hour})
	const id, secret = "build", "client-secret-" + marked
	machine.AddClient(id, secret)
	p := newPlace(t).login().withBrowser()
	key := filepath.Join(p.dir, "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("5a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.configure(map[string]any{"person": map[string]any{"url": person.URL}})
	p.loginPort(t)
	person.LogIn(t, p.logins())
	a := p.agent().shake()
	var seen strings.Builder
	call := func(server, want string) {
		t.Helper()
		x := a.wait(a.call(server+"__echo", map[string]any{}))
		seen.WriteString(x.raw)
		if !strings.Contains(x.raw, want) {
			t.Errorf("a call of %s: %s, want %q", server, x.raw, want)
		}
	}
	a.ask("tools/list", map[string]any{})
	before := p.untilReady("person")
	call("person", "done")
	for _, status := range []int{200, 400, 429, 500} {
		person.Set(func(o *logintest.Options) { o.Token = repeats("invalid_target", status) })
		person.Expire()
		call("person", "cannot be renewed at the moment")
		person.LogIn(t, p.logins())
	}
	out, errs, code := p.run("", "servers", "login", "person", "--force")
	if seen.WriteString(out + errs); code != exitFailure || !strings.Contains(errs, "refuses to give out a token") {
		t.Errorf("a login whose code is refused: exit %d, %s%s", code, out, errs)
	}
	person.Set(func(o *logintest.Options) { o.Token = nil })
	seen.WriteString(p.must("servers", "login", "person", "--force"))
	call("person", "done")
	p.leaks(".json") // of the store, which is not sealed

	p.configure(map[string]any{
		"person": map[string]any{"url": person.URL},
		"machine": map[string]any{"url": machine.URL, "oauth": map[string]any{
			"clientId": id, "clientSecret": "${BUILD_SECRET}", "grant": "client_credentials",
		}},
	}, "logins", map[string]any{"key_command": []string{
		"/bin/sh", "-c", `[ -z "$HOLDLINE_REMOTE" ] || exit 1; exec /bin/cat "$0"`, key,
	}})
	variables := filepath.Join(p.dir, "home/.config/holdline/env")
	if err := os.WriteFile(variables, []byte("BUILD_SECRET="+secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := p.run("", "reload"); code != exitOK {
		t.Fatalf("reload: %d\n%s%s", code, out, errs)
	}
	waitFor(t, "a process with the key", func() bool { return p.untilReady("person") != before })
	a.ask("tools/list", map[string]any{})
	p.untilReady("machine")
	call("person", "done")
	call("machine", "done")
	person.Expire()
	machine.Expire()
	call("person", "done")
	call("machine", "done")
	if forms := machine.Forms(); len(forms) != 2 || forms[0].Get("grant_type") != "client_credentials" ||
		forms[0].Get("resource") != machine.URL {
		t.Errorf("the machine asked for %v", forms)
	}
	p.leaks(variables)

	// Without the key a new process cannot read the login.
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	p.run("", "servers", "restart", "person")
	call("person", "not_logged_in")
	if err := os.Rename(key+".away", key); err != nil {
		t.Fatal(err)
	}
	p.run("", "servers", "restart", "person")
	call("person", "done")

	for _, srv := range []*logintest.Server{person, machine} {
		srv.Set(func(o *logintest.Options) { o.Token = repeats("invalid_grant", 400) })
		srv.Expire()
	}
	call("person", "not_logged_in")
	call("machine", "rejected")
	for _, args := range [][]string{
		{"status"}, {"status", "--json"}, {"servers"}, {"servers", "--json"}, {"doctor"}, {"config", "explain"}, {"logs"},
	} {
		out, errs, _ := p.look(args...)
		seen.WriteString(out + errs)
	}
	if i := strings.Index(seen.String(), marked); i >= 0 {
		t.Errorf("an answer or a command shows a secret: %.300s", seen.String()[max(0, i-200):])
	}
	p.leaks(variables)
	a.rest()
}
