package flow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/login"
	"holdline/daemon/login/logintest"
)

// TestClientID checks which client id is used, in the order of the design, and how the client
// shows who it is.
func TestClientID(t *testing.T) {
	t.Parallel()
	const document = "https://example.com/client.json"
	takes := map[string]any{"client_id_metadata_document_supported": true}
	for name, test := range map[string]struct {
		o          logintest.Options
		change     func(*person)
		id, method string // "" for a registered id
	}{
		"configured, public": {
			logintest.Options{Metadata: takes}, func(p *person) {
				p.MetadataURL = document
				p.Client.ClientID = "mine"
				p.server.AddClient("mine", "")
			}, "mine", login.AuthNone,
		},
		"configured, with a secret": {
			logintest.Options{}, func(p *person) {
				p.Client.ClientID, p.Client.Secret = "mine", "my secret"
				p.server.AddClient("mine", "my secret")
			}, "mine", login.AuthBasic,
		},
		"configured, and basic is not known": {
			logintest.Options{Metadata: map[string]any{
				"token_endpoint_auth_methods_supported": []string{"client_secret_post"},
			}}, func(p *person) {
				p.Client.ClientID, p.Client.Secret = "mine", "my secret"
				p.server.AddClient("mine", "my secret")
			}, "mine", login.AuthPost,
		},
		"configured with its method": {
			logintest.Options{}, func(p *person) {
				p.Client.ClientID, p.Client.Secret, p.Client.AuthMethod = "mine", "my secret", login.AuthPost
				p.server.AddClient("mine", "my secret")
			}, "mine", login.AuthPost,
		},
		"a document": {
			logintest.Options{Metadata: takes}, func(p *person) { p.MetadataURL = document }, document, login.AuthNone,
		},
		"a document that the server does not take": {
			logintest.Options{}, func(p *person) { p.MetadataURL = document }, "", login.AuthNone,
		},
		"registered": {logintest.Options{}, func(*person) {}, "", login.AuthNone},
		"registered where none is not known": {
			logintest.Options{Confidential: true, Metadata: map[string]any{
				"token_endpoint_auth_methods_supported": []string{"client_secret_post", "client_secret_basic"},
			}}, func(*person) {}, "", login.AuthBasic,
		},
		"registered, and the server wants a secret": {
			logintest.Options{Confidential: true}, func(*person) {}, "", login.AuthBasic,
		},
		"of the command line": {
			logintest.Options{}, func(p *person) {
				p.ClientID = "typed"
				p.server.AddClient("typed", "")
			}, "typed", login.AuthNone,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t, test.o)
			test.change(p)
			l, err := p.run()
			if err != nil {
				t.Fatal(err)
			}
			if n := len(p.server.Registrations()); (n == 0) != (test.id != "") || n > 1 {
				t.Errorf("%d registrations", n)
			}
			if l.AuthMethod != test.method || test.id != "" && l.ClientID != test.id ||
				(l.Registered == "") != (test.id != "") {
				t.Errorf("the login is %+v, want %s by %s", l, test.id, test.method)
			}
			f := p.form("/token")
			if want := test.method != login.AuthBasic; f.Has("client_id") != want ||
				f.Has("client_secret") != (test.method == login.AuthPost) {
				t.Errorf("the token request has %v", f)
			}
		})
	}
}

// TestClientOfAnotherServer checks that a client id which was used with one authorization server
// is not shown to another.
func TestClientOfAnotherServer(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{})
	p.Client.ClientID = "mine"
	p.server.AddClient("mine", "")
	if _, err := p.run(); err != nil {
		t.Fatal(err)
	}
	other := logintest.Start(t, logintest.Options{})
	p.server.Set(func(o *logintest.Options) {
		o.Resource = map[string]any{"authorization_servers": []string{other.Base}}
	})
	p.Force = true
	if _, err := p.run(); err == nil || !strings.Contains(err.Error(), "its client id belongs to") {
		t.Errorf("the client id goes to another server: %v", err)
	}
	if paths := other.Paths(); slices.ContainsFunc(paths, func(path string) bool { return !strings.Contains(path, "well-known") }) {
		t.Errorf("the other server was asked %q", paths)
	}
}

