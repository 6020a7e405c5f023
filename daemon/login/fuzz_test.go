package login_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"holdline/daemon/login"
)

// FuzzFile checks that no content of a file of the store stops a reader, and that what can be
// read is the same after it was written again.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"issuer":"https://as","access_token":"a","refresh_token":"r","generation":3,"rotates":true,` +
			`"mark":{"generation":3,"at":"2026-01-01T00:00:00Z","try":1},"later":{"x":[1]}}`,
		`{"version":1,"lost":{"why":"x","at":"2026-01-01T00:00:00Z"},"retry":{"failures":2}}`,
		`{"version":1,"sealed":"AAAA"}`, `{"version":2}`, `{}`, `[]`, `null`, ``, `{"version":1,"VERSION":3}`,
		`{"version":1,"Access_Token":"x","access_token":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := login.Open(filepath.Join(t.TempDir(), "logins"), nil)
		if err := os.MkdirAll(s.Dir(), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir(), "x.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after login.Login
		if err := s.Read("x", &before); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file that is there: %v", err)
			}
			return
		}
		if err := s.Update(t.Context(), "x", &after, func() error { return nil }); err != nil {
			t.Fatalf("it can be read, but not written: %v", err)
		}
		after = login.Login{}
		if err := s.Read("x", &after); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		after.Version = before.Version
		if !reflect.DeepEqual(plain(&before), plain(&after)) {
			t.Errorf("%s\nwas %+v\nis  %+v", text, before, after)
		}
	})
}

// plain returns the fields of a login that no two spellings of the same time or list make unequal.
func plain(l *login.Login) []any {
	mark, lost := login.Mark{}, ""
	if l.Mark != nil {
		mark = *l.Mark
		mark.At = mark.At.UTC().Round(0)
	}
	if l.Lost != nil {
		lost = l.Lost.Why
	}
	return []any{l.Issuer, l.Access.Reveal(), l.Refresh.Reveal(), l.Generation, mark, lost, l.Rotates, l.Retry.Failures}
}
