package login_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdline/daemon/login"
	"holdline/daemon/login/logintest"
	"holdline/protocol/fault"
)

// machineUser begins a test of a client without a person. found counts its discoveries.
func machineUser(t *testing.T, o logintest.Options) (u *user, tokens func() *login.Tokens, found func() int) {
	t.Helper()
	srv := logintest.Start(t, o)
	client := srv.Issue().Client // which is registered, and public
	u = &user{t: t, srv: srv, store: login.Open(filepath.Join(t.TempDir(), "logins"), nil)}
	u.target = login.TargetID(srv.URL, client, "", "")
	var c login.Credentials
	if err := u.store.Update(t.Context(), u.target, &c, func() error {
		c.ClientID, c.Grant = client, login.GrantClient
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	n := 0
	discover := func(
		_ context.Context, _ *login.Client, address string, asked login.Challenge, c *login.Credentials,
	) (login.Login, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		if !asked.Bearer || address != srv.URL || c.ClientID != client {
			t.Errorf("discovery of %s with %+v as %s", address, asked, c.ClientID)
		}
		l := login.Login{
			Issuer: srv.Base, Audience: srv.URL, Resource: srv.URL, ClientID: client, AuthMethod: login.AuthNone,
			TokenURL: srv.Base + "/token", Requested: []string{"a"},
		}
		if asked.Scopes != nil {
			l.Requested = asked.Scopes
		}
		return l, nil
	}
	return u, func() *login.Tokens {
			tokens := login.NewTokens(login.Options{
				Name: "build", URL: srv.URL, Store: u.store, Target: u.target, Version: "1",
				Log: slog.New(slog.DiscardHandler), Discover: discover,
			})
			t.Cleanup(tokens.Close)
			return tokens
		}, func() int {
			mu.Lock()
			defer mu.Unlock()
			return n
		}
}

// grants returns the forms of the grants that were asked for.
func (u *user) grants() (forms []url.Values) {
	for _, form := range u.srv.Forms() {
		if form.Get("grant_type") == login.GrantClient {
			forms = append(forms, form)
		}
	}
	return forms
}

// TestMachine_LogsInByItself checks that a client without a person gets a token at the first 401,
// asks again when it has run out, shares it between processes, and adds a scope once.
func TestMachine_LogsInByItself(t *testing.T) {
	need := []string{"a"}
	u, tokens, found := machineUser(t, logintest.Options{
		Life: time.Hour, NoRefresh: true, Need: func(string, string) []string { return need },
	})
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if err := u.call(t.Context(), tokens()); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if forms := u.grants(); len(forms) != 1 || forms[0].Get("scope") != "a" || forms[0].Get("resource") != u.srv.URL {
		t.Fatalf("asked for %v, want one grant", forms)
	}
	var c login.Credentials
	if err := u.store.Read(u.target, &c); err != nil || c.Bound != u.srv.Base {
		t.Errorf("the client is bound to %q, %v", c.Bound, err)
	}
	if status, err := u.store.Status(u.target, true); err != nil || status.State != login.StateIn || !status.Renews {
		t.Errorf("status %+v, %v", status, err)
	}
	before := found()
	u.change(func(l *login.Login) { l.Expires = time.Now().Add(-time.Second) })
	if err := u.call(t.Context(), tokens()); err != nil || len(u.grants()) != 2 || found() != before {
		t.Errorf("run out by our clock: %v, %d grants, %d discoveries", err, len(u.grants()), found()-before)
	}
	u.srv.Expire()
	if err := u.call(t.Context(), tokens()); err != nil || len(u.grants()) != 3 || found() == before {
		t.Errorf("refused by the server: %v, %d grants, %d discoveries", err, len(u.grants()), found()-before)
	}
	u.srv.Set(func(*logintest.Options) { need = []string{"b"} })
	if err := u.call(t.Context(), tokens()); err != nil || u.grants()[3].Get("scope") != "a b" {
		t.Errorf("one more scope: %v, %v", err, u.grants()[3])
	}
}

// TestMachine_UnknownScopeCostsOneCall checks that a scope which the authorization server does not
// know fails the call that needs it, and no other call, now or later.
func TestMachine_UnknownScopeCostsOneCall(t *testing.T) {
	var need []string
	u, tokens, _ := machineUser(t, logintest.Options{
		Life: time.Hour, NoRefresh: true, Need: func(string, string) []string { return need },
		Token: func(_ int, form url.Values) *logintest.Reply {
			if strings.Contains(form.Get("scope"), "admin") {
				return &logintest.Reply{Status: 400, Text: `{"error":"invalid_scope"}`}
			}
			return nil
		},
	})
	if err := u.call(t.Context(), tokens()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		u.srv.Set(func(*logintest.Options) { need = []string{"admin"} })
		wants(t, u.call(t.Context(), tokens()), fault.Unauthenticated, fault.InsufficientScope, "the scope admin")
		u.srv.Set(func(*logintest.Options) { need = nil })
		for _, end := range []func(){
			func() {}, u.srv.Expire, func() { u.change(func(l *login.Login) { l.Expires = time.Now().Add(-time.Second) }) },
		} {
			end()
			if err := u.call(t.Context(), tokens()); err != nil {
				t.Errorf("a call that does not need it: %v", err)
			}
		}
	}
	if target, l := u.file(); len(target.Wanted) > 0 || strings.Join(l.Requested, " ") != "a" {
		t.Errorf("wanted %v, requested %v", target.Wanted, l.Requested)
	}
}

// TestMachine_RefusedClientIsNotTriedAgain checks that a client which the server refuses is said so,
// with what to fix, and waits.
func TestMachine_RefusedClientIsNotTriedAgain(t *testing.T) {
	u, tokens, _ := machineUser(t, logintest.Options{Token: func(int, url.Values) *logintest.Reply {
		return &logintest.Reply{Status: 401, Text: `{"error":"invalid_client"}`}
	}})
	for range 3 {
		wants(t, u.call(t.Context(), tokens()), fault.Unauthenticated, fault.Rejected,
			"or oauth.privateKeyFile of mcpServers.build, then: holdline servers restart build")
	}
	if n := len(u.grants()); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestMachine_FailedDiscoveryIsNotRepeatedAtOnce checks that calls after a failed discovery fail like the
// first one, without a discovery of their own, which may take half a minute.
func TestMachine_FailedDiscoveryIsNotRepeatedAtOnce(t *testing.T) {
	u, _, _ := machineUser(t, logintest.Options{})
	n := 0
	tokens := login.NewTokens(login.Options{
		Name: "build", URL: u.srv.URL, Store: u.store, Target: u.target, Log: slog.New(slog.DiscardHandler),
		Discover: func(
			context.Context, *login.Client, string, login.Challenge, *login.Credentials,
		) (login.Login, error) {
			n++
			return login.Login{}, errors.New("its metadata is nowhere")
		},
	})
	for range 3 {
		wants(t, u.call(t.Context(), tokens), fault.Unauthenticated, fault.Unreachable, "none can be had: its metadata is nowhere")
	}
	tokens.Close()
	if n != 1 {
		t.Errorf("%d discoveries for 3 calls", n)
	}
}

// TestRepeatedTokens_AreNotKept checks that a token which a server repeats in its error is neither in
// the fault nor in a file.
func TestRepeatedTokens_AreNotKept(t *testing.T) {
	long := strings.Repeat("x", 290) // the text is cut within the token
	u := logIn(t, logintest.Options{Life: time.Hour, Token: func(_ int, form url.Values) *logintest.Reply {
		return &logintest.Reply{
			Status: 400, Text: `{"error":"invalid_target","error_description":"` + long + form.Get("refresh_token") + `"}`,
		}
	}})
	u.srv.Expire()
	err := u.call(t.Context(), u.tokens())
	_, l := u.file()
	if err == nil || strings.Contains(err.Error()+l.Retry.Why, "refresh-m") {
		t.Errorf("%v, kept %q", err, l.Retry.Why)
	}
	for _, spelled := range []string{`ab\/cd+=refresh`, `ab\u002fcd\u002b\u003drefresh`, "ab%2Fcd%2B%3Drefresh"} {
		u := logIn(t, logintest.Options{Life: time.Hour, Token: func(int, url.Values) *logintest.Reply {
			return &logintest.Reply{Status: 400, Text: `{"error":"invalid_target","error_description":"no ` + spelled + `"}`}
		}})
		u.change(func(l *login.Login) { l.Refresh = "ab/cd+=refresh" })
		u.srv.Expire()
		err := u.call(t.Context(), u.tokens())
		_, l := u.file()
		if err == nil || !strings.Contains(l.Retry.Why, "no ") || strings.Contains(err.Error()+l.Retry.Why, "cd") {
			t.Errorf("%s: %v, kept %q", spelled, err, l.Retry.Why)
		}
	}
}

// TestAssertion checks the JWT by which a client shows who it is, for each kind of key and each form of
// its file.
func TestAssertion(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rs, rerr := rsa.GenerateKey(rand.Reader, 2048)
	large, lerr := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	ec8, e8err := x509.MarshalPKCS8PrivateKey(ec)
	rs8, r8err := x509.MarshalPKCS8PrivateKey(rs)
	sec1, serr := x509.MarshalECPrivateKey(ec)
	large8, l8err := x509.MarshalPKCS8PrivateKey(large)
	if err := errors.Join(err, rerr, lerr, e8err, r8err, serr, l8err); err != nil {
		t.Fatal(err)
	}
	srv := logintest.Start(t, logintest.Options{})
	c := login.NewClient(srv.URL, "", "1")
	ask := func(der []byte, alg string) (string, error) {
		before := len(srv.Forms())
		_, err := c.Ask(t.Context(), login.Endpoint{
			URL: srv.Base + "/token", Issuer: "https://as", ClientID: "me", Method: login.AuthJWT, KeyID: "k1", Alg: alg,
			Key: login.Secret(pem.EncodeToMemory(&pem.Block{Type: "KEY", Bytes: der})),
		}, url.Values{"grant_type": {login.GrantClient}}, nil)
		if err != nil {
			return "", err
		}
		form := srv.Forms()[before]
		if form.Has("client_id") || form.Get("client_assertion_type") == "" {
			t.Errorf("sent %v", form)
		}
		return form.Get("client_assertion"), nil
	}
	for name, tt := range map[string]struct {
		der []byte
		alg string
	}{
		"ES256, PKCS#8": {ec8, "ES256"}, "ES256, SEC1": {sec1, "ES256"}, "RS256, PKCS#8": {rs8, "RS256"},
		"RS256, PKCS#1": {x509.MarshalPKCS1PrivateKey(rs), "RS256"},
	} {
		text, err := ask(tt.der, "")
		parts := strings.Split(text, ".")
		if err != nil || len(parts) != 3 {
			t.Errorf("%s: %v, %d parts", name, err, len(parts))
			continue
		}
		var head struct{ Alg, Kid, Typ string }
		var claims struct {
			Iss, Sub, Aud, Jti string
			Iat, Exp           int64
		}
		for i, v := range []any{&head, &claims} {
			b, _ := base64.RawURLEncoding.DecodeString(parts[i])
			if err := json.Unmarshal(b, v); err != nil {
				t.Error(err)
			}
		}
		signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
		hash := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
		good := rsa.VerifyPKCS1v15(&rs.PublicKey, crypto.SHA256, hash[:], signature) == nil
		if tt.alg == "ES256" {
			good = len(signature) == 64 && ecdsa.Verify(&ec.PublicKey, hash[:],
				new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
		}
		if !good || head.Alg != tt.alg || head.Kid != "k1" || claims.Iss != "me" || claims.Sub != "me" ||
			claims.Aud != "https://as" || claims.Jti == "" || claims.Exp-claims.Iat != 60 {
			t.Errorf("%s: signature good: %v, %+v, %+v", name, good, head, claims)
		}
	}
	for name, der := range map[string][]byte{"P-384": large8, "no key": []byte("x")} {
		if _, err := ask(der, ""); err == nil || strings.Contains(err.Error(), "x509") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ask(ec8, "RS256"); err == nil {
		t.Error("an EC key signed for RS256")
	}
}
