package doctor

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/login"
	"holdline/daemon/statedir"
)

// TestLogins checks what doctor finds of logins: files that others can read, a key that cannot be
// had, a login that is lost, one that cannot be renewed, one that no server uses, a wrong clock, a lock
// that is held for long, ports that are all taken, and a browser that cannot be opened.
func TestLogins(t *testing.T) {
	t.Parallel()
	o := Options{StateDir: t.TempDir(), Home: t.TempDir(), Config: filepath.Join(t.TempDir(), "config.json")}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg, err := config.Parse("", []byte(`{"mcpServers":{"a":{"url":"https://a.example/mcp"},"b":{"url":"https://b.example"},
		"c":{"url":"https://c.example"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logins.Ports = []int{l.Addr().(*net.TCPAddr).Port}
	o.Loaded = &cfg
	dir := statedir.In(o.StateDir).Logins
	if err := os.Chmod(o.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	store := login.Open(dir, nil)
	put := func(address string, change func(*login.Login)) {
		t.Helper()
		one := login.Login{Issuer: "https://as.example", Audience: address, Resource: address, ClientID: "c"}
		id := one.ID()
		err := store.Update(t.Context(), id, &one, func() error {
			one.Issuer, one.Audience, one.Resource, one.ClientID = "https://as.example", address, address, "c"
			one.Access, one.Refresh = "secret-token", "secret-refresh"
			change(&one)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var target login.Target
		if err := store.Update(t.Context(), login.TargetID(address, "", "", ""), &target, func() error {
			target.URL, target.Login = address, id
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	put("https://a.example/mcp", func(one *login.Login) {
		one.Lost = &login.Lost{Why: "the refresh token was refused", At: time.Now()}
	})
	put("https://b.example", func(one *login.Login) { one.Skew = time.Hour })
	put("https://c.example", func(one *login.Login) {
		one.Retry = login.Retry{At: time.Now().Add(time.Minute), Failures: 1, Since: time.Now(), Why: "unreachable"}
	})
	put("https://gone.example", func(*login.Login) {})
	lock, err := statedir.TryLock(filepath.Join(dir, "x.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }()
	if err := lock.Write(os.Getpid(), 1); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "x.lock"), old, old); err != nil {
		t.Fatal(err)
	}
	o.Environ = []string{"DISPLAY=:0"}
	cfg.Logins.Browser = "/nowhere/browser"
	want := []string{
		"login of c note ", "browser note no program is found",
		"login of a problem needs a login (the refresh token was refused", "login of b ok logged in, renews itself",
		"clock note the clock of https://as.example differs by 1h0m0s", "unused login note no server uses the login to https://gone",
		"lock of a login problem process ", "ports of logins note other programs listen",
	}
	check := func(want ...string) {
		t.Helper()
		var all strings.Builder
		for _, f := range checkLogins(o) {
			all.WriteString(f.Check + " " + string(f.State) + " " + f.What + "\n")
			if f.State != OK && (f.Why == "" || f.Fix == "") {
				t.Errorf("%+v does not say why it matters and what helps", f)
			}
		}
		for _, w := range want {
			if !strings.Contains(all.String(), w) {
				t.Errorf("found\n%swant %q", all.String(), w)
			}
		}
		if strings.Contains(all.String(), "secret") {
			t.Errorf("shows a secret:\n%s", all.String())
		}
	}
	check(want...)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.Logins.KeyCommand = []string{"false"}
	check("logins problem "+dir+" can be read or changed by other users", "key of logins problem each login")
}

// TestLoginsOfAnotherUserRoot checks that a file of the logins that another user owns is a problem.
func TestLoginsOfAnotherUserRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	o := Options{StateDir: t.TempDir(), Home: t.TempDir(), Config: filepath.Join(t.TempDir(), "config.json")}
	o.Loaded = &config.Config{}
	targets := filepath.Join(statedir.In(o.StateDir).Logins, "targets")
	err := errors.Join(os.Chmod(o.StateDir, 0o700), os.MkdirAll(targets, 0o700), os.Chown(targets, 65534, -1))
	if err != nil {
		t.Fatal(err)
	}
	want := targets + " can be read or changed by other users"
	if found := checkLogins(o); !slices.ContainsFunc(found, func(f Finding) bool {
		return f.State == Problem && strings.Contains(f.What, want)
	}) {
		t.Errorf("found %+v, want %q", found, want)
	}
}
