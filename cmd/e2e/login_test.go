package e2e

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/login/logintest"
)

// browserMain is a browser without a screen: it opens an address, follows all redirects with
// cookies, sends each form that it comes to, in the name of ada, and presses the first button of a page
// without a form.
func browserMain(address string) int {
	jar, _ := cookiejar.New(nil) // it never fails
	c := &http.Client{Jar: jar, Timeout: 30 * time.Second}
	resp, err := c.Get(address)
	action := regexp.MustCompile(`<form[^>]* action="([^"]+)"`)
	button := regexp.MustCompile(`<button onclick="location\.href='([^']+)'"`)
	input, pair := regexp.MustCompile(`<input[^>]*>`), regexp.MustCompile(`\b(name|value)="([^"]*)"`)
	for forms := 0; err == nil; forms++ {
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		form, press := bytes.Contains(text, []byte("<form")), button.FindSubmatch(text)
		if !form && press == nil || forms > 4 {
			return 0
		}
		to, fields := resp.Request.URL, url.Values{}
		if !form {
			if to, err = to.Parse(html.UnescapeString(string(press[1]))); err == nil {
				resp, err = c.Get(to.String())
			}
			continue
		}
		if at := action.FindSubmatch(text); at != nil {
			if to, err = to.Parse(html.UnescapeString(string(at[1]))); err != nil {
				break
			}
		}
		for _, field := range input.FindAllString(string(text), -1) {
			has := map[string]string{}
			for _, one := range pair.FindAllStringSubmatch(field, -1) {
				has[one[1]] = one[2]
			}
			fields.Set(has["name"], cmp.Or(has["value"], "ada"))
		}
		resp, err = c.PostForm(to.String(), fields)
	}
	return 1
}

// withBrowser gives the place a display and a browser.
func (p *place) withBrowser() *place {
	p.env = append(p.env, "DISPLAY=:0", "BROWSER="+filepath.Join(programs, "browser"))
	return p
}

// loginPort makes logins of the place use a port that nobody has, and that no test of package flow
// takes, and returns it.
func (p *place) loginPort(t *testing.T) int {
	t.Helper()
	port := logintest.FreePort(t, 20000)
	p.must("config", "set", "logins.ports", fmt.Sprintf("[%d]", port))
	return port
}

// loginFiles returns the files of logins that are no locks.
func (p *place) loginFiles(t *testing.T) []string {
	t.Helper()
	var all []string
	root := filepath.Join(p.dir, "home/.local/state/holdline/logins")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".lock") {
			name, _ := filepath.Rel(root, path)
			all = append(all, name)
			if info, err := d.Info(); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s has the mode %v", path, info.Mode())
			}
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

