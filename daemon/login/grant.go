package login

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"holdline/protocol/fault"
)

// grant asks for a token in the name of the client itself, unless another process has done so
// already. Its authorization server is looked for anew if the server has refused a token, or if
// there was none yet. There is no refresh token that could be lost, so a grant may be asked for
// any number of times.
func (t *Tokens) grant(ctx context.Context, f *files, rejected Secret) error {
	client, now := NewClient(t.o.URL, f.client.Issuer, t.o.Version), time.Now()
	var endpoint Endpoint
	var l Login
	var err error
	if f.hasLogin() && rejected == "" {
		l = f.login
		endpoint, err = t.endpoint(&l, &f.client)
	} else if endpoint, l, err = t.o.Discover(ctx, client, t.o.URL, f.target.Challenge, &f.client); err != nil {
		err = fault.New(fault.Unauthenticated, fault.Server, "",
			"server %s needs a login, and none can be had: %v", t.o.Name, err).WithReason(fault.Unreachable)
	}
	if err != nil {
		return err
	}
	wanted := JoinScopes(l.Requested, f.target.Wanted)
	id := l.ID()
	if err := t.grantLocked(ctx, client, endpoint, id, l, wanted, rejected); err != nil || f.target.Login == id {
		return err
	}
	var target Target
	err = t.o.Store.Update(ctx, t.o.Target, &target, func() error {
		target.URL, target.Login = BareAddress(t.o.URL), id
		return nil
	})
	if err != nil {
		return t.storeFault(err)
	}
	t.o.Log.InfoContext(ctx, "the server has a login", "server", t.o.Name, "issuer", l.Issuer, "took", time.Since(now))
	return nil
}

// grantLocked asks for the token under the lock of the login, and stores it. fresh is what is
// known of the login if there is none yet.
func (t *Tokens) grantLocked(
	ctx context.Context, client *Client, endpoint Endpoint, id string, fresh Login, wanted []string, rejected Secret,
) error {
	var l Login
	held, err := t.o.Store.Lock(ctx, id, &l)
	if err != nil {
		return t.lockFault(err)
	}
	defer held.Unlock()
	if err := t.o.Store.Read(id, &l); errors.Is(err, fs.ErrNotExist) {
		l = fresh
	} else if err != nil {
		return t.storeFault(err)
	}
	now := time.Now()
	switch {
	case l.Access != "" && l.Access != rejected && !l.due(now):
		return nil
	case l.Retry.waits(now):
		return t.laterFault(&l)
	}
	l.TokenURL, l.AuthMethod, l.Lost = endpoint.URL, endpoint.Method, nil
	form := url.Values{"grant_type": {GrantClient}}
	if len(wanted) > 0 {
		form.Set("scope", strings.Join(wanted, " "))
	}
	if l.Resource != "" {
		form.Set("resource", l.Resource)
	}
	g, err := client.Ask(context.WithoutCancel(ctx), endpoint, form, nil)
	if err != nil {
		t.o.Log.WarnContext(ctx, "no token was granted", "server", t.o.Name, "err", err)
		refused, answered := errors.AsType[*RefusalError](err)
		if answered && refused.Status < 500 && refused.RetryAfter == 0 {
			l.Retry = l.Retry.after(clientRetry, "the authorization server answers "+refused.Error())
			l.Retry.Client = refused.Code != "invalid_scope"
		} else if answered {
			l.Retry = l.Retry.after(refused.RetryAfter, "the authorization server answers "+refused.Error())
		} else {
			l.Retry = l.Retry.after(0, "its authorization server is unreachable")
		}
		return t.record(held, &l, t.laterFault(&l))
	}
	l.Take(g, wanted)
	if err := held.Write(&l); err != nil {
		return t.storeFault(err)
	}
	return nil
}
