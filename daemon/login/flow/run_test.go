package flow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdline/daemon/login"
	"holdline/daemon/login/logintest"
)

// person is a login of the stand-in by the test: what is said, and which browser is opened.
type person struct {
	*Options

	t       *testing.T
	server  *logintest.Server
	browser *http.Client
	visits  sync.WaitGroup // under way

	mu    sync.Mutex
	said  []string // guarded by mu
	pages []string // guarded by mu
}

// newPerson returns a person whose browser follows all redirects and agrees to all forms.
func newPerson(t *testing.T, o logintest.Options) *person {
	t.Helper()
	s := logintest.Start(t, o)
	return personAt(t, s, login.Open(t.TempDir()+"/logins", nil))
}

// personAt returns a person at a server with a store.
func personAt(t *testing.T, s *logintest.Server, store *login.Store) *person {
	t.Helper()
	p := &person{t: t, server: s, browser: browser()}
	p.browser.CheckRedirect = nil
	p.Options = &Options{
		Name: "far", Address: s.URL, Store: store, HTTP: login.NewClient(s.URL, "", "1"), Version: "1",
		Ports: []int{freePort(t)},
		Say: func(format string, args ...any) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.said = append(p.said, fmt.Sprintf(format, args...))
		},
	}
	p.Open = func(_ context.Context, address string) error {
		p.visits.Go(func() { p.browse(address) })
		return nil
	}
	return p
}

// browse opens an address, agrees to the form that is there, and keeps the last page.
func (p *person) browse(address string) {
	for method := http.MethodGet; ; method = http.MethodPost {
		req, err := http.NewRequestWithContext(p.t.Context(), method, address, nil)
		if err != nil {
			return
		}
		resp, err := p.browser.Do(req)
		if err != nil {
			return // the login has ended
		}
		text := readAll(resp)
		if strings.Contains(text, "<form") && method == http.MethodGet {
			address = resp.Request.URL.String()
			continue
		}
		p.mu.Lock()
		p.pages = append(p.pages, text)
		p.mu.Unlock()
		return
	}
}

// words returns what was said, and the last page.
func (p *person) words() (said, page string) {
	p.visits.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.pages); n > 0 {
		page = p.pages[n-1]
	}
	return strings.Join(p.said, "\n"), page
}

// run logs in.
func (p *person) run() (*login.Login, error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	l, _, err := Run(ctx, p.Options)
	return l, err
}

// form returns the last form that was posted to a path of the stand-in.
func (p *person) form(path string) url.Values {
	p.t.Helper()
	for _, f := range slices.Backward(p.server.Forms()) {
		if f.Get("path") == path {
			return f
		}
	}
	p.t.Fatalf("nothing was posted to %s", path)
	return nil
}

// token returns the access token of the stored login.
func (p *person) token() string {
	p.t.Helper()
	var target login.Target
	var l login.Login
	if err := p.Store.Read(p.targetID(), &target); err != nil {
		p.t.Fatal(err)
	}
	if err := p.Store.Read(target.Login, &l); err != nil {
		p.t.Fatal(err)
	}
	return l.Access.Reveal()
}

