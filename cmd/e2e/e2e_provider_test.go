package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"holdline/daemon/login"
)

// providerKind is a real identity provider that the tests of logins use.
type providerKind struct {
	name  string
	start func(t *testing.T, resource string) *exec.Cmd // prints its issuer, then a line for each event

	client  string    // its public client, which is registered by hand; "" if clients register themselves
	machine [2]string // id and secret of a client that is no person's
	binds   bool      // a token is for the resource that was asked for
	strict  bool      // a refresh token that comes again ends the login
}

// providerKinds are all of them. The first one has metadata of both kinds; the second one that of OpenID
// alone, and an issuer that ends with a slash.
var providerKinds = []providerKind{
	{"oidc-provider", nodeProvider, "", [2]string{"resource", "resource-secret"}, true, true},
	{"zitadel", goProvider, "holdline", [2]string{"sid1", "verysecret"}, false, false},
}

// nodeProvider is that of npm.
func nodeProvider(t *testing.T, resource string) *exec.Cmd {
	t.Helper()
	root := npmInstall(t, "oidc-provider-"+providerVersion, "oidc-provider@"+providerVersion)
	script, err := filepath.Abs("testdata/provider/provider.mjs")
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), newNode(t), script,
		filepath.Join(root, "node_modules/oidc-provider/lib/index.js"), resource, providerLife)
}

// goProvider is that of the module in testdata/zitadel, which is none of ours. It is built when it is
// first needed.
func goProvider(t *testing.T, _ string) *exec.Cmd {
	t.Helper()
	if os.Getenv("HOLDLINE_E2E") == "" {
		t.Skip("HOLDLINE_E2E=1 is not set: it builds an identity provider, whose modules have to be fetched")
	}
	if err := fetchGoProvider(); err != nil {
		t.Skipf("the modules of the identity provider cannot be had: %v", err)
	}
	if err := buildGoProvider(); err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), filepath.Join(programs, "zitadel"), "holdline", providerLife)
}

// The modules that goProvider needs are fetched once, and it is built once.
var (
	fetchGoProvider = sync.OnceValue(func() error { return inGoProvider("list", "-deps", ".") })
	buildGoProvider = sync.OnceValue(func() error {
		return inGoProvider("build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(programs, "zitadel"), ".")
	})
)

// inGoProvider runs a go command in the module of goProvider, which it does not change.
func inGoProvider(verb string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{verb, "-mod=readonly"}, args...)...)
	cmd.Dir = filepath.Join("testdata", "zitadel")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	errs := new(words)
	cmd.Stderr = errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", verb, err, errs)
	}
	return nil
}

// atProviders runs a test with each real identity provider.
func atProviders(t *testing.T, test func(t *testing.T, v *provider)) {
	t.Helper()
	t.Parallel()
	for _, kind := range providerKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			test(t, newProvider(t, kind))
		})
	}
}

// provider is a real identity provider, with a server of the official SDK behind it.
type provider struct {
	providerKind

	issuer string
	token  string       // address of its token endpoint
	ask    string       // address at which it says of a token whether it is good
	url    string       // of the server
	last   atomic.Value // the token that the server has seen last

	mu   sync.Mutex
	said []string // guarded by mu
}

// providerLife is how long access tokens of the provider are good, in seconds.
const providerLife = "2"

// newProvider starts both for the time of the test.
func newProvider(t *testing.T, kind providerKind) *provider {
	t.Helper()
	mux, v := http.NewServeMux(), &provider{providerKind: kind}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	v.url = srv.URL + "/mcp"
	cmd := kind.start(t, v.url)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs := new(words)
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if lines.Scan() {
		v.issuer = lines.Text()
	} else {
		t.Fatalf("the provider: %v, %s", cmd.Wait(), errs)
	}
	read := make(chan struct{})
	go func() { // ends with the provider
		defer close(read)
		for lines.Scan() {
			v.mu.Lock()
			v.said = append(v.said, lines.Text())
			v.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the provider: %q\n%s", v.said, errs)
		}
	})
	v.readMetadata(t)

	s := mcp.NewServer(&mcp.Implementation{Name: "guarded", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
		})
	const metadata = "/.well-known/oauth-protected-resource/mcp"
	mux.Handle(metadata, auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: v.url, AuthorizationServers: []string{v.issuer}, ScopesSupported: []string{"read"},
	}))
	guard := auth.RequireBearerToken(v.verify, &auth.RequireBearerTokenOptions{
		ResourceMetadataURL: srv.URL + metadata, Scopes: []string{"read"},
	})
	mux.Handle("/mcp", guard(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)))
	return v
}

