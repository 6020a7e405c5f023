package logintest

import (
	"testing"

	"holdline/daemon/login"
)

// LogIn puts a login of the stand-in into a store, as `holdline servers login` does, and returns
// the id of its target.
func (s *Server) LogIn(tb testing.TB, store *login.Store, scopes ...string) (target string) {
	tb.Helper()
	tokens := s.Issue(scopes...)
	l := login.Login{
		Issuer: s.Base, Audience: s.URL, Resource: s.URL, ClientID: "stand-in", AuthMethod: login.AuthNone,
		TokenURL: s.Base + "/token",
	}
	id, target := l.ID(), login.TargetID(s.URL, "", "", "")
	err := store.Update(tb.Context(), id, &l, func() error {
		l.Issuer, l.Audience, l.Resource, l.TokenURL = s.Base, s.URL, s.URL, s.Base+"/token"
		l.ClientID, l.AuthMethod, l.Rotates = tokens.Client, login.AuthNone, nil
		l.Take(login.Grant{
			Access: login.Secret(tokens.Access), Refresh: login.Secret(tokens.Refresh), Obtained: tokens.Issued,
			Expires: tokens.Expires,
		}, scopes)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	var to login.Target
	err = store.Update(tb.Context(), target, &to, func() error {
		to.URL, to.Login = s.URL, id
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return target
}