// TestClientOfAnotherServer_AfterLogout checks that a logout does not make a configured client free for
// another authorization server, and that the command line does not, either.
func TestClientOfAnotherServer_AfterLogout(t *testing.T) {
	t.Parallel()
	p, other := newPerson(t, logintest.Options{}), logintest.Start(t, logintest.Options{})
	p.Client.ClientID = "mine"
	p.server.AddClient("mine", "")
	refused := func(when string) {
		t.Helper()
		if _, err := p.run(); err == nil || !strings.Contains(err.Error(), "its client id belongs to") {
			t.Errorf("%s the client id goes to another server: %v", when, err)
		}
	}
	p.server.Set(func(o *logintest.Options) {
		o.Resource = map[string]any{"authorization_servers": []string{p.server.Base, other.Base}}
	})
	p.Client.Issuer, p.Issuer = p.server.Base, other.Base
	refused("by --issuer")
	p.Client.Issuer, p.Issuer = "", ""
	if _, err := p.run(); err != nil {
		t.Fatal(err)
	}
	if _, err := Logout(t.Context(), p.Store, p.HTTP, p.targetID(), &p.Client); err != nil {
		t.Fatal(err)
	}
	if err := p.Store.Configure(t.Context(), p.targetID(), &p.Client); err != nil { // as each start of a process does
		t.Fatal(err)
	}
	p.server.Set(func(o *logintest.Options) {
		o.Resource = map[string]any{"authorization_servers": []string{other.Base}}
	})
	refused("after a logout")
}