// TestLogin_AddLogInCallLogOut walks the whole way: a server that is added says that it wants a
// login, calls fail until there is one and work afterwards, in all sessions and without a restart,
// also after the daemon was killed, and fail again after the logout.
func TestLogin_AddLogInCallLogOut(t *testing.T) {
	t.Parallel()
	srv := logintest.Start(t, logintest.Options{
		Life: time.Hour, Scopes: []string{"read"}, Person: "ada@example.com", Form: true,
	})
	p := newPlace(t).login().withBrowser()
	port := p.loginPort(t)
	if out := p.must("servers", "add", "far", srv.URL); !strings.HasSuffix(out,
		"config.json\nfar needs a login: holdline servers login far\n") {
		t.Errorf("servers add says %q", out)
	}
	echo := func(a *agent) answer { return a.wait(a.call("far__echo", map[string]any{})) }
	a, b := p.agent().shake(), p.agent().shake()
	for _, one := range []*agent{a, b} {
		if x := echo(one); x.code() != "unauthenticated" || !strings.Contains(x.raw, "holdline servers login far") {
			t.Errorf("a call without a login: %s", x.raw)
		}
	}

	out, errs, code := p.run("", "servers", "login", "far")
	if code != exitOK || !strings.HasPrefix(out, "far: logged in as ada@example.com until ") ||
		!strings.HasSuffix(out, ", renews itself\n") || strings.Count(out, "\n") != 1 {
		t.Fatalf("servers login: exit %d\n%s%s", code, out, errs)
	}
	for _, want := range []string{
		"far: " + srv.URL + ", login at " + srv.Base + "\n", "asks for: read\n",
		fmt.Sprintf("opened in your browser; if it was not: http://127.0.0.1:%d/start/", port),
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("servers login does not say %q: %s", want, errs)
		}
	}
	for _, secret := range srv.Secrets() {
		if strings.Contains(out+errs, secret) {
			t.Errorf("servers login shows %s", secret)
		}
	}
	for _, one := range []*agent{a, b} {
		if x := echo(one); !strings.Contains(x.text(), "done") {
			t.Errorf("a call after the login: %s", x.raw)
		}
	}
	kill9(t, p.pid(0))
	if x := echo(a); !strings.Contains(x.text(), "done") {
		t.Errorf("a call after the daemon was killed: %s", x.raw)
	}
	if out = p.must("servers", "login", "far"); !strings.HasPrefix(out, "far: already logged in as ada@example.com") {
		t.Errorf("a second login: %q", out)
	}
	if out, errs, code = p.run("", "servers", "login", "far", "--issuer", "https://x"); code != exitFailure ||
		!strings.Contains(errs, "does not use the authorization server") {
		t.Errorf("a login at another issuer: exit %d, %s%s", code, out, errs)
	}
	if out = p.must("servers", "login"); out != "no server needs a login\n" {
		t.Errorf("a login to all: %q", out)
	}

	if out = p.must("servers", "logout", "far"); out !=
		"far: logged out; the authorization server has taken its tokens back\n" {
		t.Errorf("servers logout: %q", out)
	}
	for _, one := range []*agent{a, b} {
		if x := echo(one); x.code() != "unauthenticated" || !strings.Contains(x.raw, "holdline servers login far") {
			t.Errorf("a call after the logout: %s", x.raw)
		}
	}
	for _, file := range p.loginFiles(t) {
		if !strings.HasPrefix(file, "registrations/") && !strings.HasPrefix(file, "targets/") {
			t.Errorf("%s is left after the logout", file)
		}
	}
	p.must("servers", "login", "far", "--force")
	if n := len(srv.Registrations()); n != 1 {
		t.Errorf("%d registrations for two logins", n)
	}
	a.rest()
	b.rest()
}

// TestLogin_Refused checks what is said where nobody can log in, and that nothing is left behind.
func TestLogin_Refused(t *testing.T) {
	t.Parallel()
	srv := logintest.Start(t, logintest.Options{})
	gone := httptest.NewServer(nil)
	gone.Close()
	p := newPlace(t).login().configure(map[string]any{
		"far": map[string]any{"url": srv.URL}, "program": map[string]any{"command": "x"},
		"header": map[string]any{"url": srv.URL, "headers": map[string]any{"Authorization": "Bearer abc"}},
		"plain":  map[string]any{"url": "http://example.com/mcp"}, "gone": map[string]any{"url": gone.URL},
		"machine": map[string]any{"url": srv.URL, "oauth": map[string]any{
			"grant": "client_credentials", "clientId": "a", "clientSecret": "b",
		}},
	})
	p.loginPort(t)
	for args, want := range map[string]string{
		"login program":                         "1 server program has no address",
		"login header":                          "1 server header has an Authorization header",
		"login machine":                         "1 nobody logs in to server machine",
		"login plain":                           "1 plain: a token is not sent over http",
		"login gone":                            "1 gone: cannot be reached: no server listens at its address",
		"login nowhere":                         "1 nowhere",
		"login far --paste":                     "1 wants a terminal",
		"login far --timeout 100ms --device":    "1 nobody logged in within 100ms",
		"login far --timeout 99ms --no-browser": "1 nobody logged in within 99ms",
		"login far --issuer https://x":          "1 does not use the authorization server",
		"login far --paste --device":            "2 cannot be used together",
		"login far too":                         "2 too many arguments",
		"logout":                                "2 wants NAME or --url URL",
		"logout far":                            "0 far: there is no login",
		"logout --url https://nowhere/mcp":      "0 there is no login to https://nowhere/mcp",
		"add x --login -- sh":                   "2 only a remote server has a login",
		"add x --client-id a -- sh":             "2 only a remote server has a login",
	} {
		out, errs, code := p.run("", append([]string{"servers"}, strings.Fields(args)...)...)
		if got := fmt.Sprint(code, " ", out, errs); !strings.HasPrefix(got, want[:2]) || !strings.Contains(got, want[2:]) {
			t.Errorf("servers %s: %s, want %q", args, got, want)
		}
	}
	// Ctrl-C ends a login that waits.
	for args, want := range map[string]string{
		"login far --no-browser": "/start/",
		"login far":              "enter the code: WDJB-MJHT", // there is no display
	} {
		cmd := p.command(append([]string{"servers"}, strings.Fields(args)...)...)
		errs := new(words)
		cmd.Stderr = errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the login's words", func() bool { return strings.Contains(errs.String(), want) })
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
		if cmd.ProcessState.ExitCode() != exitFailure ||
			!strings.Contains(errs.String(), "the login was ended; nothing has changed") {
			t.Errorf("Ctrl-C of servers %s: %v, %s", args, cmd.ProcessState, errs)
		}
	}
	if files := p.loginFiles(t); len(files) > 0 {
		t.Errorf("left behind: %q", files)
	}
}

