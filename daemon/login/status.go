package login

import (
	"errors"
	"io/fs"
	"time"
)

// States of a login.
const (
	StateNone    = "none"            // the server has asked for no login yet
	StateNeeds   = "needs_login"     // a person must log in
	StateIn      = "logged_in"       //
	StateFailing = "renewal_failing" // logged in, and the last renewal failed
	StateLocked  = "locked"          // the key of the files cannot be had
)

// Status is a login as people see it. It holds no secret.
type Status struct {
	State     string
	Login     string // id, "" if there is none
	Person    string // as whom
	Account   string // oauth.account
	Issuer    string
	Resource  string
	Scopes    []string  // granted
	Wanted    []string  // scopes that calls were refused for
	Expires   time.Time // zero if unknown
	Renews    bool
	Why       string    // in StateNeeds, StateFailing and StateLocked; "" if there never was a login
	Since     time.Time // of Why
	NextTry   time.Time // in StateFailing
	ClockSkew time.Duration
}

// ranOut says why a login without a refresh token does not work any more.
const ranOut = "it ran out"

// Status returns the state of a target's login, from its files alone. machine tells that no
// person logs in there, so that a grant that is gone is asked for again.
func (s *Store) Status(targetID string, machine bool) (Status, error) {
	var target Target
	if err := s.Read(targetID, &target); errors.Is(err, fs.ErrNotExist) {
		return Status{State: StateNone}, nil
	} else if err != nil {
		return unreadable(err)
	}
	var l Login
	if target.Login != "" {
		if err := s.Read(target.Login, &l); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unreadable(err)
		}
	}
	if l.Issuer == "" {
		if target.Login != "" || target.Challenge.Bearer && !machine {
			return Status{State: StateNeeds, Wanted: target.Wanted}, nil
		}
		return Status{State: StateNone}, nil
	}
	out := Status{
		State: StateIn, Login: target.Login, Person: l.Person, Account: l.Account, Issuer: l.Issuer,
		Resource: l.Resource, Scopes: l.Granted, Wanted: l.Lacks(target.Wanted), Expires: l.Expires,
		Renews: l.Refresh != "" || machine, ClockSkew: l.Skew,
	}
	switch {
	case l.Lost != nil && !machine:
		out.State, out.Why, out.Since = StateNeeds, l.Lost.Why, l.Lost.At
	case !out.Renews && l.expired(time.Now()):
		out.State, out.Why, out.Since = StateNeeds, ranOut, l.Expires
	case l.Retry.Failures > 0:
		out.State, out.Why, out.Since, out.NextTry = StateFailing, l.Retry.Why, l.Retry.Since, l.Retry.At
	}
	return out, nil
}

// unreadable returns the status of a login whose files cannot be read, and the error unless the
// status says all of it.
func unreadable(err error) (Status, error) {
	if errors.Is(err, ErrNoKey) {
		return Status{State: StateLocked, Why: err.Error()}, nil
	}
	return Status{State: StateNeeds, Why: err.Error()}, err
}