// TestMachine_StaysWithItsServer checks that the secret of a machine does not go to another
// authorization server when the MCP server names that.
func TestMachine_StaysWithItsServer(t *testing.T) {
	t.Parallel()
	s, other := logintest.Start(t, logintest.Options{Life: time.Hour}), logintest.Start(t, logintest.Options{})
	store, target := login.Open(t.TempDir()+"/logins", nil), login.TargetID(s.URL, "mine", "", "")
	s.AddClient("mine", "my secret")
	cred := login.Credentials{ClientID: "mine", Secret: "my secret", Grant: login.GrantClient}
	if err := store.Configure(t.Context(), target, &cred); err != nil {
		t.Fatal(err)
	}
	refused := func() (login.Secret, error) { // a new process each time
		tokens := login.NewTokens(login.Options{
			Name: "far", URL: s.URL, Store: store, Target: target, Log: slog.New(slog.DiscardHandler), Discover: Machine,
		})
		defer tokens.Close()
		token, err := tokens.Token(t.Context(), true)
		if err != nil {
			return "", err
		}
		return tokens.Refused(t.Context(), token, http.StatusUnauthorized, http.Header{"Www-Authenticate": {"Bearer"}}, false)
	}
	if token, err := refused(); err != nil || token == "" {
		t.Fatalf("the first token: %v", err)
	}
	s.Set(func(o *logintest.Options) { o.Resource = map[string]any{"authorization_servers": []string{other.Base}} })
	if _, err := refused(); err == nil || !strings.Contains(err.Error(), "set oauth.issuer") {
		t.Errorf("the server names another one: %v", err)
	}
	if err := errors.Join(
		store.Remove(t.Context(), target, &login.Target{}), store.Configure(t.Context(), target, &cred),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := refused(); err == nil || !strings.Contains(err.Error(), "set oauth.issuer") || len(other.Forms()) > 0 {
		t.Errorf("the server names another one, after a logout: %v; %d forms", err, len(other.Forms()))
	}
}

// TestSecretsOfTwoRegistrations checks that a login keeps the secret of its client when another login
// has registered one for more scopes.
func TestSecretsOfTwoRegistrations(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{Confidential: true, Scopes: []string{"a"}, Metadata: map[string]any{
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic"},
	}})
	q := personAt(t, p.server, p.Store)
	q.Ports, q.Scopes, q.Client.Account = p.Ports, []string{"b"}, "private"
	for _, one := range []*person{p, q} {
		if _, err := one.run(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(p.server.Registrations()); n != 2 {
		t.Fatalf("%d registrations", n)
	}
	for _, one := range []*person{p, q} {
		tokens := login.NewTokens(login.Options{
			Name: "far", URL: p.server.URL, Store: p.Store, Target: one.targetID(), Log: slog.New(slog.DiscardHandler),
		})
		t.Cleanup(tokens.Close)
		token, err := tokens.Refused(t.Context(), login.Secret(one.token()), http.StatusUnauthorized, http.Header{}, false)
		if err != nil || token == "" {
			t.Errorf("account %q: %v", one.Client.Account, err)
		}
	}
}

// TestSecretChanged checks that a login after the client was refused is a new one, and that a
// corrected secret reaches running processes also where there is a login.
func TestSecretChanged(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{})
	p.Client.ClientID, p.Client.Secret = "mine", "old secret"
	p.server.AddClient("mine", "old secret")
	l, err := p.run()
	if err != nil {
		t.Fatal(err)
	}
	p.Client.Secret = "new secret"
	p.server.AddClient("mine", "new secret")
	c := new(login.Credentials)
	if _, fresh, err := Run(t.Context(), p.Options); fresh || err != nil || p.Store.Read(p.targetID(), c) != nil ||
		c.Secret != "new secret" {
		t.Errorf("there is a login: %v, %v, %+v", fresh, err, c)
	}
	if err := p.Store.Update(t.Context(), l.ID(), l, func() error {
		l.Retry = login.Retry{At: time.Now().Add(time.Minute), Failures: 1, Client: true}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if l, fresh, err := Run(t.Context(), p.Options); !fresh || err != nil || l.Retry.Failures > 0 {
		t.Errorf("the client was refused: %v, %v", fresh, err)
	}
}

// TestRegistrationOfAnotherServer checks that a server which has moved to another authorization
// server gets a registration there, that no id of the first is seen there, and that the first
// one's serves again once it is back.
func TestRegistrationOfAnotherServer(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{})
	first, err := p.run()
	if err != nil {
		t.Fatal(err)
	}
	other := logintest.Start(t, logintest.Options{})
	p.server.Set(func(o *logintest.Options) {
		o.Resource = map[string]any{"authorization_servers": []string{other.Base}}
	})
	second, err := p.run()
	if err != nil || second.Issuer != other.Base || len(other.Registrations()) != 1 {
		t.Fatalf("%v, %+v", err, second)
	}
	seen := fmt.Sprint(other.Forms(), other.Registrations())
	for _, not := range []string{first.ClientID, first.Refresh.Reveal(), first.Access.Reveal()} {
		if strings.Contains(seen, not) {
			t.Errorf("the other server gets %s of the first: %s", not, seen)
		}
	}
	p.server.Set(func(o *logintest.Options) { o.Resource = nil })
	p.Force = true
	if third, err := p.run(); err != nil || third.ClientID != first.ClientID || len(p.server.Registrations()) != 1 {
		t.Errorf("back at the first: %v, %+v", err, third)
	}
}

// TestRegistrationRefused checks what a login makes of a server that refuses to register.
func TestRegistrationRefused(t *testing.T) {
	t.Parallel()
	refuse := func(code string) func(map[string]any) *logintest.Reply {
		return func(map[string]any) *logintest.Reply {
			return &logintest.Reply{Status: http.StatusBadRequest, Text: `{"error": "` + code + `", "error_description": "not here"}`}
		}
	}
	p := newPerson(t, logintest.Options{Register: func(asked map[string]any) *logintest.Reply {
		if strings.Contains(fmt.Sprint(asked["redirect_uris"]), "127.0.0.1") {
			return refuse("invalid_redirect_uri")(asked)
		}
		return nil
	}})
	if l, err := p.run(); err != nil || !strings.HasPrefix(p.form("/token").Get("redirect_uri"), "http://localhost:") {
		t.Errorf("a server that wants localhost: %v, %+v", err, l)
	}
	p.Force = true
	if _, err := p.run(); err != nil || len(p.server.Registrations()) != 3 {
		t.Errorf("the registration with localhost is not used again: %v, %v", err, p.server.Registrations())
	}

	for disliked, wants := range map[string]string{
		"application_type": "", "software_id": "", "refresh_token": "", "127.0.0.1": "localhost",
	} {
		p = newPerson(t, logintest.Options{Register: func(asked map[string]any) *logintest.Reply {
			if strings.Contains(fmt.Sprint(asked), disliked) {
				return &logintest.Reply{
					Status: http.StatusBadRequest,
					Text:   `{"error": "invalid_client_metadata", "error_description": "no ` + disliked + ` in a redirect URI"}`,
				}
			}
			return nil
		}})
		if wants == "" {
			p.server.Set(func(o *logintest.Options) {
				old := o.Register
				o.Register = func(asked map[string]any) *logintest.Reply {
					if reply := old(asked); reply != nil {
						reply.Text = strings.Replace(reply.Text, " in a redirect URI", "", 1)
						return reply
					}
					return nil
				}
			})
		}
		if _, err := p.run(); err != nil || !strings.Contains(p.form("/token").Get("redirect_uri"), wants) {
			t.Errorf("a server that refuses %s: %v, %v", disliked, err, p.server.Registrations())
		}
	}

	p = newPerson(t, logintest.Options{Register: refuse("access_denied")})
	if _, err := p.run(); err == nil || !strings.Contains(err.Error(), "not here") {
		t.Errorf("a server that refuses: %v", err)
	}
	for text, want := range map[string]string{
		`{}`: "no id",
		`{"client_id": "x", "token_endpoint_auth_method": "client_secret_basic"}`: "no secret",
		`{"client_id": "x", "token_endpoint_auth_method": "tls_client_auth"}`:     "tls_client_auth",
		`<html>`: "no id",
	} {
		p := newPerson(t, logintest.Options{Register: func(map[string]any) *logintest.Reply {
			return &logintest.Reply{Status: http.StatusCreated, Text: text}
		}})
		if _, err := p.run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestRegistrationRefused_NoOtherPort checks that a login ends, and asks a person for nothing, if a server
// wants localhost in the redirect URI and nothing can listen there.
func TestRegistrationRefused_NoOtherPort(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{})
	p.server.Set(func(o *logintest.Options) {
		o.Register = func(map[string]any) *logintest.Reply {
			p.Ports = []int{-1}
			return &logintest.Reply{Status: http.StatusBadRequest, Text: `{"error": "invalid_redirect_uri"}`}
		}
	})
	p.Ask = func(_ context.Context, question string, _ bool) (login.Secret, error) {
		t.Errorf("asked: %s", question)
		return "", errors.New("nothing was typed")
	}
	if _, err := p.run(); err == nil || !strings.Contains(err.Error(), "redirect URI") {
		t.Errorf("got %v", err)
	}
}

// TestRegistrationRunsOut checks that a registration whose secret has run out is not used.
func TestRegistrationRunsOut(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{})
	if _, err := p.run(); err != nil {
		t.Fatal(err)
	}
	ids, err := p.Store.IDs(&login.Registration{})
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	reg := new(login.Registration)
	if err := p.Store.Update(t.Context(), ids[0], reg, func() error {
		reg.Expires = time.Now().Add(-time.Minute)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p.Force = true
	if _, err := p.run(); err != nil || len(p.server.Registrations()) != 2 {
		t.Errorf("%v, %d registrations", err, len(p.server.Registrations()))
	}
}

// TestTypedClient checks logins at a server that registers no clients: the person types one,
// which is kept, or is told what to do.
func TestTypedClient(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{Metadata: map[string]any{"registration_endpoint": nil}})
	if _, err := p.run(); err == nil || !strings.Contains(err.Error(), "holdline servers login far --client-id ID") ||
		!strings.Contains(err.Error(), fmt.Sprintf("http://127.0.0.1:%d/callback", p.Ports[0])) {
		t.Errorf("without a terminal: %v", err)
	}
	p.server.AddClient("typed", "typed secret")
	asked := 0
	p.Ask = func(_ context.Context, question string, secret bool) (login.Secret, error) {
		asked++
		if secret != (asked == 2) {
			t.Errorf("question %d: %s", asked, question)
		}
		return []login.Secret{"typed", "typed secret"}[asked-1], nil
	}
	l, err := p.run()
	if err != nil || l.ClientID != "typed" || l.AuthMethod != login.AuthBasic {
		t.Fatalf("%v, %+v", err, l)
	}
	p.Force, p.Ask = true, nil
	if l, err = p.run(); err != nil || l.ClientID != "typed" {
		t.Errorf("the second login does not know the client: %v, %+v", err, l)
	}
	// Each start of a process writes what the configuration says, here nothing.
	if err := p.Store.Configure(t.Context(), p.targetID(), &p.Client); err != nil {
		t.Fatal(err)
	}
	other := logintest.Start(t, logintest.Options{Metadata: map[string]any{"registration_endpoint": nil}})
	p.server.Set(func(o *logintest.Options) { o.Resource = map[string]any{"authorization_servers": []string{other.Base}} })
	if l, err = p.run(); err == nil || len(other.Forms()) > 0 {
		t.Errorf("the client goes to another server: %+v", l)
	}
	p.server.Set(func(o *logintest.Options) { o.Resource = nil })
	p.server.AddClient("second", "second secret")
	p.ClientID = "second" // the metadata does not say which clients have a secret
	p.Ask = func(_ context.Context, _ string, secret bool) (login.Secret, error) {
		if !secret {
			t.Error("asked for an id that is there")
		}
		return "second secret", nil
	}
	if l, err = p.run(); err != nil || l.ClientID != "second" || l.AuthMethod != login.AuthBasic {
		t.Errorf("a client of the command line: %v, %+v", err, l)
	}
	p.ClientID = ""
	p.server.AddClient("second", "another secret")
	if err := p.Store.Update(t.Context(), l.ID(), l, func() error {
		l.Retry = login.Retry{At: time.Now().Add(time.Minute), Failures: 1, Client: true}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p.Ask = func(context.Context, string, bool) (login.Secret, error) { return "another secret", nil }
	if l, err = p.run(); err != nil || l.Retry.Failures > 0 {
		t.Errorf("a typed client whose secret has changed: %v, %+v", err, l)
	}
	p.Ask = func(context.Context, string, bool) (login.Secret, error) { return "", errors.New("interrupted") }
	p.Store = login.Open(t.TempDir()+"/logins", nil)
	if _, err = p.run(); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("a person who does not answer: %v", err)
	}
}

// TestFixedPorts checks that a client whose redirect URI is registered elsewhere does without a
// port of the system's choice, and that one that we register takes one.
func TestFixedPorts(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", freePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	p := newPerson(t, logintest.Options{Metadata: map[string]any{"client_id_metadata_document_supported": true}})
	p.Ports = []int{port}
	if l, err := p.run(); err != nil || strings.Contains(p.form("/token").Get("redirect_uri"), fmt.Sprint(port)) {
		t.Errorf("a registration: %v, %+v", err, l)
	}
	p.MetadataURL, p.Force = "https://example.com/client.json", true
	if _, err := p.run(); err == nil || !strings.Contains(err.Error(), fmt.Sprint("the ports ", port)) {
		t.Errorf("a document: %v", err)
	}
	p.RedirectURI = fmt.Sprintf("http://127.0.0.1:%d/callback", port)
	if _, err := p.run(); err == nil || !strings.Contains(err.Error(), "another program has the port of "+p.RedirectURI) {
		t.Errorf("a fixed redirect URI: %v", err)
	}
	p.RedirectURI = fmt.Sprintf("http://localhost:%d/mine", freePort(t))
	if _, err := p.run(); err != nil || p.form("/token").Get("redirect_uri") != p.RedirectURI {
		t.Errorf("a fixed redirect URI with a path of its own: %v", err)
	}
}

// TestPaste checks a login whose browser is elsewhere: nothing listens, and only the address at
// which it has ended is taken.
func TestPaste(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pastes func(good string) []string
		want   string
	}{
		"the address":      {func(good string) []string { return []string{"  " + good + "\t"} }, ""},
		"after two wrong":  {func(good string) []string { return []string{"code", good[:len(good)-1], good} }, ""},
		"a fragment at it": {func(good string) []string { return []string{good + "#_=_"} }, ""},
		"three wrong": {func(good string) []string {
			return []string{"http://127.0.0.1:1/?x", strings.Replace(good, "state=", "state=x", 1), good + "&code=2"}
		}, "no address of this login was pasted, 3 times"},
		"too long": {func(good string) []string {
			long := good + "&x=" + strings.Repeat("x", maxPaste)
			return []string{long, long, long}
		}, "3 times"},
		"an error": {func(good string) []string {
			u, _ := url.Parse(good)
			q := u.Query()
			q.Del("code")
			q.Set("error", "access_denied")
			return []string{"http://" + u.Host + u.Path + "?" + q.Encode()}
		}, "declined"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t, logintest.Options{Form: true})
			p.Way = Paste
			p.Open = func(context.Context, string) error {
				t.Error("a browser is opened")
				return nil
			}
			var pastes []string
			p.Ask = func(_ context.Context, _ string, secret bool) (login.Secret, error) {
				if !secret {
					t.Error("the code is shown")
				}
				if pastes == nil {
					pastes = test.pastes(p.end(t))
				}
				next := pastes[0]
				pastes = pastes[1:]
				return login.Secret(next), nil
			}
			_, err := p.run()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	p := newPerson(t, logintest.Options{})
	p.Way = Paste
	if _, err := p.run(); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("without a terminal: %v", err)
	}
}

// end opens the printed address in a browser elsewhere, and returns the address at which that
// ends: nothing listens there.
func (p *person) end(t *testing.T) string {
	t.Helper()
	said, _ := p.words()
	i := strings.Index(said, p.server.Base+"/authorize")
	if i < 0 {
		t.Fatalf("no address is printed: %s", said)
	}
	address := strings.Fields(said[i:])[0]
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := browser().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	at, err := resp.Location()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", at.Host); err == nil {
		c.Close()
		t.Error("something listens at the redirect URI")
	}
	return at.String()
}

// TestDevice checks logins by a code for a device.
func TestDevice(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		token func(n int, approve func()) *logintest.Reply // nil handles the request
		want  string
		polls int // least number of questions
	}{
		"entered at once": {nil, "", 1},
		"entered late": {func(n int, approve func()) *logintest.Reply {
			if n < 3 {
				return &logintest.Reply{Status: 400, Text: `{"error": "authorization_pending"}`}
			}
			return nil
		}, "", 3},
		"declined": {func(int, func()) *logintest.Reply {
			return &logintest.Reply{Status: 400, Text: `{"error": "access_denied"}`}
		}, "declined in the browser", 1},
		"too late": {func(int, func()) *logintest.Reply {
			return &logintest.Reply{Status: 400, Text: `{"error": "expired_token"}`}
		}, "nobody entered the code in time", 1},
		"asked too often": {func(int, func()) *logintest.Reply {
			return &logintest.Reply{Status: 400, Text: `{"error": "slow_down"}`}
		}, "the test ends", 1},
		"refused": {func(int, func()) *logintest.Reply {
			return &logintest.Reply{Status: 400, Text: `{"error": "invalid_grant", "error_description": "said so"}`}
		}, "said so", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("the login hangs"))
			defer cancel()
			ctx, end := context.WithCancelCause(ctx)
			defer end(nil)
			p := newPerson(t, logintest.Options{Interval: 0.01, Scopes: []string{"a"}})
			polls := 0
			p.server.Set(func(o *logintest.Options) {
				o.Token = func(n int, _ url.Values) *logintest.Reply {
					polls = n
					if test.want == "the test ends" { // 5 s are added to the pause
						time.AfterFunc(500*time.Millisecond, func() { end(errors.New(test.want)) })
					}
					if test.token == nil {
						return nil
					}
					return test.token(n, nil)
				}
			})
			p.Way = Headless
			say := p.Say
			p.Say = func(format string, args ...any) {
				say(format, args...)
				p.server.Approve() // the person is quick
			}
			_, _, err := Run(ctx, p.Options)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if polls < test.polls || name == "asked too often" && polls > 1 {
				t.Errorf("%d questions, want %d", polls, test.polls)
			}
			said, _ := p.words()
			if !strings.Contains(said, "/activate in any browser, and enter the code: WDJB-MJHT") {
				t.Errorf("the code is not said: %s", said)
			}
			if f := p.form("/device"); f.Get("resource") != p.server.URL || f.Get("scope") != "a" || f.Get("client_id") == "" {
				t.Errorf("the request for a code: %v", f)
			}
			if f := p.form("/token"); f.Get("resource") != p.server.URL || f.Get("device_code") == "" {
				t.Errorf("the question for a token: %v", f)
			}
			grants := p.server.Registrations()[0]["grant_types"]
			if !strings.Contains(fmt.Sprint(grants), login.GrantDevice) {
				t.Errorf("the registration has the grants %v", grants)
			}
		})
	}
	p := newPerson(t, logintest.Options{Metadata: map[string]any{"device_authorization_endpoint": nil}})
	p.Way = Device
	if _, err := p.run(); err == nil || !strings.Contains(err.Error(), "for codes of devices") {
		t.Errorf("a server without codes: %v", err)
	}
	p.Way = Headless // which pastes then
	if _, err := p.run(); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("a server without codes: %v", err)
	}
}