// TestLogin checks a login by a browser from beginning to end: what is said, shown, sent and
// stored.
func TestLogin(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{
		Life: time.Hour, Scopes: []string{"read", "write"}, Person: "ada@example.com", Form: true,
		Metadata: map[string]any{"scopes_supported": []string{"offline_access"}},
	})
	open := p.Open
	p.Open = func(ctx context.Context, address string) error { // other users can read it
		if at := fmt.Sprintf("http://127.0.0.1:%d/start/", p.Ports[0]); !strings.HasPrefix(address, at) ||
			strings.Contains(address, "?") {
			t.Errorf("the browser is opened at %s", address)
		}
		return open(ctx, address)
	}
	l, err := p.run()
	if err != nil {
		t.Fatal(err)
	}
	if l.Person != "ada@example.com" || l.Issuer != p.server.Base || l.Resource != p.server.URL ||
		l.Refresh == "" || time.Until(l.Expires) < 50*time.Minute || p.token() != l.Access.Reveal() ||
		!slices.Equal(l.Granted, []string{"read", "write", "offline_access"}) {
		t.Errorf("the login is %+v", l)
	}
	said, page := p.words()
	for _, want := range []string{
		"far: " + p.server.URL + ", login at " + p.server.Base, "asks for: read write offline_access",
		"opened in your browser; if it was not: http://127.0.0.1:", "holdline servers login far --paste",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said:\n%s", want, said)
		}
	}
	if !strings.Contains(page, "Logged in to far") || !strings.Contains(page, "ada@example.com") {
		t.Errorf("the page: %s", page)
	}
	if f := p.form("/token"); f.Get("resource") != p.server.URL || f.Get("code_verifier") == "" ||
		len(f.Get("code_verifier")) != 43 || f.Get("grant_type") != "authorization_code" {
		t.Errorf("the token request: %v", f)
	}
	asked := p.server.Registrations()
	want := map[string]any{
		"client_name": "Holdline", "application_type": "native", "token_endpoint_auth_method": "none",
		"scope": "read write offline_access", "software_id": "holdline", "software_version": "1",
	}
	for key, value := range want {
		if len(asked) != 1 || asked[0][key] != value {
			t.Fatalf("%s of the registration: %v", key, asked)
		}
	}
	for _, secret := range p.server.Secrets() {
		if strings.Contains(said, secret) || strings.Contains(page, secret) {
			t.Errorf("%s is shown", secret)
		}
	}
}

// TestLoginAgain checks what a second login makes of the first.
func TestLoginAgain(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{Scopes: []string{"a"}})
	if _, err := p.run(); err != nil {
		t.Fatal(err)
	}
	if _, fresh, err := Run(t.Context(), p.Options); fresh || err != nil {
		t.Errorf("a login where there is one: %v, %v", fresh, err)
	}
	p.Force, p.Scopes = true, []string{"b"}
	second, err := p.run()
	if err != nil || !slices.Equal(second.Granted, []string{"a", "b"}) {
		t.Fatalf("a forced login: %v, %+v", err, second)
	}
	// The registration names its scopes, and b is not one of them.
	if n := len(p.server.Registrations()); n != 2 {
		t.Errorf("%d registrations, want one for each set of scopes", n)
	}
	p.Scopes = nil
	if third, err := p.run(); err != nil || !slices.Equal(third.Granted, []string{"a", "b"}) {
		t.Errorf("earlier scopes are lost: %v, %+v", err, third)
	}
	if n := len(p.server.Registrations()); n != 2 {
		t.Errorf("%d registrations, want the second to serve again", n)
	}
}

// TestLoginReplaced checks that a login whose target gets another one is deleted, once no other target has it.
func TestLoginReplaced(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{Scopes: []string{"a"}})
	q := personAt(t, p.server, p.Store)
	q.Client.Issuer, q.Ports = p.server.Base, p.Ports // a target of its own, with the same registration
	for _, step := range []struct {
		who   *person
		scope string
		left  int
	}{{p, "a", 1}, {q, "a", 1}, {p, "b", 2}, {q, "b", 1}} {
		step.who.Scopes = []string{step.scope}
		if _, err := step.who.run(); err != nil {
			t.Fatal(err)
		}
		if ids, err := p.Store.IDs(&login.Login{}); err != nil || len(ids) != step.left {
			t.Errorf("after the login for %s: logins %q, %v, want %d", step.scope, ids, err, step.left)
		}
	}
	for _, one := range []*person{p, q} {
		if _, err := Logout(t.Context(), p.Store, p.HTTP, one.targetID(), &one.Client); err != nil {
			t.Error(err)
		}
	}
	if ids, err := p.Store.IDs(&login.Login{}); err != nil || len(ids) > 0 {
		t.Errorf("after the logouts: %q, %v", ids, err)
	}
}

