package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
)

// Times of renewals.
const (
	firstRetry  = time.Second // after a failure that spent nothing; it doubles
	lastRetry   = time.Minute
	longest     = 5 * time.Minute // that a server can make us wait
	clientRetry = time.Minute     // after the server refused the client
	maxRefusals = 5               // verdicts in a row, after which a person must log in
	// manyFailures in a row are named together with the way to log in anew.
	manyFailures = 8
	markPause    = time.Second // before a token whose fate is unknown is sent again
	storePause   = time.Second // between tries to store what was renewed
	storeLog     = time.Minute // between errors in the log about that
)

// refresh renews the login of that id, unless another process has done so already: see the
// rules in the package comment. rejected is a token that the server has just refused, or "".
// early is called when callers can go on before refresh returns.
//
// It follows ctx only until it sends the refresh token.
func (t *Tokens) refresh(ctx context.Context, id string, rejected Secret, early func()) error {
	s := t.o.Store
	var l Login
	renewed := func() bool {
		return l.Access != "" && l.Access != rejected && !l.due(time.Now()) || l.Lost != nil ||
			l.Refresh == "" // also if somebody has logged out
	}
	var held *Held
	if faultpoint.Broken("login.lock") {
		held = &Held{s: s, id: id}
	} else {
		var err error
		held, err = s.lockUnless(ctx, id, &l, func() bool { return s.Read(id, &l) == nil && renewed() })
		if err != nil {
			return t.lockFault(err)
		}
		if held == nil {
			return nil // the caller sees it in the file
		}
		defer func() {
			held.Unlock()
			faultpoint.At("login.released")
		}()
	}
	faultpoint.At("login.locked")
	if err := s.ReadIfThere(id, &l); err != nil {
		return t.storeFault(err)
	}
	switch {
	case renewed() && !faultpoint.Broken("login.reread"):
		return nil
	case l.Retry.waits(time.Now()):
		return t.laterFault(&l)
	}
	if l.Mark != nil {
		if l.spentTwice() {
			return t.end(held, &l, lostTwice)
		}
		// The clock may have been set back since.
		if err := pause(ctx, min(markPause, time.Until(l.Mark.At.Add(markPause)))); err != nil {
			return err
		}
	}
	return t.send(held, &l, early)
}

// lostTwice says why a refresh token is not sent a third time.
const lostTwice = "the answer to a renewal was lost twice"

// spentTwice reports whether the refresh token was sent twice with an unknown outcome, to a
// server that may have issued another one each time. It is not sent again then.
func (l *Login) spentTwice() bool { return l.Mark.Try > 1 && (l.Rotates == nil || *l.Rotates) }

// send sends the refresh token of l, whose lock is held, and stores what comes back.
func (t *Tokens) send(held *Held, l *Login, early func()) error {
	var client Credentials
	if err := t.o.Store.ReadIfThere(t.o.Target, &client); err != nil {
		return t.storeFault(err)
	}
	form := url.Values{"grant_type": {GrantRefresh}, "refresh_token": {l.Refresh.Reveal()}}
	if l.Resource != "" && !l.Unnamed {
		form.Set("resource", l.Resource)
	}
	previous, marked := l.Mark, false
	var unmarked error
	asker := NewClient(t.o.URL, client.Issuer, t.o.Version)
	grant, err := asker.Ask(context.WithoutCancel(t.alive), l.Endpoint(&client), form, func() error {
		if t.alive.Err() != nil { // this process ends, and nothing is sent yet
			return context.Cause(t.alive)
		}
		mark := Mark{Generation: l.Generation, At: time.Now(), Try: 1}
		if l.Mark != nil {
			mark.Try = l.Mark.Try + 1
		}
		l.Mark = &mark
		if !faultpoint.Broken("login.mark") {
			if unmarked = held.Write(l); unmarked != nil {
				return unmarked
			}
		}
		marked = true
		faultpoint.At("login.marked")
		return nil
	})
	if err != nil {
		switch {
		case unmarked != nil:
			return t.storeFault(unmarked)
		case !marked && t.alive.Err() != nil:
			return context.Cause(t.alive)
		}
		return t.failed(held, l, previous, marked, early, err)
	}
	rotates := grant.Refresh != "" && grant.Refresh != l.Refresh
	l.Rotates = &rotates
	l.Take(grant, nil)
	faultpoint.At("login.answered")
	if faultpoint.Broken("login.store") {
		t.keep(l)
		early()
		_ = pause(t.alive, storePause)
	}
	t.store(held, l, early)
	return nil
}

