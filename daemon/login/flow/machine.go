package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"holdline/daemon/login"
)

// Machine returns where and as whom a machine gets tokens for a server to which no person
// logs in (grant client_credentials). The login has no tokens yet.
func Machine(
	ctx context.Context, c *login.Client, address string, challenge login.Challenge, cred *login.Credentials,
) (login.Login, error) {
	f, err := Find(ctx, &Query{
		HTTP: c, Address: address, Metadata: challenge.Metadata, Issuer: cred.Issuer, Resource: cred.Resource,
		Known:  func(issuer string) bool { return sameIssuer(issuer, cred.Bound) },
		Usable: func(m *Metadata) error { return boundTo(cmp.Or(cred.Issuer, cred.Bound), m) },
		Way:    func(*Metadata) Way { return nobody },
	})
	if err != nil {
		return login.Login{}, err
	}
	return login.Login{
		Issuer: f.Server.Issuer, Audience: f.Audience, Resource: f.Resource, ClientID: cred.ClientID,
		Account: cred.Account, AuthMethod: methodOf(f.Server, cred, cred.Secret),
		TokenURL: f.Server.TokenEndpoint, Requested: login.JoinScopes(firstOf(cred.Scopes, challenge.Scopes, f.Scopes)),
	}, nil
}

// firstOf returns the first list that is there, even if it is empty.
func firstOf(lists ...[]string) []string {
	for _, list := range lists {
		if list != nil {
			return list
		}
	}
	return nil
}

// LoggedOut is what came of a logout.
type LoggedOut struct {
	Had     bool      // there was a login
	Revoked bool      // the server has taken its tokens back
	Why     string    // why it has not, for people
	Expires time.Time // of a token that was not taken back; zero if unknown
}

// revokeTime bounds the requests of a logout.
const revokeTime = 20 * time.Second

// Logout takes back the tokens of a target at the server where that is possible, and deletes
// the login in any case. cred has the client if it was configured.
func Logout(
	ctx context.Context, s *login.Store, c *login.Client, id string, cred *login.Credentials,
) (LoggedOut, error) {
	var out LoggedOut
	var t login.Target
	target, err := s.Lock(ctx, id, &t)
	if err != nil {
		return out, err
	}
	defer target.Unlock()
	whole := s.ReadIfThere(id, &t)
	if err := s.ReadWhole(id, &t); err != nil {
		return out, err
	}
	if whole != nil { // which login it had, is not known: those that nobody else has may be it
		out = LoggedOut{Had: true, Why: "its file was damaged"}
		if err := removeUnused(ctx, s, c, id, cred); err != nil {
			return out, err
		}
	}
	var stored login.Credentials
	err = s.Read(id, &stored)
	isDamaged := login.IsDamaged(err)
	switch {
	case err == nil && stored.Typed:
		cred = &stored
	case isDamaged && !out.Had:
		out = LoggedOut{Had: true, Why: "the file of its client was damaged"}
	}
	if t.Login != "" {
		var l login.Login
		held, err := s.Lock(ctx, t.Login, &l) // nobody renews the login meanwhile
		if err != nil {
			return out, err
		}
		defer held.Unlock()
		out = LoggedOut{Had: true, Why: "its file cannot be read"}
		if s.ReadIfThere(t.Login, &l) == nil {
			out = revoke(ctx, c, &l, cred)
		}
		if err := held.Remove(&l); err != nil {
			return out, err
		}
	}
	if err := target.Remove(&t); err != nil || !stored.Typed && !isDamaged {
		return out, err
	}
	return out, s.Remove(ctx, id, &stored)
}

// removeUnused ends the logins that no target but the damaged one of that id can have.
func removeUnused(
	ctx context.Context, s *login.Store, c *login.Client, damaged string, cred *login.Credentials,
) error {
	used := map[string]bool{}
	targets, err := s.IDs(new(login.Target))
	if err != nil {
		return err
	}
	for _, id := range targets {
		var t login.Target
		if err := s.ReadIfThere(id, &t); err != nil && id != damaged {
			return nil // it may have any of them
		}
		used[t.Login] = true
	}
	all, err := s.IDs(new(login.Login))
	for _, id := range all {
		var l login.Login
		if used[id] || s.Read(id, &l) != nil {
			continue
		}
		_ = revoke(ctx, c, &l, cred)
		err = errors.Join(err, s.Remove(ctx, id, &l))
	}
	return err
}

// revoke has the authorization server take back the tokens of a login (RFC 7009), the refresh
// token first: with that many servers take back both.
func revoke(ctx context.Context, c *login.Client, l *login.Login, cred *login.Credentials) LoggedOut {
	out := LoggedOut{Had: l.Access != "" || l.Refresh != "", Expires: l.Expires}
	switch {
	case !out.Had:
		return out
	case l.RevokeURL == "":
		out.Why = "the authorization server offers no way to take them back"
		return out
	}
	e := l.Endpoint(cred)
	e.URL = l.RevokeURL
	ctx, cancel := context.WithTimeout(ctx, revokeTime)
	defer cancel()
	for _, one := range []struct {
		kind  string
		token login.Secret
	}{{"refresh_token", l.Refresh}, {"access_token", l.Access}} {
		if one.token == "" {
			continue
		}
		form := url.Values{"token": {one.token.Reveal()}, "token_type_hint": {one.kind}}
		if _, err := c.PostForm(ctx, e, form, nil); err != nil {
			out.Why = fmt.Sprint(refusal("to take them back", err))
			return out
		}
	}
	out.Revoked = true
	return out
}
