package launch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/login"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// openLogins is the store of logins that a daemon looks at. It is opened once for each key
// command, since the command may ask a person for something. It is safe for concurrent use.
type openLogins struct {
	mu      sync.Mutex
	store   *login.Store
	command []string // of store
}

// logins returns the store of logins.
func (l *Launcher) logins() *login.Store {
	command := l.File.Current().Logins.KeyCommand
	l.open.mu.Lock()
	defer l.open.mu.Unlock()
	if l.open.store == nil || !slices.Equal(command, l.open.command) {
		l.open.store = Logins{Dir: l.LoginDir, KeyCommand: command}.Open(l.Env.List())
		l.open.command = command
	}
	return l.open.store
}

// target returns the id of a server's target, by the environment of this moment.
func (l *Launcher) target(s *config.Settings) (id string, err error) {
	from := Start{Config: l.File.Path(), Home: l.Home, Environ: l.Env.List()}
	return from.Target(s)
}

// Target returns the id of the target of a remote server.
func (l *Start) Target(s *config.Settings) (id string, err error) {
	a, err := l.around(context.Background(), s, "") // nothing is run: the address needs no command
	if err != nil {
		return "", err
	}
	address, err := a.Address(*s)
	if err != nil {
		return "", err
	}
	_, id, err = Client(s, a, address.URL)
	return id, err
}

// Login returns the login of a remote server, for people; nil for other servers.
func (l *Launcher) Login(s *config.Settings) *control.Login {
	switch {
	case s.Transport != config.HTTP:
		return nil
	case !s.LogsIn():
		return &control.Login{State: login.StateNone}
	}
	id, err := l.target(s)
	if err != nil {
		return &control.Login{State: login.StateNone, Why: err.Error()}
	}
	return ShowLogin(l.logins(), id, s.OAuth.Grant == config.GrantMachine)
}

// ShowLogin returns the login of a target, for people.
func ShowLogin(store *login.Store, target string, machine bool) *control.Login {
	st, _ := store.Status(target, machine) // the status says what the error is
	return &control.Login{
		State: st.State, Account: cmp.Or(st.Person, st.Account), Issuer: st.Issuer, Resource: st.Resource,
		Scopes: st.Scopes, Wanted: st.Wanted, ExpiresMS: unixMS(st.Expires), Renews: st.Renews, Why: st.Why,
		SinceMS: unixMS(st.Since), NextTryMS: unixMS(st.NextTry),
	}
}

// unixMS returns a time in milliseconds since 1970, and 0 for the zero time.
func unixMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// A serverLogin is the login of one server, for package hosted.
type serverLogin struct {
	l *Launcher
	s config.Settings
}

// loginOfSpec returns the login of a server, or nil if it needs none.
func (l *Launcher) loginOfSpec(s *config.Settings) entry.Login {
	if l.LoginDir == "" || !s.LogsIn() {
		return nil
	}
	return serverLogin{l, *s}
}

// Stamp identifies the files of the server, and of the login with that id.
func (x serverLogin) Stamp(id string) (stamp entry.LoginStamp) {
	store := x.l.logins()
	if target, err := x.l.target(&x.s); err == nil {
		stamp.Server = store.Stamp(target, &login.Target{})
	}
	if id != "" {
		stamp.Tokens = store.Stamp(id, &login.Login{})
	}
	return stamp
}

// State reads the files. If even the address is not known, the start says why.
func (x serverLogin) State() entry.LoginState {
	target, err := x.l.target(&x.s)
	if err != nil {
		return entry.LoginState{}
	}
	st, _ := x.l.logins().Status(target, x.s.OAuth.Grant == config.GrantMachine) // it says what the error is
	out := entry.LoginState{Login: st.Login, Until: st.Again}
	if st.Login != "" {
		out.Who = st.Login + " " + st.Person
	}
	switch st.State {
	case login.StateNeeds:
		why := st.Why
		if !st.Since.IsZero() {
			why += " on " + st.Since.Format(time.DateTime)
		}
		out.Missing = login.NeedsLogin(x.s.Name, why)
	case login.StateLocked:
		out.Missing = fault.New(fault.Unauthenticated, fault.Server, "",
			"the login of server %s %s; the person at this machine runs: holdline doctor", x.s.Name, st.Why).
			WithReason(fault.NotLoggedIn)
	}
	return out
}
