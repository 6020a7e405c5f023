package login_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/login"
	"holdline/daemon/login/logintest"
	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// TestFileKeepsWhatItDoesNotKnow checks that a record comes back as it was written, with the
// keys of a newer version, and that printing it shows no secret.
func TestFileKeepsWhatItDoesNotKnow(t *testing.T) {
	s := login.Open(filepath.Join(t.TempDir(), "state", "logins"), nil)
	l := login.Login{Issuer: "https://as", Resource: "https://rs", Audience: "https://rs", ClientID: "c"}
	id := l.ID()
	if err := s.Update(t.Context(), id, &l, func() error {
		l.Issuer, l.Access, l.Refresh, l.Mark = "https://as", "access-1", "refresh-1", &login.Mark{Try: 1}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir(), id+".json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), "{", `{"later":[1,2],`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	var again login.Login
	if err := s.Update(t.Context(), id, &again, func() error {
		if again.Access.Reveal() != "access-1" || again.Refresh.Reveal() != "refresh-1" || again.Mark.Try != 1 {
			t.Errorf("read %q, %q, %v", again.Access.Reveal(), again.Refresh.Reveal(), again.Mark)
		}
		again.Refresh, again.Mark = "", nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b, _ = os.ReadFile(path)
	if text := string(b); !strings.Contains(text, `"later":[1,2]`) || strings.Contains(text, "refresh_token") ||
		strings.Contains(text, "mark") || !strings.Contains(text, "access-1") {
		t.Errorf("the file has %s", text)
	}
	shown, _ := json.Marshal(again)
	if text := fmt.Sprintf("%v %+v %#v %d %x %s", again, again, again, again.Access, again.Access, shown); strings.Contains(
		text, "access-1") || strings.Contains(text, fmt.Sprintf("%x", "access-1")) {
		t.Errorf("printing shows the token: %s", text)
	}
	if ids, err := s.IDs(&again); err != nil || len(ids) != 1 || ids[0] != id {
		t.Errorf("IDs = %v, %v", ids, err)
	}
	if err := s.Remove(t.Context(), id, &again); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(id, &again); !errors.Is(err, fs.ErrNotExist) || again.Issuer != "" {
		t.Errorf("after Remove: %v, %v", again.Issuer, err)
	}
}

// TestTargetStoredWhileItIsRead checks that a login which is stored while a process reads the target is
// seen by the next request. The key command stores it, which runs after the file was read.
func TestTargetStoredWhileItIsRead(t *testing.T) {
	srv, dir, digits := logintest.Start(t, logintest.Options{Life: time.Hour}), t.TempDir(), strings.Repeat("ab", 32)
	writer := login.Open(filepath.Join(dir, "logins"), login.NewKey([]string{"echo", digits}, nil))
	target := srv.LogIn(t, writer)
	path := filepath.Join(writer.Dir(), "targets", target+".json")
	if err := os.Rename(path, dir+"/later"); err != nil {
		t.Fatal(err)
	}
	var none login.Target
	if err := writer.Update(t.Context(), target, &none, func() error { none.URL = srv.URL; return nil }); err != nil {
		t.Fatal(err)
	}
	store := `mv "$0" "$1" && echo ` + digits
	u := &user{t: t, srv: srv, target: target, store: login.Open(writer.Dir(),
		login.NewKey([]string{"/bin/sh", "-c", store, dir + "/later", path}, nil))}
	tokens := u.tokens()
	if token, err := tokens.Token(t.Context(), true); err != nil || token != "" {
		t.Fatalf("the target as it was read: %v, a token: %t", err, token != "")
	}
	if token, err := tokens.Token(t.Context(), true); err != nil || token == "" {
		t.Errorf("the next request: %v, a token: %t", err, token != "")
	}
}

// TestStoreRefuses checks that files which others can read, files of a newer version and
// damaged ones are refused, and left as they are.
func TestStoreRefuses(t *testing.T) {
	s := login.Open(filepath.Join(t.TempDir(), "logins"), nil)
	l := login.Login{}
	for name, tt := range map[string]struct {
		text string
		mode os.FileMode
		want error
	}{
		"others can read it": {`{"version":1}`, 0o644, login.ErrOpen},
		"newer":              {`{"version":2}`, 0o600, login.ErrNewer},
		"newer and sealed":   {`{"version":2,"sealed":"AAAA"}`, 0o600, login.ErrNewer},
		"damaged":            {`{"version":1,`, 0o600, login.ErrBroken},
		"no object":          {`[]`, 0o600, login.ErrBroken},
		"of another type":    {`{"version":1,"access_token":{}}`, 0o600, login.ErrBroken},
		"sealed, no key":     {`{"version":1,"sealed":"AAAA"}`, 0o600, login.ErrNoKey},
	} {
		if err := s.Update(t.Context(), "x", &l, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(s.Dir(), "x.json")
		if err := errors.Join(os.WriteFile(path, []byte(tt.text), 0o600), os.Chmod(path, tt.mode)); err != nil {
			t.Fatal(err)
		}
		if err := s.Read("x", &l); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if err := s.Update(t.Context(), "x", &l, func() error { return nil }); !errors.Is(err, tt.want) {
			t.Errorf("%s: Update: %v, want %v", name, err, tt.want)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != tt.text {
			t.Errorf("%s: the file now has %s, %v", name, b, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(s.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), "x", &l, func() error { return nil }); !errors.Is(err, login.ErrOpen) {
		t.Errorf("a directory that others can read: %v, want ErrOpen", err)
	}
}

// TestStoreOfAnotherOwnerRoot checks that a file of the store is refused if another user owns it, its lock or a
// directory of them.
func TestStoreOfAnotherOwnerRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	s := login.Open(filepath.Join(t.TempDir(), "logins"), nil)
	var target login.Target
	write := func() error { return s.Update(t.Context(), "x", &target, func() error { return nil }) }
	if err := write(); err != nil {
		t.Fatal(err)
	}
	give := func(path string, uid int) {
		if err := os.Lchown(path, uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	sub := filepath.Join(s.Dir(), "targets")
	for path, want := range map[string]error{
		filepath.Join(sub, "x.json"): ownfile.ErrRefused, filepath.Join(sub, "x.lock"): ownfile.ErrRefused,
		sub: statedir.ErrForeign, s.Dir(): statedir.ErrForeign,
	} {
		give(path, 65534)
		if err := write(); !errors.Is(err, want) {
			t.Errorf("%s of another user: %v, want %v", path, err, want)
		}
		if err := s.Read("x", &target); filepath.Ext(path) == ".json" && !errors.Is(err, want) {
			t.Errorf("%s of another user is read: %v", path, err)
		}
		give(path, 0)
		if err := write(); err != nil {
			t.Errorf("%s of this user again: %v", path, err)
		}
	}
}

// TestSealedFilesNeedTheKey checks that no sealed file has a token in clear text, that the
// same key opens it and another one does not, and that a file without a seal gets one at its
// next write.
func TestSealedFilesNeedTheKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logins")
	key := func(digit string) *login.Key {
		return login.NewKey([]string{"/bin/sh", "-c", "echo " + strings.Repeat(digit, 64)}, nil)
	}
	write := func(s *login.Store) error {
		var l login.Login
		return s.Update(t.Context(), "x", &l, func() error { l.Refresh = "refresh-token-in-clear"; return nil })
	}
	has := func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "x.json"))
		return strings.Contains(string(b), "refresh-token-in-clear")
	}
	if err := write(login.Open(dir, nil)); err != nil || !has() {
		t.Fatal(err, has())
	}
	if err := write(login.Open(dir, key("a"))); err != nil || has() {
		t.Fatalf("with a key: %v, in clear text: %v", err, has())
	}
	var l login.Login
	if err := login.Open(dir, key("a")).Read("x", &l); err != nil || l.Refresh.Reveal() != "refresh-token-in-clear" {
		t.Errorf("with the key: %v, %q", err, l.Refresh.Reveal())
	}
	for name, k := range map[string]*login.Key{
		"none": nil, "another": key("b"), "too short": login.NewKey([]string{"/bin/echo", "aa"}, nil),
		"fails": login.NewKey([]string{"/bin/false"}, nil),
	} {
		if err := login.Open(dir, k).Read("x", &l); !errors.Is(err, login.ErrNoKey) {
			t.Errorf("key %s: %v, want ErrNoKey", name, err)
		}
		if err := write(login.Open(dir, k)); !errors.Is(err, login.ErrNoKey) {
			t.Errorf("key %s, write: %v, want ErrNoKey", name, err)
		}
	}
}

// TestLockIsExclusive checks that the second holder of a lock waits for the first, and gives
// up with its context.
func TestLockIsExclusive(t *testing.T) {
	s := login.Open(filepath.Join(t.TempDir(), "logins"), nil)
	held, err := s.Lock(t.Context(), "x", &login.Login{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := s.Lock(ctx, "x", &login.Login{})
		got <- err
	}()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("the second holder got %v", err)
	}
	held.Unlock()
	held, err = s.Lock(t.Context(), "x", &login.Login{})
	if err != nil {
		t.Fatal(err)
	}
	held.Unlock()
}

// TestLockHeldTooLong checks that after a minute the error names the process that holds the lock.
func TestLockHeldTooLong(t *testing.T) {
	s := login.Open(filepath.Join(t.TempDir(), "logins"), nil)
	held, err := s.Lock(t.Context(), "x", &login.Login{})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Unlock()
	synctest.Test(t, func(t *testing.T) {
		_, err := s.Lock(t.Context(), "x", &login.Login{})
		if busy, ok := errors.AsType[*login.BusyError](err); !ok || !strings.Contains(busy.Holder, strconv.Itoa(os.Getpid())) {
			t.Errorf("got %v", err)
		}
	})
}

// TestCovers checks to which addresses a resource's token may go.
func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		resource, address string
		want              bool
	}{
		{"https://h/mcp", "https://h/mcp", true},
		{"https://h/mcp/", "https://h/mcp", true},
		{"https://h/mcp", "https://h/mcp/", true},
		{"https://h", "https://h/mcp", true},
		{"https://h/", "https://H:443/mcp?x=1", true},
		{"https://h/a", "https://h/a/b", true},
		{"https://h/a", "https://h/ab", false},
		{"https://h/a/b", "https://h/a", false},
		{"https://h", "http://h", false},
		{"https://h:1", "https://h:2", false},
		{"https://h", "https://h.evil", false},
		{"https://u@h", "https://h", false},
		{"https://h/#x", "https://h/", false},
		{"/mcp", "/mcp", false},
	} {
		if got := login.Covers(tt.resource, tt.address); got != tt.want {
			t.Errorf("Covers(%q, %q) = %v, want %v", tt.resource, tt.address, got, tt.want)
		}
	}
	if a, b := login.TargetID("https://h/?x=1", "", "", ""), login.TargetID("https://h", "", "", ""); a != b {
		t.Errorf("two ids of one address: %s, %s", a, b)
	}
}

// TestLoginUnchanged_IDsAreThoseOfEarlierBuilds checks the names of a login's files against those
// of an earlier build: if one changes, the next upgrade asks each user to log in again.
func TestLoginUnchanged_IDsAreThoseOfEarlierBuilds(t *testing.T) {
	for _, c := range []struct{ what, id, want string }{
		{"a target", login.TargetID("https://a/mcp", "client", "https://i", "me"), "722f488675e39a1b"},
		{
			"a login",
			(&login.Login{Issuer: "https://i", Resource: "https://a/mcp", Audience: "https://a/mcp", ClientID: "c"}).ID(),
			"b42402a8c5da8b84",
		},
		{
			"a registration",
			(&login.Registration{Issuer: "https://i", RedirectURI: "http://localhost:1/callback"}).ID(),
			"7d23bf6be1f1f4d3",
		},
	} {
		if c.id != c.want {
			t.Errorf("the id of %s is %s, and that of earlier builds %s", c.what, c.id, c.want)
		}
	}
}
