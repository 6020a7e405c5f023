package login_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/login"
	"holdline/daemon/login/logintest"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
)

// user is what a test of renewals has: a store with a login, and its server.
type user struct {
	t      *testing.T
	srv    *logintest.Server
	store  *login.Store
	target string
	made   []*login.Tokens
}

// logIn begins a test with a login of these scopes.
func logIn(t *testing.T, o logintest.Options, scopes ...string) *user {
	t.Helper()
	u := &user{t: t, srv: logintest.Start(t, o), store: login.Open(filepath.Join(t.TempDir(), "logins"), nil)}
	u.target = u.srv.LogIn(t, u.store, scopes...)
	u.srv.Watch(u.store.Dir())
	return u
}

// tokens returns the tokens of one more process.
func (u *user) tokens() *login.Tokens {
	tokens := login.NewTokens(login.Options{
		Name: "sentry", URL: u.srv.URL, Store: u.store, Target: u.target, Version: "1",
		Log: slog.New(slog.DiscardHandler),
	})
	u.made = append(u.made, tokens)
	u.t.Cleanup(tokens.Close)
	return tokens
}

// file returns the login as it is on disk.
func (u *user) file() (target login.Target, l login.Login) {
	u.t.Helper()
	if err := errors.Join(u.store.Read(u.target, &target), u.store.Read(target.Login, &l)); err != nil {
		u.t.Fatal(err)
	}
	return target, l
}

// change changes the login on disk.
func (u *user) change(change func(*login.Login)) {
	u.t.Helper()
	target, l := u.file()
	if err := u.store.Update(u.t.Context(), target.Login, &l, func() error { change(&l); return nil }); err != nil {
		u.t.Fatal(err)
	}
}

// call makes a call to the server as the remote adapter does, and returns its fault.
func (u *user) call(ctx context.Context, tokens *login.Tokens) error {
	token, err := tokens.Token(ctx, true)
	for again := false; err == nil; again = true {
		const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, u.srv.URL, strings.NewReader(body))
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token.Reveal())
		}
		resp, rerr := http.DefaultClient.Do(req)
		if rerr != nil {
			return rerr
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		token, err = tokens.Refused(ctx, token, resp.StatusCode, resp.Header, again)
		if err == nil && token == "" {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
	}
	return err
}

// wants checks code and reason of a fault, and what its text has.
func wants(t *testing.T, err error, code fault.Code, reason fault.Reason, text string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Fault.Code != code || f.Reason() != reason || !strings.Contains(f.Error(), text) {
		t.Errorf("got %v (%+v), want %s, %s: %s", err, f, code, reason, text)
	}
}

// endRules checks that no rule was broken, and how often refresh tokens were used.
func (u *user) endRules(renewals, most int) {
	u.t.Helper()
	for _, tokens := range u.made {
		tokens.Close()
	}
	for _, wrong := range u.srv.Wrong() {
		u.t.Error(wrong)
	}
	if all, many := u.srv.Renewals(); all != renewals || many > most {
		u.t.Errorf("%d renewals, one token %d times, want %d and %d", all, many, renewals, most)
	}
}