// TestScopeThatNobodyKnows checks that a scope which a call has wanted, and which the authorization
// server does not know, costs one login, and that what calls want meanwhile is kept.
func TestScopeThatNobodyKnows(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{Scopes: []string{"a"}, Open: true})
	wants := func(scope string) {
		target := new(login.Target)
		if err := p.Store.Update(t.Context(), p.targetID(), target, func() error {
			target.Wanted = append(target.Wanted, scope)
			if scope == "nonsense" {
				target.Challenge = login.Challenge{Bearer: true, Error: "insufficient_scope", Scopes: []string{scope}}
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	wants("nonsense")
	p.server.Set(func(o *logintest.Options) {
		o.Back = func(a url.Values) {
			a.Del("code")
			a.Set("error", "invalid_scope")
		}
	})
	if _, err := p.run(); err == nil || !strings.Contains(err.Error(), "does not ask for nonsense") {
		t.Errorf("the login that is refused: %v", err)
	}
	p.server.Set(func(o *logintest.Options) {
		o.Back = func(a url.Values) {
			a.Del("code")
			a.Set("error", "invalid_target")
		}
	})
	if _, err := p.run(); err == nil || !strings.Contains(err.Error(), "set oauth.resource of the server") {
		t.Errorf("a server that does not know the resource: %v", err)
	}
	p.server.Set(func(o *logintest.Options) { o.Back = nil })
	open := p.Open
	p.Open = func(ctx context.Context, address string) error {
		wants("later")
		return open(ctx, address)
	}
	l, err := p.run()
	if err != nil || !slices.Equal(l.Requested, []string{"a"}) {
		t.Errorf("the next login: %v, %+v", err, l)
	}
	target := new(login.Target)
	if err := p.Store.Read(p.targetID(), target); err != nil || !slices.Equal(target.Wanted, []string{"later"}) {
		t.Errorf("wanted: %v, %v", target.Wanted, err)
	}
}

// TestLoginTooOften checks that a server which gives out tokens and refuses them does not send
// a person round and round.
func TestLoginTooOften(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{})
	lose := func() { // as a refused token makes it
		var target login.Target
		if err := p.Store.Read(p.targetID(), &target); err != nil {
			t.Fatal(err)
		}
		l := new(login.Login)
		err := p.Store.Update(t.Context(), target.Login, l, func() error {
			l.Lost = &login.Lost{Why: "the server refuses its tokens", At: time.Now()}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := p.run(); err != nil {
			t.Fatal(err)
		}
		lose()
	}
	if _, err := p.run(); !errors.Is(err, ErrTooOften) {
		t.Errorf("the third login: %v", err)
	}
	p.Force = true
	if _, err := p.run(); err != nil {
		t.Errorf("the third login, forced: %v", err)
	}
}

// TestOneLoginForTwoAddresses checks that a server below the same resource uses the login that
// is there.
func TestOneLoginForTwoAddresses(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{Resource: map[string]any{}})
	p.server.Set(func(o *logintest.Options) { o.Resource["resource"] = p.server.Base })
	if _, err := p.run(); err != nil {
		t.Fatal(err)
	}
	p.Address += "?team=2" // the same target
	if _, fresh, err := Run(t.Context(), p.Options); fresh || err != nil {
		t.Errorf("the same address with a query: %v, %v", fresh, err)
	}
}

// TestCallback checks the rows of the answer with which a browser comes back: those of the
// issuer, errors, and codes.
func TestCallback(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		silent bool // the server does not say that it sends its issuer
		back   func(base string, answer url.Values)
		want   string // of the error; "" is success
	}{
		"issuer announced and sent":       {false, nil, ""},
		"issuer announced and absent":     {false, func(_ string, a url.Values) { a.Del("iss") }, "does not say which"},
		"issuer announced, and another":   {false, func(_ string, a url.Values) { a.Set("iss", "https://x") }, "from another"},
		"issuer announced, and empty":     {false, func(_ string, a url.Values) { a.Set("iss", "") }, "from another"},
		"issuer unannounced and absent":   {true, nil, ""},
		"issuer unannounced and sent":     {true, func(base string, a url.Values) { a.Set("iss", base) }, ""},
		"issuer unannounced, and another": {true, func(_ string, a url.Values) { a.Set("iss", "https://x") }, "from another"},
		"issuer in another spelling":      {false, func(base string, a url.Values) { a.Set("iss", base+"/") }, "from another"},
		"issuer encoded twice": {false, func(base string, a url.Values) {
			a.Set("iss", url.QueryEscape(base))
		}, "from another"},
		"an error from another": {false, func(_ string, a url.Values) {
			a.Set("iss", "https://x")
			a.Set("error", "access_denied")
			a.Set("error_description", "shown to nobody")
		}, "from another"},
		"declined": {false, func(_ string, a url.Values) {
			a.Del("code")
			a.Set("error", "access_denied")
		}, "declined in the browser"},
		"an error with words": {false, func(_ string, a url.Values) {
			a.Set("error", "invalid_scope")
			a.Set("error_description", "no \x1b[2Jsuch\u202e scope")
		}, "refuses the login (invalid_scope: no [2Jsuch scope)"},
		"no code":          {false, func(_ string, a url.Values) { a.Del("code") }, "no code"},
		"an empty code":    {false, func(_ string, a url.Values) { a.Set("code", "") }, "no code"},
		"a code too long":  {false, func(_ string, a url.Values) { a.Set("code", strings.Repeat("x", maxCode+1)) }, "no code"},
		"a code of others": {false, func(_ string, a url.Values) { a.Set("code", "other") }, "said the stand-in"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t, logintest.Options{NoIss: test.silent})
			if test.back != nil {
				p.server.Set(func(o *logintest.Options) {
					o.Back = func(a url.Values) { test.back(p.server.Base, a) }
				})
			}
			_, err := p.run()
			_, page := p.words()
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if !strings.Contains(page, "Not logged in to far") || strings.Contains(page, "shown to nobody") {
				t.Errorf("the page: %s", page)
			}
			if ids, _ := p.Store.IDs(&login.Login{}); len(ids) > 0 {
				t.Errorf("stored: %v", ids)
			}
			exchanged := slices.ContainsFunc(p.server.Forms(), func(f url.Values) bool { return f.Get("path") == "/token" })
			if exchanged != (name == "a code of others") {
				t.Error("the code was sent to the token endpoint")
			}
		})
	}
}

