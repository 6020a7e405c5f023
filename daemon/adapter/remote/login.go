package remote

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"holdline/daemon/config"
)

// Login gives requests the token of a login. Its errors are a [*fault.Record], or ctx's
// cause.
type Login interface {
	// Token returns the token for the next request, or "" for none. renew lets it renew a login
	// that has run out.
	Token(ctx context.Context, renew bool) (config.Secret, error)
	// Refused takes note of an answer 401 or 403 to a request with that token, and returns
	// another one with which to send the request again. again means that this was done
	// already. It returns "" and nil if the server asks for no login that is known here.
	Refused(
		ctx context.Context, token config.Secret, status int, header http.Header, again bool,
	) (config.Secret, error)
}

// do makes a request, with the token of the login if there is one. A message that the server
// refuses for its token was not handled: it is sent once more with another token. sent tells
// whether the server may have got the last one.
func (c *Client) do(req *http.Request) (resp *http.Response, sent bool, err error) {
	var token config.Secret
	if c.o.Login != nil {
		if token, err = c.o.Login.Token(req.Context(), req.Method != http.MethodDelete); err != nil {
			return nil, false, err
		}
	}
	for again := false; ; again = true {
		resp, sent, err = c.attempt(req, token)
		if err != nil || c.o.Login == nil || !c.refusedFor(req, resp.StatusCode, again) {
			return resp, sent, err
		}
		other, err := c.o.Login.Refused(req.Context(), token, resp.StatusCode, resp.Header, again)
		if err == nil && other == "" {
			return resp, sent, nil
		}
		_ = resp.Body.Close()
		if err != nil {
			return nil, false, err
		}
		token = other
	}
}

// attempt makes the request once.
func (c *Client) attempt(req *http.Request, token config.Secret) (*http.Response, bool, error) {
	var sent atomic.Bool // from then on the server may have it, whatever comes back
	req = req.Clone(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) },
	}))
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, false, err
		}
		req.Body = body
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	resp, err := c.http.Do(req)
	return resp, sent.Load(), err
}

// refusedFor reports whether the login must hear of an answer. Of requests that carry no
// message it hears little: some servers refuse all of these, and a login must neither be
// renewed each time nor be lost for that.
func (c *Client) refusedFor(req *http.Request, status int, again bool) bool {
	switch {
	case req.Method == http.MethodPost:
		return status == http.StatusUnauthorized || status == http.StatusForbidden
	case req.Method != http.MethodGet || status != http.StatusUnauthorized:
		return false
	case again:
		c.deaf.Store(true)
	}
	return !c.deaf.Load()
}