// store writes a renewed login. The old tokens are useless now, so it never gives up: while the
// disk is full, requests of this process go on with the new token, and the lock keeps other
// processes from spending the old one.
func (t *Tokens) store(held *Held, l *Login, early func()) {
	var told, closing time.Time
	for {
		err := held.Write(l)
		if err == nil {
			faultpoint.At("login.stored")
			t.keep(nil)
			return
		}
		t.keep(l)
		early()
		now := time.Now()
		if now.Sub(told) > storeLog {
			told = now
			t.o.Log.Error("the renewed login of a server cannot be stored; trying again each second. "+
				"If this process ends before, a person must log in again", "server", t.o.Name, "err", err)
		}
		if t.alive.Err() != nil && closing.IsZero() {
			closing = now
		}
		if !closing.IsZero() && now.Sub(closing) > closeLimit {
			return
		}
		timer := time.NewTimer(storePause)
		<-timer.C
	}
}

// keep makes requests use a login that is not stored yet, or nil for the stored one again. It
// takes a copy: the caller may write l again while requests read.
func (t *Tokens) keep(l *Login) {
	if l != nil {
		unsaved := *l
		l = &unsaved
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unsaved, t.known = l, false
}

// failed takes note of a renewal that brought no token, and returns its fault. marked means
// that the refresh token may have been sent; previous is the mark of an earlier one, or nil. If the server may not
// know the parameter resource, it is asked once more without that: early is for then.
func (t *Tokens) failed(held *Held, l *Login, previous *Mark, marked bool, early func(), err error) error {
	refused, answered := errors.AsType[*RefusalError](err)
	isNonsense := errors.Is(err, ErrNonsense)
	if marked && !answered && !isNonsense {
		t.o.Log.Warn("a renewal has an unknown outcome", "server", t.o.Name, "err", err)
		if l.spentTwice() {
			return t.end(held, l, lostTwice)
		}
		l.Retry = l.Retry.after(backOff(l.Mark.Try-1), "the answer to the last one was lost")
		return t.record(held, l, t.laterFault(l))
	}
	// Of this one nothing is known to be spent: an answer that was read whole and brings no token costs
	// nothing, unless it is a verdict.
	l.Mark = previous
	if isNonsense {
		l.Retry = l.Retry.after(0, "its authorization server gives out no token: "+err.Error())
		t.o.Log.Warn("a login was not renewed", "server", t.o.Name, "err", err)
		return t.record(held, l, t.laterFault(l))
	}
	if !answered {
		l.Retry = l.Retry.after(0, "its authorization server is unreachable")
		t.o.Log.Warn("a login could not be renewed", "server", t.o.Name, "err", err)
		return t.record(held, l, t.laterFault(l))
	}
	l.Skew = refused.Skew
	t.o.Log.Warn("a login was not renewed", "server", t.o.Name, "err", err)
	code := refused.Code
	if !refused.IsVerdict() {
		code = ""
	}
	switch code {
	case "invalid_request", "invalid_target":
		if l.Resource != "" && !l.Unnamed && strings.Contains(strings.ToLower(refused.Description), "resource") {
			l.Unnamed = true // it does not know the parameter, and knows what the login is for
			return t.send(held, l, early)
		}
	case "invalid_grant":
		l.Access, l.Refresh = "", ""
		if previous != nil {
			return t.end(held, l, "the answer to a renewal was lost")
		}
		return t.end(held, l, "the refresh token was refused")
	case "invalid_client", "unauthorized_client":
		if l.Registered != "" {
			var r Registration // it may be of another client by now
			err := t.o.Store.removeIf(context.WithoutCancel(t.alive), l.Registered, &r, func() bool {
				return r.ClientID == l.ClientID
			})
			if err != nil {
				t.o.Log.Warn("a registration could not be dropped", "err", err)
			}
			return t.end(held, l, "the authorization server does not know the client any more")
		}
		l.Retry = l.Retry.after(clientRetry, "the authorization server refuses the client")
		l.Retry.Client = true
		return t.record(held, l, t.laterFault(l))
	}
	l.Retry = l.Retry.after(refused.RetryAfter, "its authorization server answers "+refused.Error())
	if refused.IsVerdict() {
		if l.Retry.Refusals++; l.Retry.Refusals >= maxRefusals {
			return t.end(held, l, "its renewal was refused: "+refused.Error())
		}
	}
	return t.record(held, l, t.laterFault(l))
}

// after returns when to try again after one more failure: after wait, or a pause that grows.
func (r Retry) after(wait time.Duration, why string) Retry {
	now := time.Now()
	next := Retry{Failures: r.Failures + 1, Refusals: r.Refusals, Since: r.Since, Why: why}
	if r.Failures == 0 {
		next.Since = now
	}
	next.At = now.Add(min(longest, cmp.Or(wait, backOff(r.Failures))))
	return next
}

// waits reports whether it is not yet time to try again. A time further away than any that we set
// is of a clock that was set back since.
func (r Retry) waits(now time.Time) bool { return now.Before(r.At) && r.At.Sub(now) <= longest }

// backOff returns the pause after n failures.
func backOff(n int) time.Duration { return min(firstRetry<<min(n, 6), lastRetry) }

// end takes note that a person must log in again, and returns the fault.
func (t *Tokens) end(held *Held, l *Login, why string) error {
	l.Mark, l.Lost = nil, &Lost{why, time.Now()}
	return t.record(held, l, t.needsLogin(why))
}

// record writes the login and returns f. If it cannot be written, the mark is there still, and
// the next renewal knows no less than this one.
func (t *Tokens) record(held *Held, l *Login, f error) error {
	if err := held.Write(l); err != nil {
		t.o.Log.Warn("the state of a login could not be stored", "server", t.o.Name, "err", err)
	}
	return f
}

// laterFault returns the fault of a request that needs a token which cannot be renewed now.
func (t *Tokens) laterFault(l *Login) error {
	wait := max(0, time.Until(l.Retry.At))
	if l.Retry.Client {
		then := "login"
		if l.Refresh == "" { // nobody logs in
			then = "restart"
		}
		return fault.New(fault.Unauthenticated, fault.Server, "",
			"the login of server %s cannot be renewed: the authorization server %s refuses the client. "+
				"Check oauth.clientId and oauth.clientSecret or oauth.privateKeyFile of mcpServers.%[1]s, "+
				"then: holdline servers %[3]s %[1]s", t.o.Name, l.Issuer, then).WithReason(fault.Rejected)
	}
	way := ""
	if l.Refresh != "" && l.Retry.Failures >= manyFailures {
		way = ". If it goes on, the person at this machine runs: holdline servers login " + t.o.Name
	}
	return retryIn(wait, fault.New(fault.TransportFailure, fault.Server, "",
		"the login of server %s cannot be renewed at the moment (%s); next try in %d s%s",
		t.o.Name, l.Retry.Why, int(wait.Seconds()+0.999), way).WithReason(fault.Unreachable))
}

// retryIn sets when a call may be tried again. A fault that says so opens no circuit, which would hide it.
func retryIn(wait time.Duration, f *fault.Record) *fault.Record {
	ms := wait.Milliseconds()
	f.RetryAfterMS = &ms
	return f
}

// lockFault returns the fault of a lock that could not be had.
func (t *Tokens) lockFault(err error) error {
	if busy, ok := errors.AsType[*BusyError](err); ok {
		return retryIn(firstRetry, fault.New(fault.Timeout, fault.Host, "",
			"%s renews the login of server %s and does not come to an end. See: holdline doctor", busy.Holder, t.o.Name))
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return t.storeFault(err)
}

// pause blocks for d, or until ctx is done; then it returns the cause.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ending: %w", context.Cause(ctx))
	}
}