// TestTokenAnswers checks which answers of a token endpoint make a login.
func TestTokenAnswers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"access_token": "a", "token_type": "bearer"}`:                                     "",
		`{"access_token": "a", "token_type": "BEARER", "expires_in": "60"}`:                 "",
		`{"access_token": "a", "token_type": "DPoP"}`:                                       "not Bearer",
		`{"access_token": "", "token_type": "Bearer"}`:                                      "no token",
		`{"access_token": "a b", "token_type": "Bearer"}`:                                   "no token",
		`{"access_token": "` + strings.Repeat("a", 16<<10+1) + `", "token_type": "Bearer"}`: "no token",
		`<html>`: "no JSON",
	} {
		p := newPerson(t, logintest.Options{
			Token: func(int, url.Values) *logintest.Reply { return &logintest.Reply{Status: http.StatusOK, Text: text} },
		})
		_, err := p.run()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

// TestLessGranted checks that the person is told which scopes were not granted, but not that a renewal is
// none of them when the login has what renews it.
func TestLessGranted(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]string{
		"": "did not grant: write offline_access\n", `, "refresh_token": "r"`: "did not grant: write\n",
	} {
		p := newPerson(t, logintest.Options{
			Scopes:   []string{"read", "write"},
			Metadata: map[string]any{"scopes_supported": []string{"offline_access"}},
			Token: func(int, url.Values) *logintest.Reply {
				return &logintest.Reply{
					Status: http.StatusOK, Text: `{"access_token": "a", "token_type": "Bearer", "scope": "read"` + more + `}`,
				}
			},
		})
		l, err := p.run()
		if said, _ := p.words(); err != nil || !strings.Contains(said+"\n", want) || !slices.Equal(l.Granted, []string{"read"}) ||
			!slices.Equal(l.Requested, []string{"read", "write", "offline_access"}) {
			t.Errorf("%q: %v, %+v\n%s", more, err, l, said)
		}
	}
}

// TestInterruptedWhileStored checks that a person who ends the login once the tokens are there does not
// lose them, also if a lock has to be waited for.
func TestInterruptedWhileStored(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{
		Scopes: []string{"read", "write"},
		Token: func(int, url.Values) *logintest.Reply {
			return &logintest.Reply{
				Status: http.StatusOK, Text: `{"access_token": "a", "token_type": "Bearer", "scope": "read"}`,
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.Say = func(format string, _ ...any) {
		if !strings.Contains(format, "did not grant") {
			return
		}
		held, err := p.Store.Lock(t.Context(), p.targetID(), &login.Target{})
		if err != nil {
			t.Error(err)
			return
		}
		cancel()
		time.AfterFunc(100*time.Millisecond, held.Unlock)
	}
	if _, fresh, err := Run(ctx, p.Options); !fresh || err != nil || p.token() != "a" {
		t.Errorf("%v, %v", fresh, err)
	}
}

// TestWrongResourceSendsNobody checks that no browser is opened for a server whose metadata, or
// whose authorization server's metadata, is of another.
func TestWrongResourceSendsNobody(t *testing.T) {
	t.Parallel()
	for _, o := range []logintest.Options{
		{Resource: map[string]any{"resource": "https://example.com/mcp"}},
		{Metadata: map[string]any{"issuer": "https://example.com"}},
		{Metadata: map[string]any{"code_challenge_methods_supported": nil}},
	} {
		p := newPerson(t, o)
		p.Open = func(context.Context, string) error {
			t.Error("a browser is opened")
			return nil
		}
		_, err := p.run()
		if paths := p.server.Paths(); err == nil || len(p.server.Registrations()) > 0 ||
			slices.Contains(paths, "GET /authorize") {
			t.Errorf("%+v: %v, %q", o, err, paths)
		}
	}
}

// TestResourceIsSentAsItIs checks that each request which asks for a token, for a person or a machine, has
// the resource byte for byte as the metadata or the configuration spells it, and none if that says so.
func TestResourceIsSentAsItIs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		configured *string
		want       string
	}{
		"of the metadata": {nil, "BASE/"}, "configured": {new("api://A b/%7e"), "api://A b/%7e"}, "none": {new(""), ""},
	} {
		for way, grant := range map[Way]string{
			Browser: login.GrantRefresh, Device: login.GrantRefresh, nobody: login.GrantClient,
		} {
			p := newPerson(t, logintest.Options{Life: time.Hour, Interval: 0.01, Resource: map[string]any{}})
			p.server.Set(func(o *logintest.Options) { o.Resource["resource"] = p.server.Base + "/" })
			p.Client.Resource, p.Way = test.configured, way
			p.Say = func(string, ...any) { p.server.Approve() }
			o := login.Options{Name: "far", URL: p.server.URL, Store: p.Store, Log: slog.New(slog.DiscardHandler)}
			var err error
			if way == nobody {
				p.server.AddClient("mine", "")
				p.Client.ClientID, p.Client.Grant, o.Discover = "mine", grant, Machine
				err = p.Store.Configure(t.Context(), p.targetID(), &p.Client)
			} else {
				_, err = p.run()
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			o.Target = p.targetID()
			tokens := login.NewTokens(o)
			token, err := tokens.Token(t.Context(), true)
			for range 2 { // the stand-in refuses a resource that is not that of the authorization
				if err == nil {
					token, err = tokens.Refused(t.Context(), token, http.StatusUnauthorized, http.Header{}, false)
				}
			}
			if err != nil {
				t.Errorf("%s: %s: %v", name, grant, err)
			}
			tokens.Close()
			forms := p.server.Forms()
			if len(forms) < 2 || forms[len(forms)-1].Get("grant_type") != grant {
				t.Errorf("%s: posted %v", name, forms)
			}
			want := strings.Replace(test.want, "BASE", p.server.Base, 1)
			for _, f := range forms {
				if f.Get("resource") != want || f.Has("resource") != (want != "") {
					t.Errorf("%s: %s %s asks for %q, want %q", name, f.Get("path"), f.Get("grant_type"), f["resource"], want)
				}
			}
		}
	}
}

// TestNobodyComes checks that a login ends at its time limit.
func TestNobodyComes(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{})
	late := errors.New("nobody logged in")
	p.Open = func(context.Context, string) error { return nil }
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, late)
	defer cancel()
	if _, _, err := Run(ctx, p.Options); !errors.Is(err, late) {
		t.Errorf("the login ends with %v", err)
	}
	if ids, _ := p.Store.IDs(&login.Registration{}); len(ids) > 0 {
		t.Errorf("something is left behind: %v", ids)
	}
}

// TestServersThatDoNotAsk checks logins to servers that let the beginning pass, with and
// without a challenge that a call got earlier.
func TestServersThatDoNotAsk(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{Open: true})
	target := new(login.Target)
	err := p.Store.Update(t.Context(), p.targetID(), target, func() error {
		target.URL = p.Address
		target.Challenge = login.Challenge{Bearer: true, Scopes: []string{"tools"}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.run()
	if err != nil || !slices.Equal(l.Granted, []string{"tools"}) {
		t.Errorf("%v, %+v", err, l)
	}
}

// TestScopes checks which scopes are asked for, and in which order.
func TestScopes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*person)
		want   string
	}{
		"those of the metadata":    {func(*person) {}, "m1 m2"},
		"configured ones":          {func(p *person) { p.Client.Scopes = []string{"c1"} }, "c1"},
		"none, configured":         {func(p *person) { p.Client.Scopes = []string{} }, ""},
		"more of the command line": {func(p *person) { p.Scopes = []string{"m2", "x", `a"b`} }, "m1 m2 x"},
		"those that calls lacked": {func(p *person) {
			target := new(login.Target)
			if err := p.Store.Update(p.t.Context(), p.targetID(), target, func() error {
				target.Wanted = []string{"w"}
				return nil
			}); err != nil {
				p.t.Fatal(err)
			}
		}, "m1 m2 w"},
		"offline_access where the server knows it": {func(p *person) {
			p.server.Set(func(o *logintest.Options) {
				o.Metadata = map[string]any{"scopes_supported": []string{"x", "offline_access"}}
			})
		}, "m1 m2 offline_access"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t, logintest.Options{Scopes: []string{"m1", "m2"}})
			test.change(p)
			var asked url.Values
			p.Open = func(_ context.Context, address string) error {
				c := browser()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
				if err != nil {
					return err
				}
				resp, err := c.Do(req)
				if err != nil {
					return err
				}
				resp.Body.Close()
				at, err := resp.Location()
				if err != nil {
					return err
				}
				asked = at.Query()
				p.browser = c
				p.browser.CheckRedirect = nil
				p.visits.Go(func() { p.browse(at.String()) })
				return nil
			}
			if _, err := p.run(); err != nil {
				t.Fatal(err)
			}
			_, has := asked["scope"]
			if asked.Get("scope") != test.want || has != (test.want != "") {
				t.Errorf("asked for %q, want %q", asked.Get("scope"), test.want)
			}
			if want := map[bool]string{true: "consent"}[strings.Contains(test.want, "offline")]; asked.Get("prompt") != want {
				t.Errorf("prompt is %q, want %q", asked.Get("prompt"), want)
			}
			for _, one := range []string{"state", "code_challenge", "resource", "redirect_uri", "client_id"} {
				if asked.Get(one) == "" {
					t.Errorf("%s is missing: %v", one, slices.Sorted(maps.Keys(asked)))
				}
			}
		})
	}
}