// TestManyProcesses_OneRenewal lets a hundred processes need a token that has run out at the
// same time, for many rounds: each round has one renewal, and no call fails.
func TestManyProcesses_OneRenewal(t *testing.T) {
	const processes, rounds = 100, 5
	u := logIn(t, logintest.Options{Rotation: logintest.Strict, Life: time.Hour})
	var all []*login.Tokens
	for range processes {
		all = append(all, u.tokens())
	}
	for range rounds {
		u.srv.Expire()
		var calls sync.WaitGroup
		for _, tokens := range all {
			calls.Go(func() {
				if err := u.call(t.Context(), tokens); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
	}
	u.endRules(rounds, 1)
}

// TestBrokenRule_IsNoticed breaks each rule of a renewal and checks that the stand-in sees it.
func TestBrokenRule_IsNoticed(t *testing.T) {
	for _, rule := range []string{"login.lock", "login.reread", "login.store", "login.mark"} {
		t.Run(rule, func(t *testing.T) {
			second := make(chan struct{}) // closed when others have had their time to ask
			u := logIn(t, logintest.Options{
				Rotation: logintest.Strict, Life: time.Hour,
				Token: func(n int, _ url.Values) *logintest.Reply {
					if n == 1 {
						time.AfterFunc(2*time.Second, func() { close(second) })
					}
					return &logintest.Reply{Handle: true, Wait: second}
				},
			})
			var all []*login.Tokens
			for range 8 {
				all = append(all, u.tokens())
			}
			faultpoint.Break(func(name string) bool { return name == rule })
			defer faultpoint.Break(nil)
			u.srv.Expire()
			var calls sync.WaitGroup
			failed := make(chan error, len(all))
			for _, tokens := range all {
				calls.Go(func() { failed <- u.call(t.Context(), tokens) })
			}
			calls.Wait()
			for _, tokens := range all {
				tokens.Close()
			}
			close(failed)
			lost := 0
			for err := range failed {
				if err != nil {
					lost++
				}
			}
			if renewals, most := u.srv.Renewals(); len(u.srv.Wrong()) == 0 && lost == 0 && renewals == 1 && most == 1 {
				t.Error("nothing was noticed")
			}
		})
	}
}

// TestRenewalRefused checks what becomes of a login after each answer of a token endpoint.
func TestRenewalRefused(t *testing.T) {
	refused := func(status int, code string) *logintest.Reply {
		return &logintest.Reply{Status: status, Text: `{"error":"` + code + `"}`, Header: http.Header{"Retry-After": {"30"}}}
	}
	for name, tt := range map[string]struct {
		reply      *logintest.Reply
		configured bool // the client is not a registered one
		code       fault.Code
		reason     fault.Reason
		text       string
		tokens     bool // are kept
		lost, mark bool
		wait       time.Duration // at least, before the next try
	}{
		"invalid_grant": {
			reply: refused(400, "invalid_grant"), code: fault.Unauthenticated, reason: fault.NotLoggedIn,
			text: "the refresh token was refused", lost: true,
		},
		"registration is gone": {
			reply: refused(401, "invalid_client"), code: fault.Unauthenticated, reason: fault.NotLoggedIn,
			text: "does not know the client any more", tokens: true, lost: true,
		},
		"registration is of another client by now": {
			reply: refused(401, "invalid_client"), code: fault.Unauthenticated, reason: fault.NotLoggedIn,
			text: "does not know the client any more", tokens: true, lost: true,
		},
		"created, with no token that we would take": {
			reply: refused(201, ""), code: fault.TransportFailure, reason: fault.Unreachable, tokens: true,
		},
		"wait for 63 years": {
			reply: &logintest.Reply{Status: 429, Header: http.Header{"Retry-After": {"2000000000"}}},
			code:  fault.TransportFailure, reason: fault.Unreachable, tokens: true, wait: time.Minute,
		},
		"client of the configuration is refused": {
			reply: refused(401, "invalid_client"), configured: true, code: fault.Unauthenticated, reason: fault.Rejected,
			text: "oauth.clientSecret", tokens: true, wait: 50 * time.Second,
		},
		"too many requests": {
			reply: refused(429, ""), code: fault.TransportFailure, reason: fault.Unreachable, tokens: true, wait: 25 * time.Second,
		},
		"overloaded": {
			reply: refused(503, ""), code: fault.TransportFailure, reason: fault.Unreachable, tokens: true, wait: 25 * time.Second,
		},
		"another 4xx": {
			reply: refused(400, "invalid_target"), code: fault.TransportFailure, reason: fault.Unreachable,
			text: "invalid_target", tokens: true,
		},
		"another 5xx": {
			reply: refused(500, ""), code: fault.TransportFailure, reason: fault.Unreachable,
			text: "answers 500 Internal Server Error", tokens: true,
		},
		"no sense": {
			reply: &logintest.Reply{Status: 200, Text: "<html>"}, code: fault.TransportFailure, reason: fault.Unreachable,
			tokens: true,
		},
		"cut at its first byte": {
			reply: &logintest.Reply{Handle: true, Break: true}, code: fault.TransportFailure, reason: fault.Unreachable,
			tokens: true, mark: true,
		},
		"cut in the middle": {
			reply: &logintest.Reply{Handle: true, Break: true, Cut: 120}, code: fault.TransportFailure,
			reason: fault.Unreachable, tokens: true, mark: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := logIn(t, logintest.Options{Life: time.Hour, Token: func(int, url.Values) *logintest.Reply { return tt.reply }})
			if !tt.configured {
				u.change(func(l *login.Login) { l.Registered = "0123456789abcdef" })
				var r login.Registration
				_, l := u.file()
				if err := u.store.Update(t.Context(), "0123456789abcdef", &r, func() error {
					if r.ClientID = l.ClientID; strings.Contains(name, "another client") {
						r.ClientID = "other"
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			u.srv.Expire()
			wants(t, u.call(t.Context(), u.tokens()), tt.code, tt.reason, tt.text)
			_, l := u.file()
			if kept := l.Refresh != ""; kept != tt.tokens || (l.Lost != nil) != tt.lost || (l.Mark != nil) != tt.mark ||
				tt.wait > 0 && time.Until(l.Retry.At) < tt.wait || time.Until(l.Retry.At) > 5*time.Minute {
				t.Errorf("tokens kept: %v, lost: %+v, mark: %+v, retry: %+v", kept, l.Lost, l.Mark, l.Retry)
			}
			// The next call asks nobody: it has to wait, or there is nothing to ask for.
			before := len(u.srv.Forms())
			if err := u.call(t.Context(), u.tokens()); err == nil || len(u.srv.Forms()) != before {
				t.Errorf("the next call: %v, %d forms", err, len(u.srv.Forms())-before)
			}
			ids, _ := u.store.IDs(&login.Registration{})
			if gone := len(ids) == 0; gone != (tt.configured || name == "registration is gone") {
				t.Errorf("registrations: %v", ids)
			}
		})
	}
}

// TestClockSetBack_NobodyWaitsForHours checks that times of a clock which was ahead by hours hold
// neither the lock nor a call.
func TestClockSetBack_NobodyWaitsForHours(t *testing.T) {
	for name, change := range map[string]func(*login.Login){
		"mark":  func(l *login.Login) { l.Mark = &login.Mark{At: time.Now().Add(3 * time.Hour), Try: 1} },
		"retry": func(l *login.Login) { l.Retry.At = time.Now().Add(3 * time.Hour) },
	} {
		u := logIn(t, logintest.Options{Life: time.Hour})
		u.change(change)
		u.srv.Expire()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := u.call(ctx, u.tokens()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		for _, tokens := range u.made {
			tokens.Stop() // if it waits still
		}
	}
}

// TestEndingProcess_BeginsNoRenewal checks that a process whose end has begun sends no refresh token
// that it had not sent before, and holds nothing against the login.
func TestEndingProcess_BeginsNoRenewal(t *testing.T) {
	u := logIn(t, logintest.Options{Life: time.Hour})
	u.srv.Expire()
	tokens := u.tokens()
	faultpoint.Install(func(name string) {
		if name == "login.locked" {
			tokens.Stop()
		}
	})
	defer faultpoint.Install(nil)
	if err := u.call(t.Context(), tokens); !errors.Is(err, context.Canceled) {
		t.Errorf("the call: %v", err)
	}
	if _, l := u.file(); l.Mark != nil || l.Retry.Failures > 0 {
		t.Errorf("mark %+v, retry %+v", l.Mark, l.Retry)
	}
	u.endRules(0, 0)
}

// TestRanOut_NeedsALogin checks that a login which has run out and has no refresh token is said so,
// and that no call is sent with it.
func TestRanOut_NeedsALogin(t *testing.T) {
	u := logIn(t, logintest.Options{Life: time.Hour})
	u.change(func(l *login.Login) {
		l.Refresh, l.Obtained, l.Expires = "", time.Now().Add(-time.Hour), time.Now().Add(-time.Second)
	})
	wants(t, u.call(t.Context(), u.tokens()), fault.Unauthenticated, fault.NotLoggedIn, "needs a login (it ran out on 2")
	if n := len(u.srv.Paths()); n > 0 {
		t.Errorf("%d requests", n)
	}
	status, err := u.store.Status(u.target, false)
	if err != nil || status.State != login.StateNeeds || status.Why != "it ran out" || status.Since.IsZero() {
		t.Errorf("status %+v, %v", status, err)
	}
}

// TestAnswerLost_SentOnceMoreOnly checks that a refresh token whose answer was lost is sent once
// more, and that a second loss ends the login, unless the server does not rotate.
func TestAnswerLost_SentOnceMoreOnly(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rotation  logintest.Rotation
		losses    int
		knows     bool // that the server does not rotate
		logged    bool // in afterwards
		renewals  int
		mostOfOne int
	}{
		"strict, one loss":          {rotation: logintest.Strict, losses: 1, renewals: 2, mostOfOne: 2},
		"graceful, one loss":        {rotation: logintest.Graceful, losses: 1, logged: true, renewals: 2, mostOfOne: 2},
		"graceful, two losses":      {rotation: logintest.Graceful, losses: 2, renewals: 2, mostOfOne: 2},
		"no rotation, three losses": {rotation: logintest.Fixed, losses: 3, knows: true, logged: true, renewals: 4, mostOfOne: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := logIn(t, logintest.Options{Rotation: tt.rotation, Life: time.Hour, Token: func(n int, _ url.Values) *logintest.Reply {
				if n <= tt.losses {
					return &logintest.Reply{Handle: true, Break: true}
				}
				return nil
			}})
			if tt.knows {
				u.change(func(l *login.Login) { l.Rotates = new(bool) })
			}
			u.srv.Expire()
			for range tt.losses {
				_ = u.call(t.Context(), u.tokens())
				u.change(func(l *login.Login) { // as if the pause were over
					l.Retry.At = time.Time{}
					if l.Mark != nil {
						l.Mark.At = l.Mark.At.Add(-time.Minute)
					}
				})
			}
			err := u.call(t.Context(), u.tokens())
			if tt.logged != (err == nil) {
				t.Errorf("the last call: %v", err)
			}
			if !tt.logged {
				wants(t, err, fault.Unauthenticated, fault.NotLoggedIn, "the answer to a renewal was lost")
			}
			u.endRules(tt.renewals, tt.mostOfOne)
		})
	}
}

// TestAnswerLost_BusyServerBetween checks that a server which is too busy between two lost answers does
// not make anybody forget the first: the token is not sent once more.
func TestAnswerLost_BusyServerBetween(t *testing.T) {
	u := logIn(t, logintest.Options{Rotation: logintest.Graceful, Life: time.Hour, Token: func(n int, _ url.Values) *logintest.Reply {
		if n == 2 {
			return &logintest.Reply{Status: 503}
		}
		return &logintest.Reply{Handle: true, Break: true}
	}})
	u.srv.Expire()
	var err error
	for range 4 {
		err = u.call(t.Context(), u.tokens())
		u.change(func(l *login.Login) { // as if the pause were over
			l.Retry.At = time.Time{}
			if l.Mark != nil {
				l.Mark.At = l.Mark.At.Add(-time.Minute)
			}
		})
	}
	wants(t, err, fault.Unauthenticated, fault.NotLoggedIn, "the answer to a renewal was lost twice")
	u.endRules(2, 2)
}

// TestCancelledCall_CostsNoLogin cancels the call that renews while the server takes its time. The
// renewal goes on, and Close waits for it.
func TestCancelledCall_CostsNoLogin(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	u := logIn(t, logintest.Options{Life: time.Hour, Token: func(int, url.Values) *logintest.Reply {
		close(asked)
		return &logintest.Reply{Handle: true, Wait: answer}
	}})
	u.srv.Expire()
	ctx, cancel := context.WithCancel(t.Context())
	tokens, done := u.tokens(), make(chan error)
	go func() { done <- u.call(ctx, tokens) }()
	<-asked
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the call: %v", err)
	}
	go func() { close(answer) }()
	tokens.Close()
	if err := u.call(t.Context(), u.tokens()); err != nil {
		t.Errorf("the next process: %v", err)
	}
	u.endRules(1, 1)
}

// TestLoginMeanwhile_Survives checks that a login which ends while a renewal is refused is what
// remains.
func TestLoginMeanwhile_Survives(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	u := logIn(t, logintest.Options{Life: time.Hour, Token: func(int, url.Values) *logintest.Reply {
		close(asked)
		return &logintest.Reply{Status: 400, Text: `{"error":"invalid_grant"}`, Wait: answer}
	}})
	u.srv.Expire()
	tokens, done := u.tokens(), make(chan error)
	go func() { done <- u.call(t.Context(), tokens) }()
	<-asked
	stored := make(chan struct{})
	go func() {
		fresh := u.srv.Issue()
		u.change(func(l *login.Login) {
			l.Access, l.Refresh, l.ClientID, l.Lost = login.Secret(fresh.Access), login.Secret(fresh.Refresh), fresh.Client, nil
			l.Expires = fresh.Expires
		})
		close(stored)
	}()
	select {
	case <-stored:
		t.Error("the login was stored while its lock was held")
	case <-time.After(200 * time.Millisecond): // it waits for the lock
	}
	close(answer)
	<-done // the fault, or the answer with the new login
	<-stored
	if err := u.call(t.Context(), tokens); err != nil {
		t.Errorf("the new login is gone: %v", err)
	}
}

// TestDiskFull_CallsGoOn lets the store fail after the server has answered: calls of that process
// go on, another process waits, and once there is room again nothing was spent twice.
func TestDiskFull_CallsGoOn(t *testing.T) {
	var u *user
	path := ""
	u = logIn(t, logintest.Options{Life: time.Hour, Token: func(int, url.Values) *logintest.Reply {
		// A directory in the place of the file: no rename can put a file there.
		if err := errors.Join(os.Rename(path, path+".saved"), os.Mkdir(path, 0o700)); err != nil {
			t.Error(err)
		}
		return nil
	}})
	target, before := u.file()
	path = filepath.Join(u.store.Dir(), target.Login+".json")
	tokens := u.tokens()
	if err := u.call(t.Context(), tokens); err != nil { // which reads the files
		t.Fatal(err)
	}
	u.srv.Watch("")
	u.srv.Expire()
	for range 3 {
		if err := u.call(t.Context(), tokens); err != nil {
			t.Errorf("a call of the process that renewed: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := u.store.Update(ctx, target.Login, &before, func() error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another process: %v, want it to wait", err)
	}
	if err := errors.Join(os.Remove(path), os.Rename(path+".saved", path)); err != nil {
		t.Fatal(err)
	}
	tokens.Close()
	if err := u.call(t.Context(), u.tokens()); err != nil {
		t.Errorf("the next process: %v", err)
	}
	u.endRules(1, 1)
}

// TestDiskFull_IsNoReasonToLogIn checks that a call whose login cannot be marked since the disk is full says
// that, and can be made again.
func TestDiskFull_IsNoReasonToLogIn(t *testing.T) {
	u := logIn(t, logintest.Options{Life: time.Hour})
	err := u.tokens().StoreFault(fmt.Errorf("write file: %w", &fs.PathError{Op: "write", Path: "/dir/x", Err: syscall.ENOSPC}))
	wants(t, err, fault.ResourceExhausted, "", "the disk is full at /dir: free some space there")
}

// TestDue_RenewsWithoutWaiting checks that a call goes on with a token that is about to run out,
// while it is renewed, and that a clock which was set back makes nothing of the sort.
func TestDue_RenewsWithoutWaiting(t *testing.T) {
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	u := logIn(t, logintest.Options{Life: time.Hour, Token: func(int, url.Values) *logintest.Reply {
		asked <- struct{}{}
		return &logintest.Reply{Handle: true, Wait: answer}
	}})
	tokens := u.tokens()
	u.change(func(l *login.Login) {
		l.Obtained, l.Expires = time.Now().Add(10*time.Minute), time.Now().Add(10*time.Second)
	})
	if err := u.call(t.Context(), tokens); err != nil {
		t.Errorf("clock set back: %v", err)
	}
	u.endRules(0, 0)
	tokens = u.tokens()
	u.change(func(l *login.Login) {
		l.Obtained, l.Expires = time.Now().Add(-time.Hour), time.Now().Add(10*time.Second)
	})
	if err := u.call(t.Context(), tokens); err != nil { // would block for ever if it waited
		t.Errorf("due: %v", err)
	}
	<-asked
	close(answer)
	u.endRules(1, 1)
}

// TestRefused checks what a call is told in each way in which a server can refuse it.
func TestRefused(t *testing.T) {
	u := logIn(t, logintest.Options{Life: time.Hour, Need: func(string, string) []string { return []string{"a", "b"} }}, "a")
	wants(t, u.call(t.Context(), u.tokens()), fault.Unauthenticated, fault.InsufficientScope,
		"server sentry needs the scope b for that; the person at this machine runs: holdline servers login sentry")
	if target, _ := u.file(); strings.Join(target.Wanted, " ") != "b" {
		t.Errorf("wanted: %v", target.Wanted)
	}
	if status, err := u.store.Status(u.target, false); err != nil || status.State != login.StateIn ||
		strings.Join(status.Wanted, " ") != "b" {
		t.Errorf("status %+v, %v", status, err)
	}
	u.change(func(l *login.Login) { l.Granted = []string{"a", "b"} })
	wants(t, u.call(t.Context(), u.tokens()), fault.Unauthenticated, fault.Rejected, "would not help")
	u.srv.Set(func(o *logintest.Options) { o.Need = nil })

	// A token that cannot be renewed, and is refused.
	u.change(func(l *login.Login) { l.Refresh = "" })
	u.srv.Revoke()
	wants(t, u.call(t.Context(), u.tokens()), fault.Unauthenticated, fault.NotLoggedIn, "the server refuses its tokens")
	before := len(u.srv.Paths())
	wants(t, u.call(t.Context(), u.tokens()), fault.Unauthenticated, fault.NotLoggedIn, "refuses its tokens on 2")
	if len(u.srv.Paths()) != before {
		t.Error("a call without a login was sent")
	}
	if status, err := u.store.Status(u.target, false); err != nil || status.State != login.StateNeeds {
		t.Errorf("status %+v, %v", status, err)
	}

	// A login of another resource.
	u.srv.LogIn(t, u.store)
	u.change(func(l *login.Login) { l.Audience = "https://elsewhere.example" })
	wants(t, u.call(t.Context(), u.tokens()), fault.Unauthenticated, fault.NotLoggedIn, "elsewhere")
	if len(u.srv.Paths()) != before {
		t.Error("a token for another server was sent")
	}

	// None at all, and never one.
	if err := u.store.Remove(t.Context(), u.target, &login.Target{}); err != nil {
		t.Fatal(err)
	}
	wants(t, u.call(t.Context(), u.tokens()), fault.Unauthenticated, fault.NotLoggedIn, "server sentry needs a login; the person")
	if status, err := u.store.Status(u.target, false); err != nil || status.State != login.StateNeeds {
		t.Errorf("status %+v, %v", status, err)
	}
}

// TestServerAsksNoMore checks that a server that has answered without a token wants no login any more,
// until it asks again, and when it may be asked. A login that was made meanwhile stays, and a logout
// leaves no file.
func TestServerAsksNoMore(t *testing.T) {
	u := logIn(t, logintest.Options{})
	tokens := u.tokens()
	target, l := u.file()
	state := func(want string) login.Status {
		t.Helper()
		s, err := u.store.Status(u.target, false)
		if err != nil || s.State != want {
			t.Fatalf("state %+v, %v, want %s", s, err, want)
		}
		return s
	}
	read := func() {
		t.Helper()
		if _, err := tokens.Token(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	read()
	tokens.Answered(t.Context())
	state(login.StateIn)
	if err := u.store.Remove(t.Context(), target.Login, &l); err != nil { // by a logout of another name
		t.Fatal(err)
	}
	if s := state(login.StateNeeds); s.Again.After(time.Now()) {
		t.Errorf("it may be asked again at %v", s.Again)
	}
	read()
	tokens.Answered(t.Context())
	state(login.StateNone)
	wants(t, u.call(t.Context(), tokens), fault.Unauthenticated, fault.NotLoggedIn, "needs a login")
	if s := state(login.StateNeeds); time.Until(s.Again) < 50*time.Second {
		t.Errorf("it may be asked again at %v", s.Again)
	}
	set := func(seen time.Time) {
		t.Helper()
		if err := u.store.Update(t.Context(), u.target, &target, func() error { target.Seen = seen; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	set(time.Now().Add(time.Hour)) // and then the clock was set back
	if s := state(login.StateNeeds); s.Again.After(time.Now()) {
		t.Errorf("it may be asked again at %v, after the clock was set back", s.Again)
	}
	wants(t, u.call(t.Context(), tokens), fault.Unauthenticated, fault.NotLoggedIn, "needs a login")
	if s := state(login.StateNeeds); time.Until(s.Again) > time.Minute {
		t.Errorf("it may be asked again at %v", s.Again)
	}
	read()
	u.srv.LogIn(t, u.store)
	tokens.Answered(t.Context())
	state(login.StateIn)
	target, l = u.file()
	if err := u.store.Remove(t.Context(), target.Login, &l); err != nil {
		t.Fatal(err)
	}
	read()
	if err := u.store.Remove(t.Context(), u.target, &target); err != nil {
		t.Fatal(err)
	}
	tokens.Answered(t.Context())
	if ids, err := u.store.IDs(&target); err != nil || len(ids) > 0 {
		t.Errorf("left after a logout: %q, %v", ids, err)
	}
}

// TestNoReasonToLogIn checks that a call which fails for a token that is old by now, or for files that
// cannot be used, does not say that somebody has to log in.
func TestNoReasonToLogIn(t *testing.T) {
	u := logIn(t, logintest.Options{Life: time.Hour})
	_, err := u.tokens().Refused(t.Context(), "an old one", http.StatusUnauthorized, http.Header{}, true)
	wants(t, err, fault.TransportFailure, fault.Unreachable, "there is another one by now")
	target, l := u.file()
	if l.Lost != nil {
		t.Errorf("the login is lost: %+v", l.Lost)
	}
	if err := os.Chmod(filepath.Join(u.store.Dir(), target.Login+".json"), 0o644); err != nil {
		t.Fatal(err)
	}
	wants(t, u.call(t.Context(), u.tokens()), fault.Unauthenticated, "", "cannot be used")
}

// TestRefusalsInARow_EndTheLogin checks that a server which refuses five renewals for another reason than
// the token is not asked a sixth time.
func TestRefusalsInARow_EndTheLogin(t *testing.T) {
	u := logIn(t, logintest.Options{Life: time.Hour, Token: func(int, url.Values) *logintest.Reply {
		return &logintest.Reply{Status: 400, Text: `{"error":"invalid_target"}`}
	}})
	u.srv.Expire()
	for n := range 6 {
		err := u.call(t.Context(), u.tokens())
		if n < 4 {
			wants(t, err, fault.TransportFailure, fault.Unreachable, "invalid_target")
		} else {
			wants(t, err, fault.Unauthenticated, fault.NotLoggedIn, "its renewal was refused")
		}
		status, err := u.store.Status(u.target, false)
		if failing := status.State == login.StateFailing && status.NextTry.After(time.Now()); err != nil || failing != (n < 4) {
			t.Errorf("after %d refusals: %+v, %v", n+1, status, err)
		}
		u.change(func(l *login.Login) { l.Retry.At = time.Time{} }) // as if the pause were over
	}
	if n := len(u.srv.Forms()); n != 5 {
		t.Errorf("asked %d times", n)
	}
}

// TestUnreachable_SpendsNothing checks that a renewal without a connection leaves no mark, that calls go on
// while the old token lasts, and that a server which speaks DPoP alone is named.
func TestUnreachable_SpendsNothing(t *testing.T) {
	u := logIn(t, logintest.Options{Life: time.Hour})
	u.change(func(l *login.Login) {
		l.TokenURL = "http://127.0.0.1:1/token"
		l.Obtained, l.Expires = time.Now().Add(-time.Hour), time.Now().Add(10*time.Second)
	})
	tokens := u.tokens()
	if err := u.call(t.Context(), tokens); err != nil {
		t.Errorf("due: %v", err)
	}
	_, l := u.file()
	for l.Retry.Failures == 0 && t.Context().Err() == nil { // a renewal that has not begun ends with its process
		time.Sleep(time.Millisecond)
		_, l = u.file()
	}
	tokens.Close()
	if l.Mark != nil || l.Refresh == "" || l.Retry.Failures != 1 {
		t.Errorf("mark %+v, retry %+v", l.Mark, l.Retry)
	}
	u.change(func(l *login.Login) { l.Expires = time.Now().Add(-time.Second) })
	wants(t, u.call(t.Context(), u.tokens()), fault.TransportFailure, fault.Unreachable, "unreachable")
	u.endRules(0, 0)
	_, err := login.NewTokens(login.Options{
		Name: "sentry", URL: "https://elsewhere.example", Store: u.store, Target: "x", Log: slog.New(slog.DiscardHandler),
	}).Refused(t.Context(), "", http.StatusUnauthorized, http.Header{"Www-Authenticate": {"DPoP algs=ES256"}}, false)
	wants(t, err, fault.Unauthenticated, fault.Rejected, "needs DPoP")
}

// TestFreshTokenRefused_OneRenewalForACall checks that a server which refuses every token costs
// one renewal, and then the login.
func TestFreshTokenRefused_OneRenewalForACall(t *testing.T) {
	u := logIn(t, logintest.Options{Life: time.Hour, Refuse: true})
	wants(t, u.call(t.Context(), u.tokens()), fault.Unauthenticated, fault.NotLoggedIn, "the server refuses its tokens")
	u.endRules(1, 1)
}

// TestLocked_LosesNothing checks that a store whose key cannot be had fails calls and keeps the
// files.
func TestLocked_LosesNothing(t *testing.T) {
	srv := logintest.Start(t, logintest.Options{Life: time.Hour})
	dir := filepath.Join(t.TempDir(), "logins")
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("ab", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *login.Store { return login.Open(dir, login.NewKey([]string{"/bin/cat", key}, nil)) }
	u := &user{t: t, srv: srv, store: open()}
	u.target = srv.LogIn(t, u.store)
	u.srv.Expire()
	if err := u.call(t.Context(), u.tokens()); err != nil { // renews, and seals what it stores
		t.Fatal(err)
	}
	for _, secret := range srv.Secrets() {
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
			if b, err := os.ReadFile(path); !d.IsDir() && (err != nil || strings.Contains(string(b), secret)) {
				t.Errorf("%s has a token in clear text (%v)", path, err)
			}
			return nil
		})
	}
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	u.store = open()
	wants(t, u.call(t.Context(), u.tokens()), fault.Unauthenticated, fault.NotLoggedIn, "is locked")
	if status, err := u.store.Status(u.target, false); err != nil || status.State != login.StateLocked {
		t.Errorf("status %+v, %v", status, err)
	}
	if err := os.Rename(key+".away", key); err != nil {
		t.Fatal(err)
	}
	u.store = open()
	if err := u.call(t.Context(), u.tokens()); err != nil {
		t.Errorf("with its key again: %v", err)
	}
}