// TestLogin_Added checks what servers add says of remote servers, and that a login at once is
// kept when the entry is removed.
func TestLogin_Added(t *testing.T) {
	t.Parallel()
	srv := logintest.Start(t, logintest.Options{})
	free := logintest.Start(t, logintest.Options{Public: true})
	gone := httptest.NewServer(nil)
	gone.Close()
	p := newPlace(t).login().withBrowser()
	p.loginPort(t)
	for args, want := range map[string]string{
		"a " + srv.URL + " --no-check":                    "",
		"b " + srv.URL:                                    "b needs a login: holdline servers login b",
		"c " + gone.URL + " --force":                      "warning: c: cannot be reached: no server listens at its address",
		"i " + free.URL:                                   "", // nobody has to log in there
		"j http://example.com/mcp --login --force":        "warning: j: a token is not sent over http",
		"d " + srv.URL + " --no-check -H Authorization:x": "",
		"e " + srv.URL + " --disabled":                    "",
		"f " + srv.URL + " --login":                       "f: logged in, cannot be renewed",
		"g " + srv.URL + " --login --oauth-scope own":     "g: already logged in",
	} {
		if args[0] == 'f' {
			srv.Set(func(o *logintest.Options) { o.NoRefresh = true })
		}
		if args[0] == 'g' {
			continue // after f
		}
		out, errs, code := p.run("", append([]string{"servers", "add"}, strings.Fields(args)...)...)
		if code != exitOK || !strings.Contains(out+errs, want) ||
			want == "" && (strings.Contains(out, "login:") || errs != "") {
			t.Errorf("servers add %s: exit %d\n%s%s", args, code, out, errs)
		}
	}
	p.must("servers", "add", "h", srv.URL, "--no-check", "--client-id", "mine", "--client-secret-env", "MINE",
		"--callback-port", "3118", "--oauth-scope", "r", "--oauth-scope", "w", "--account", "work")
	config, err := os.ReadFile(filepath.Join(p.dir, "home/.config/holdline/config.json"))
	if want := `{"clientId": "mine", "clientSecret": "${MINE}", "callbackPort": 3118, "scopes": ["r", "w"], "account": "work"}`; err != nil ||
		!strings.Contains(strings.Join(strings.Fields(string(config)), ""), strings.ReplaceAll(want, " ", "")) {
		t.Errorf("%v\n%s", err, config)
	}
	out := p.must("servers", "remove", "f")
	if want := "its login is kept; to end it: holdline servers logout --url " + srv.URL + "\n"; !strings.HasSuffix(out, want) {
		t.Errorf("servers remove: %q, want %q", out, want)
	}
	if out = p.must("servers", "logout", "--url", srv.URL); !strings.Contains(out, "logged out; the authorization server") {
		t.Errorf("servers logout --url: %q", out)
	}
}