// TestLogout checks that a logout takes back both tokens and leaves no file of the login, also
// if the server does not answer.
func TestLogout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		o       logintest.Options
		change  func(*person)
		revoked bool
		why     string
	}{
		"taken back": {logintest.Options{Confidential: true, Life: time.Hour}, func(*person) {}, true, ""},
		"not offered": {
			logintest.Options{Metadata: map[string]any{"revocation_endpoint": nil}}, func(*person) {}, false, "offers no way",
		},
		"the server is gone": {logintest.Options{}, func(p *person) { p.server.Close() }, false, "no server listens"},
		"configured":         {logintest.Options{}, func(*person) {}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t, test.o)
			if name == "configured" {
				p.Client.ClientID, p.Client.Secret = "mine", "my secret"
				p.server.AddClient("mine", "my secret")
			}
			if _, err := p.run(); err != nil {
				t.Fatal(err)
			}
			test.change(p)
			got, err := Logout(t.Context(), p.Store, p.HTTP, p.targetID(), &p.Client)
			if err != nil || !got.Had || got.Revoked != test.revoked || !strings.Contains(got.Why, test.why) {
				t.Errorf("%v, %+v", err, got)
			}
			var hints []string
			for _, f := range p.server.Forms() {
				if f.Get("path") == "/revoke" {
					hints = append(hints, f.Get("token_type_hint"))
				}
			}
			if test.revoked && !slices.Equal(hints, []string{"refresh_token", "access_token"}) {
				t.Errorf("taken back: %q", hints)
			}
			for _, r := range []login.Record{&login.Login{}, &login.Target{}} {
				if ids, err := p.Store.IDs(r); err != nil && !errors.Is(err, fs.ErrNotExist) || len(ids) > 0 {
					t.Errorf("left: %T %v, %v", r, ids, err)
				}
			}
			if got, err := Logout(t.Context(), p.Store, p.HTTP, p.targetID(), &p.Client); err != nil || got.Had {
				t.Errorf("a second logout: %v, %+v", err, got)
			}
		})
	}
}

