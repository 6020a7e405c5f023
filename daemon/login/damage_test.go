package login

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestDamagedRecord_LoginReplacesIt damages a record in each way. Nothing of it is read, and least of all
// another record's tokens; a login replaces it, and a logout removes it.
func TestDamagedRecord_LoginReplacesIt(t *testing.T) {
	for name, damage := range map[string]func(path, other string) error{
		"emptied":     func(path, _ string) error { return os.WriteFile(path, nil, 0o600) },
		"half":        func(path, _ string) error { return os.WriteFile(path, []byte(`{"version":1,"id":"one",`), 0o600) },
		"other JSON":  func(path, _ string) error { return os.WriteFile(path, []byte(`{}`), 0o600) },
		"a list":      func(path, _ string) error { return os.WriteFile(path, []byte(`[]`), 0o600) },
		"swapped":     func(path, other string) error { return os.Rename(other, path) },
		"a directory": func(path, _ string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"a link": func(path, other string) error {
			return errors.Join(os.Remove(path), os.Symlink(filepath.Base(other), path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := Open(filepath.Join(t.TempDir(), "logins"), nil)
			for _, id := range []string{"one", "two"} {
				l := Login{}
				if err := s.Update(t.Context(), id, &l, func() error { l.Access = Secret("token of " + id); return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if err := damage(s.path("one", new(Login)), s.path("two", new(Login))); err != nil {
				t.Fatal(err)
			}
			l := Login{}
			if err := s.Read("one", &l); !IsDamaged(err) || l.Access != "" {
				t.Errorf("read: %v, %q", err, l.Access.Reveal())
			}
			err := s.Renew(t.Context(), "one", &l, func() error {
				if l.Access != "" {
					t.Errorf("a login begins with %q", l.Access.Reveal())
				}
				l.Access = "new"
				return nil
			})
			if rerr := s.Read("one", &l); err != nil || rerr != nil || l.Access != "new" {
				t.Errorf("after the login: %v, %v, %q", err, rerr, l.Access.Reveal())
			}
			if err := damage(s.path("one", new(Login)), s.path("two", new(Login))); err != nil && name != "swapped" {
				t.Fatal(err)
			}
			if err := s.Remove(t.Context(), "one", &l); err != nil {
				t.Errorf("the logout: %v", err)
			}
			if err := s.ReadIfThere("one", &l); err != nil || l.Access != "" {
				t.Errorf("after the logout: %v, %q", err, l.Access.Reveal())
			}
		})
	}
}