// readMetadata reads where the provider is asked, from its metadata.
func (v *provider) readMetadata(t *testing.T) {
	t.Helper()
	address := strings.TrimSuffix(v.issuer, "/") + "/.well-known/openid-configuration"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var m struct {
		Issuer string `json:"issuer"`
		Token  string `json:"token_endpoint"`
		Ask    string `json:"introspection_endpoint"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil || m.Issuer != v.issuer {
		t.Fatalf("the metadata of the provider %s: %+v, %v", v.issuer, m, err)
	}
	v.token, v.ask = m.Token, m.Ask
}

// entry returns the entry of the server in the configuration, with what it says of logins.
func (v *provider) entry(oauth map[string]any) map[string]any {
	if v.client != "" && oauth == nil {
		oauth = map[string]any{"clientId": v.client}
	}
	entry := map[string]any{"url": v.url}
	if oauth != nil {
		entry["oauth"] = oauth
	}
	return map[string]any{"far": entry}
}

// verify asks the provider about a token.
func (v *provider) verify(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	v.last.Store(token)
	text, err := v.post(ctx, v.ask, url.Values{"token": {token}}, "resource", "resource-secret")
	if err != nil {
		return nil, err
	}
	var x struct {
		Active     bool
		Aud        any // a string or an array
		Sub, Scope string
		Exp        int64
	}
	if err := json.Unmarshal([]byte(text), &x); err != nil || !x.Active || v.binds && x.Aud != v.url {
		return nil, fmt.Errorf("%w: %s", auth.ErrInvalidToken, text)
	}
	return &auth.TokenInfo{Scopes: strings.Fields(x.Scope), Expiration: time.Unix(x.Exp, 0), UserID: x.Sub}, nil
}

// post posts a form to the provider, as a client with a secret if one is given, and returns the answer.
func (v *provider) post(ctx context.Context, address string, form url.Values, client, secret string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if secret != "" {
		req.SetBasicAuth(client, secret)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var text json.RawMessage
	err = json.NewDecoder(resp.Body).Decode(&text)
	return string(text), err
}

// count returns how many events begin with some words.
func (v *provider) count(words string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, line := range v.said {
		if strings.HasPrefix(line, words) {
			n++
		}
	}
	return n
}

// until waits for an event, for the nth time.
func (v *provider) until(t *testing.T, words string, n int) {
	t.Helper()
	waitFor(t, words, func() bool { return v.count(words) >= n })
}

// untilExpired waits until the token that the server has seen last is good no more.
func (v *provider) untilExpired(t *testing.T) {
	t.Helper()
	waitFor(t, "the end of a token", func() bool {
		token, _ := v.last.Load().(string)
		_, err := v.verify(t.Context(), token, nil)
		return err != nil
	})
}

// TestE2ELoginAtProvider logs in at real identity providers that rotate refresh tokens: tokens run
// out and are renewed, also while the daemon is killed, and the login is kept. A refresh token that is
// used twice, as by a thief, is refused. It ends the login if the provider is strict, and the next login
// begins anew.
func TestE2ELoginAtProvider(t *testing.T) { atProviders(t, logInAtProvider) }

// logInAtProvider is [TestE2ELoginAtProvider] for one of them.
func logInAtProvider(t *testing.T, v *provider) {
	t.Helper()
	p := newPlace(t).login().withBrowser().faults()
	p.loginPort(t)
	add := []string{"servers", "add", "far", v.url}
	if v.client != "" {
		add = append(add, "--client-id", v.client)
	}
	if out := p.must(add...); !strings.Contains(out, "far needs a login") {
		t.Errorf("servers add says %s", out)
	}
	a := p.agent().shake()
	call := func(when, want string) {
		t.Helper()
		if x := a.echo(); !strings.Contains(x.raw, want) {
			t.Errorf("%s: %s, want %s", when, x.raw, want)
		}
	}
	call("before the login", `"not_logged_in"`)
	logIn := func() {
		t.Helper()
		if out := p.must("servers", "login", "far", "--scope", "openid"); !strings.HasPrefix(out, "far: logged in as ada until ") ||
			!strings.HasSuffix(out, ", renews itself\n") {
			t.Errorf("servers login says %s", out)
		}
	}
	logIn()
	call("after the login", `"done"`)
	v.untilExpired(t)
	call("after the token has run out", `"done"`)
	for _, point := range []string{"login.marked", "login.sent"} {
		v.untilExpired(t)
		p.dieAs(point, death{held: true})
		id := a.call("far__echo", map[string]any{})
		waitFor(t, "the renewal", func() bool { return p.died(point) })
		kill9(t, p.pid(0))
		p.letGo(point)
		if x := a.wait(id); x.text() != "done" {
			t.Errorf("the call during which the daemon was killed at %s: %s", point, x.raw)
		}
		call("after the daemon was killed at "+point, `"done"`)
	}
	old := p.storedLogin(t)
	v.untilExpired(t)
	call("after the kills", `"done"`)
	v.until(t, "granted refresh_token", 4) // each time that a token had run out
	if n := v.count("refused") + v.count("revoked") + v.count("broken"); n > 0 {
		t.Errorf("%d times the provider was not content", n)
	}

	text, err := v.post(t.Context(), v.token, url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {old.Refresh.Reveal()}, "client_id": {old.ClientID},
	}, "", "")
	if err != nil || !strings.Contains(text, "invalid_grant") {
		t.Errorf("the thief gets %s, %v", text, err)
	}
	if v.strict {
		v.until(t, "revoked", 1)
		call("after the theft", `"not_logged_in"`)
		logIn()
	}
	call("after the theft, with a login", `"done"`)
	revoked := v.count("revoked")
	if out := p.must("servers", "logout", "far"); !strings.Contains(out, "has taken its tokens back") {
		t.Errorf("servers logout says %s", out)
	}
	v.until(t, "revoked", revoked+1)
	call("after the logout", `"not_logged_in"`)
	if n := v.count("registered"); n > 1 || (n == 0) != (v.client != "") {
		t.Errorf("%d registrations for two logins", n)
	}
	a.rest()
}

// TestE2ELoginAtProviderByDevice logs in with a code that is entered in a browser elsewhere, without a
// listener here.
func TestE2ELoginAtProviderByDevice(t *testing.T) { atProviders(t, logInByDevice) }

// logInByDevice is [TestE2ELoginAtProviderByDevice] for one provider.
func logInByDevice(t *testing.T, v *provider) {
	t.Helper()
	p := newPlace(t).login().configure(v.entry(nil))
	cmd, said := p.command("servers", "login", "far", "--device"), new(words)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	page := regexp.MustCompile(`(?m)^or open (\S+)$`)
	waitFor(t, "a code", func() bool { return page.MatchString(said.String()) })
	if code := browserMain(page.FindStringSubmatch(said.String())[1]); code != 0 {
		t.Errorf("the browser: %d", code)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "far: logged in until ") {
		t.Errorf("servers login: %v, %s", err, said)
	}
	a := p.agent().shake()
	if x := a.echo(); x.text() != "done" {
		t.Errorf("after the login: %s", x.raw)
	}
	v.untilExpired(t)
	if x := a.echo(); x.text() != "done" {
		t.Errorf("after the token has run out: %s", x.raw)
	}
	a.rest()
}

// TestE2EMachineAtProvider uses a server to which nobody logs in: the machine does, again and again.
func TestE2EMachineAtProvider(t *testing.T) { atProviders(t, useMachine) }

// useMachine is [TestE2EMachineAtProvider] for one provider.
func useMachine(t *testing.T, v *provider) {
	t.Helper()
	p := newPlace(t).login().configure(v.entry(map[string]any{
		"grant": "client_credentials", "clientId": v.machine[0], "clientSecret": v.machine[1],
	}))
	a := p.agent().shake()
	for n := range 2 {
		if x := a.echo(); x.text() != "done" {
			t.Errorf("call %d: %s", n, x.raw)
		}
		v.until(t, "granted client_credentials", n+1)
		v.untilExpired(t)
	}
	a.rest()
}

// storedLogin returns the only login of the place's store.
func (p *place) storedLogin(t *testing.T) *login.Login {
	t.Helper()
	ids, err := p.logins().IDs(&login.Login{})
	if err != nil || len(ids) != 1 {
		t.Fatalf("logins: %q, %v", ids, err)
	}
	l := new(login.Login)
	if err := p.logins().Read(ids[0], l); err != nil {
		t.Fatal(err)
	}
	return l
}