// TestFileOfClientDamaged_LoginAndLogoutReplaceIt checks that a damaged file of a target's client keeps nobody from
// a new login, and that nothing of it is left after either.
func TestFileOfClientDamaged_LoginAndLogoutReplaceIt(t *testing.T) {
	t.Parallel()
	for name, configured := range map[string]bool{"configured": true, "registered": false} {
		for what, text := range map[string]string{"empty": "", "half": `{"version":1,"id":"`, "junk": "x"} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir() + "/logins"
				p := personAt(t, logintest.Start(t, logintest.Options{}), login.Open(dir, nil))
				if configured {
					p.Client.ClientID, p.Client.Secret = "mine", "my secret"
					p.server.AddClient("mine", "my secret")
				}
				damage := func() {
					path := filepath.Join(dir, "secrets", p.targetID()+".json")
					err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
					if err != nil {
						t.Fatal(err)
					}
				}
				readable := func() {
					t.Helper()
					if err := p.Store.ReadIfThere(p.targetID(), new(login.Credentials)); err != nil {
						t.Error(err)
					}
				}
				damage()
				if _, err := p.run(); err != nil {
					t.Fatal(err)
				}
				readable()
				damage()
				for _, had := range []bool{true, false} {
					if got, err := Logout(t.Context(), p.Store, p.HTTP, p.targetID(), &p.Client); err != nil || got.Had != had {
						t.Errorf("%v, %+v; want a login: %v", err, got, had)
					}
					readable()
				}
			})
		}
	}
}

