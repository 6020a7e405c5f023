package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"holdline/protocol/fault"
)

// discoverPause is how long a failed discovery is not repeated.
const discoverPause = 10 * time.Second

// grant asks for a token in the name of the client itself, unless another process has done so
// already. Its authorization server is looked for anew if the server has refused a token, or if
// there was none yet. There is no refresh token that could be lost, so a grant may be asked for
// any number of times.
func (t *Tokens) grant(ctx context.Context, f *files, rejected Secret) error {
	client, now := NewClient(t.o.URL, f.client.Issuer, t.o.Version), time.Now()
	l := f.login
	if !f.hasLogin() || rejected != "" {
		var err error
		if l, err = t.discover(ctx, client, f); err != nil {
			return err
		}
	}
	id := l.ID()
	refused, err := t.grantLocked(ctx, client, id, l, f, rejected)
	if !refused && (err != nil || f.target.Login == id) {
		return err
	}
	var target Target
	uerr := t.o.Store.Update(ctx, t.o.Target, &target, func() error {
		if refused {
			target.Wanted = Without(target.Wanted, f.target.Wanted)
		}
		if err == nil {
			target.URL, target.Login = BareAddress(t.o.URL), id
		}
		return nil
	})
	if uerr != nil && err == nil {
		return t.storeFault(uerr)
	}
	if err == nil {
		t.o.Log.InfoContext(ctx, "the server has a login", "server", t.o.Name, "issuer", l.Issuer,
			"took", time.Since(now))
	}
	return err
}

// discover finds out where the client gets its tokens, and binds it to that authorization server
// before it is shown there.
func (t *Tokens) discover(ctx context.Context, client *Client, f *files) (Login, error) {
	if t.unfound != nil && time.Since(t.looked) < discoverPause {
		return Login{}, t.unfound
	}
	c := f.client
	c.Bound = cmp.Or(c.Bound, f.login.Issuer)
	l, err := t.o.Discover(ctx, client, t.o.URL, f.target.Challenge, &c)
	if t.looked, t.unfound = time.Now(), nil; err != nil {
		t.unfound = fault.New(fault.Unauthenticated, fault.Server, "",
			"server %s needs a login, and none can be had: %v", t.o.Name, err).WithReason(fault.Unreachable)
		return l, t.unfound
	}
	if f.client.Bound != "" {
		return l, nil
	}
	err = t.o.Store.Update(ctx, t.o.Target, &c, func() error {
		if c.Bound != "" && c.Bound != l.Issuer {
			return fmt.Errorf("its client is used with %s already", Clean(c.Bound))
		}
		c.Bound = l.Issuer
		return nil
	})
	if err != nil {
		return l, t.storeFault(err)
	}
	return l, nil
}

// grantLocked asks for the token under the lock of the login, and stores it. fresh is what is
// known of the login if there is none yet. The scopes that calls were refused for are asked for,
// too; refused says that the authorization server knows one of them not, and that they are not to
// be asked for again.
func (t *Tokens) grantLocked(
	ctx context.Context, client *Client, id string, fresh Login, f *files, rejected Secret,
) (refused bool, err error) {
	var l Login
	held, err := t.o.Store.Lock(ctx, id, &l)
	if err != nil {
		return false, t.lockFault(err)
	}
	defer held.Unlock()
	if err := t.o.Store.ReadIfThere(id, &l); err != nil {
		return false, t.storeFault(err)
	} else if l.Issuer == "" {
		l = fresh
	}
	now := time.Now()
	switch {
	case l.Access != "" && l.Access != rejected && !l.due(now):
		return false, nil
	case l.Retry.waits(now):
		return false, t.laterFault(&l)
	}
	l.TokenURL, l.AuthMethod, l.Lost = fresh.TokenURL, fresh.AuthMethod, nil
	scopes, more := l.Requested, fresh.Requested // which has what one call needs, by its challenge
	if f.client.Scopes != nil {
		scopes, more = f.client.Scopes, nil
	}
	wanted, basic := JoinScopes(scopes, more, f.target.Wanted), Without(scopes, f.target.Wanted)
	g, err := t.askGrant(ctx, client, &l, f, wanted)
	if e, ok := errors.AsType[*RefusalError](err); ok && e.Code == "invalid_scope" && len(basic) < len(wanted) {
		refused, wanted = true, basic
		g, err = t.askGrant(ctx, client, &l, f, wanted)
	}
	if ctx.Err() != nil && err != nil {
		return refused, context.Cause(ctx)
	}
	if err != nil {
		t.o.Log.WarnContext(ctx, "no token was granted", "server", t.o.Name, "err", err)
		e, answered := errors.AsType[*RefusalError](err)
		if answered && e.RetryAfter == 0 && (e.IsVerdict() || e.Status == http.StatusUnauthorized) {
			l.Retry = l.Retry.after(clientRetry, "the authorization server answers "+e.Error())
			l.Retry.Client = e.Code != "invalid_scope"
		} else if answered {
			l.Retry = l.Retry.after(e.RetryAfter, "the authorization server answers "+e.Error())
		} else if errors.Is(err, ErrNonsense) {
			l.Retry = l.Retry.after(0, "its authorization server gives out no token: "+err.Error())
		} else {
			l.Retry = l.Retry.after(0, "its authorization server is unreachable")
		}
		return refused, t.record(held, &l, t.laterFault(&l))
	}
	l.Take(g, wanted)
	if err := held.Write(&l); err != nil {
		return refused, t.storeFault(err)
	}
	return refused, nil
}

// askGrant makes one request for a token.
func (t *Tokens) askGrant(ctx context.Context, client *Client, l *Login, f *files, scopes []string) (Grant, error) {
	form := url.Values{"grant_type": {GrantClient}}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	if l.Resource != "" {
		form.Set("resource", l.Resource)
	}
	return client.Ask(ctx, l.Endpoint(&f.client), form, nil)
}
