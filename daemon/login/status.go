package login

import (
	"errors"
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
	Again     time.Time // when the state may be another one though no file has changed; zero for never
	ClockSkew time.Duration
}

// askPause is how long it counts that a server wanted a login: it may have stopped asking.
const askPause = time.Minute

// ranOut says why a login without a refresh token does not work any more.
const ranOut = "it ran out"

// Status returns the state of a target's login, from its files alone. machine tells that no
// person logs in there, so that a grant that is gone is asked for again. The error is of
// files that cannot be read, unless the state says all of it.
func (s *Store) Status(targetID string, machine bool) (Status, error) {
	var target Target
	var l Login
	now := time.Now()
	err := s.ReadIfThere(targetID, &target)
	if err == nil {
		err = s.ReadIfThere(target.Login, &l)
	}
	switch {
	case errors.Is(err, ErrNoKey):
		return Status{State: StateLocked, Why: err.Error(), Again: now.Add(keyPause)}, nil
	case err != nil:
		return Status{State: StateNeeds, Why: err.Error()}, err
	case l.Issuer == "" && (target.Login != "" || target.asks() && !machine):
		return Status{State: StateNeeds, Wanted: target.Wanted, Again: target.again(now)}, nil
	case l.Issuer == "":
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
	case !out.Renews && l.expired(now):
		out.State, out.Why, out.Since = StateNeeds, ranOut, l.Expires
	case l.Retry.Failures > 0:
		out.State, out.Why, out.Since, out.NextTry = StateFailing, l.Retry.Why, l.Retry.Since, l.Retry.At
	}
	return out, nil
}