// TestMachine checks what a server without a person is found to want.
func TestMachine(t *testing.T) {
	t.Parallel()
	s := logintest.Start(t, logintest.Options{
		Scopes: []string{"a"}, Metadata: map[string]any{"authorization_endpoint": nil, "code_challenge_methods_supported": nil},
	})
	cred := &login.Credentials{ClientID: "mine", Secret: "my secret", Grant: login.GrantClient, Account: "work"}
	c := login.NewClient(s.URL, "", "1")
	l, err := Machine(t.Context(), c, s.URL, login.Challenge{Scopes: []string{"b"}}, cred)
	if e := l.Endpoint(cred); err != nil || e.URL != s.Base+"/token" || e.Method != login.AuthBasic || e.Issuer != s.Base ||
		e.ClientID != "mine" || e.Secret != cred.Secret || l.Resource != s.URL || l.Audience != s.URL || !slices.Equal(l.Requested, []string{"b"}) || l.Account != "work" {
		t.Errorf("%v\n%+v", err, l)
	}
	cred.PrivateKey, cred.Scopes = "a key", []string{"c"}
	if l, err = Machine(t.Context(), c, s.URL, login.Challenge{}, cred); err != nil || l.AuthMethod != login.AuthJWT ||
		l.Endpoint(cred).Key != "a key" || !slices.Equal(l.Requested, []string{"c"}) {
		t.Errorf("%v\n%+v", err, l)
	}
}

