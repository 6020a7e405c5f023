package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
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

// provider is a real identity provider of npm, with a server of the official SDK behind it.
type provider struct {
	issuer string
	url    string       // of the server
	last   atomic.Value // the token that the server has seen last

	mu   sync.Mutex
	said []string // guarded by mu
}

// providerLife is how long access tokens of the provider are good, in seconds.
const providerLife = "2"

// newProvider starts both for the time of the test.
func newProvider(t *testing.T) *provider {
	t.Helper()
	root := npmInstall(t, "oidc-provider-"+providerVersion, "oidc-provider@"+providerVersion)
	mux, v := http.NewServeMux(), new(provider)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	v.url = srv.URL + "/mcp"
	script, err := filepath.Abs("testdata/provider/provider.mjs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), newNode(t), script,
		filepath.Join(root, "node_modules/oidc-provider/lib/index.js"), v.url, providerLife)
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

// verify asks the provider about a token.
func (v *provider) verify(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	v.last.Store(token)
	text, err := v.post(ctx, "/token/introspection", url.Values{"token": {token}}, "resource", "resource-secret")
	if err != nil {
		return nil, err
	}
	var x struct {
		Active     bool
		Aud        string
		Sub, Scope string
		Exp        int64
	}
	if err := json.Unmarshal([]byte(text), &x); err != nil || !x.Active || x.Aud != v.url {
		return nil, fmt.Errorf("%w: %s", auth.ErrInvalidToken, text)
	}
	return &auth.TokenInfo{Scopes: strings.Fields(x.Scope), Expiration: time.Unix(x.Exp, 0), UserID: x.Sub}, nil
}

// post posts a form to the provider, as a client with a secret if one is given, and returns the answer.
func (v *provider) post(ctx context.Context, path string, form url.Values, client, secret string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.issuer+path, strings.NewReader(form.Encode()))
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

// TestE2ELoginAtProvider logs in at a real identity provider that rotates refresh tokens strictly:
// tokens run out and are renewed, also while the daemon is killed, and the login is kept. A refresh
// token that is used twice, as by a thief, ends it, and the next login begins anew.
func TestE2ELoginAtProvider(t *testing.T) {
	t.Parallel()
	v := newProvider(t)
	p := newPlace(t).login().withBrowser().faults()
	p.loginPort(t)
	if out := p.must("servers", "add", "far", v.url); !strings.Contains(out, "far needs a login") {
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

	text, err := v.post(t.Context(), "/token", url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {old.Refresh.Reveal()}, "client_id": {old.ClientID},
	}, "", "")
	if err != nil || !strings.Contains(text, "invalid_grant") {
		t.Errorf("the thief gets %s, %v", text, err)
	}
	v.until(t, "revoked", 1)
	call("after the theft", `"not_logged_in"`)
	logIn()
	call("after the second login", `"done"`)
	if out := p.must("servers", "logout", "far"); !strings.Contains(out, "has taken its tokens back") {
		t.Errorf("servers logout says %s", out)
	}
	v.until(t, "revoked", 2)
	call("after the logout", `"not_logged_in"`)
	if n := v.count("registered"); n != 1 {
		t.Errorf("%d registrations for two logins", n)
	}
	a.rest()
}

// TestE2ELoginAtProviderByDevice logs in with a code that is entered in a browser elsewhere, without a
// listener here.
func TestE2ELoginAtProviderByDevice(t *testing.T) {
	t.Parallel()
	v := newProvider(t)
	p := newPlace(t).login().configure(map[string]any{"far": map[string]any{"url": v.url}})
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
func TestE2EMachineAtProvider(t *testing.T) {
	t.Parallel()
	v := newProvider(t)
	p := newPlace(t).login().configure(map[string]any{"far": map[string]any{"url": v.url, "oauth": map[string]any{
		"grant": "client_credentials", "clientId": "resource", "clientSecret": "resource-secret",
	}}})
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