// TestProbe checks what a server is asked to find out whether it wants a login.
func TestProbe(t *testing.T) {
	t.Parallel()
	s := logintest.Start(t, logintest.Options{})
	c := login.NewClient(s.URL, "", "1")
	got, err := Probe(t.Context(), c, &Server{Address: s.URL, Version: "1"})
	if err != nil || got == nil || !got.Bearer || got.Metadata != s.Base+atMCP {
		t.Errorf("a server that asks: %v, %+v", err, got)
	}
	s.Set(func(o *logintest.Options) { o.Open = true })
	if got, err = Probe(t.Context(), c, &Server{Address: s.URL, Version: "1"}); err != nil || got != nil {
		t.Errorf("a server that does not ask: %v, %+v", err, got)
	}
	s.Close()
	if _, err = Probe(t.Context(), c, &Server{Address: s.URL}); err == nil ||
		err.Error() != "cannot be reached: no server listens at its address" {
		t.Errorf("a server that is gone: %v", err)
	}
	var seen []string
	srv := newSite(t, nil)
	srv.serve = func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.Header.Get("Mcp-Session-Id")+" "+r.Header.Get("X-Team"))
		if strings.HasSuffix(r.URL.Path, "/old") {
			http.Redirect(w, r, "new", http.StatusTemporaryRedirect)
		}
		w.Header().Set("Mcp-Session-Id", "one")
	}
	for path, want := range map[string][]string{
		"": {"POST  a", "DELETE one a"}, "/old": {"POST  a", "POST  a", "DELETE one a"},
	} {
		seen = nil
		_, err = Probe(t.Context(), login.NewClient(srv.url, "", "1"), &Server{
			Address: srv.url + path, Headers: map[string]string{"X-Team": "a"},
		})
		if err != nil || !slices.Equal(seen, want) {
			t.Errorf("a session that began at %q: %v, %q", path, err, seen)
		}
	}
}

// TestOpener checks which program opens the browser, and that no shell reads the address.
//
// It does not run beside tests that close a listener: until the exec, a child that it starts
// holds a copy of that listener, which then still accepts connections.
func TestOpener(t *testing.T) {
	dir := t.TempDir()
	env := func(browser string) func(string) string {
		return func(name string) string { return map[string]string{"BROWSER": browser}[name] }
	}
	for _, test := range []struct {
		configured, variable string
		want                 []string
	}{
		{"/bin/sh -c", "", []string{"/bin/sh", "-c"}},
		{"", "/bin/true --new:/bin/false", []string{"/bin/true", "--new"}},
		{"none", "/bin/true", nil},
		{"/nowhere/browser", "/bin/true", nil},
	} {
		if got := Opener(test.configured, env(test.variable)); !slices.Equal(got, test.want) {
			t.Errorf("%q and $BROWSER %q: %q, want %q", test.configured, test.variable, got, test.want)
		}
	}
	if err := OpenWith(nil, nil)(t.Context(), "https://x"); err == nil {
		t.Error("a browser is opened without a program")
	}
	address := "https://x/?a=1&b=$(touch " + dir + "/shell)"
	for n, argv := range [][]string{
		{"/bin/sh", "-c", `echo "$1" > "$0"`, dir + "/0"},
		{"/bin/sh", "-c", `echo "$0" > "$1"`, "%s", dir + "/1"},
	} {
		if err := OpenWith(argv, nil)(t.Context(), address); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%s/%d", dir, n)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			text, _ := os.ReadFile(want) // it comes
			if strings.TrimSpace(string(text)) == address {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the program got %q, want %q", text, address)
			}
		}
	}
	if _, err := os.Stat(dir + "/shell"); err == nil {
		t.Error("a shell has read the address")
	}
}

// TestDeviceWaits checks that a server which wants a very long pause between questions is not asked
// without any.
func TestDeviceWaits(t *testing.T) {
	t.Parallel()
	p := newPerson(t, logintest.Options{Interval: 1e11})
	p.Way = Device
	ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("the test ends"))
	defer cancel()
	if _, _, err := Run(ctx, p.Options); err == nil || !strings.Contains(err.Error(), "the test ends") {
		t.Errorf("Run = %v, want the end of the test", err)
	}
	for _, f := range p.server.Forms() {
		if f.Get("path") == "/token" {
			t.Fatalf("the server was asked %v", f)
		}
	}
}
