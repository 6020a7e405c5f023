package remote

import (
	"bytes"
	"context"
	"net/http"
	"net/url"

	"holdline/daemon/redact"
	"holdline/daemon/sendonce"
)

// carry posts a message, and again where the server says that it is now, within its origin (see [sendonce.Moved]). Many
// say that for an address without its last /. The rest of the session goes to the new path at once. From http it
// goes on to https of the same host, if nothing in the request is a secret: with one, each new process would show that
// to the net before it learns of https, so a person has to correct the address.
func (c *Client) carry(ctx context.Context, m *message, s session) (resp *http.Response, isSent bool, err error) {
	// Without space behind it a message makes no sense to a server that lacks its last byte.
	text := bytes.TrimSpace(m.line)
	for moves := 0; ; moves++ {
		req, err := c.request(ctx, http.MethodPost, m, s)
		if err != nil {
			return nil, false, c.strange(m, "the address or a header makes no sense")
		}
		resp, isSent, err := c.do(req, text, 0)
		if err != nil {
			return nil, isSent, c.broken(ctx, m, isSent, err)
		}
		to := sendonce.Moved(resp)
		if to == nil && c.sendsNoSecret() {
			to = sendonce.Secured(resp)
		}
		if to == nil {
			return resp, isSent, nil
		}
		if moves == sendonce.MaxMoves { // it leads nowhere, which the next message need not repeat
			c.move(nil)
			return resp, isSent, nil
		}
		_ = resp.Body.Close()
		c.move(to)
		c.o.Log.InfoContext(ctx, "the server has moved to another path",
			"from", redact.URL(req.URL.Path), "to", redact.URL(to.Scheme+"://"+to.Host+to.Path))
	}
}

// sendsNoSecret reports whether neither the address nor a header of the configuration can have a secret. A login sends
// none by http.
func (c *Client) sendsNoSecret() bool {
	u, err := url.Parse(c.o.URL)
	return err == nil && len(c.o.Headers) == 0 && len(c.o.Secrets) == 0 && u.User == nil && u.RawQuery == ""
}

// address returns where the messages of the session go: o.URL, or where the server has moved since it began.
func (c *Client) address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moved != nil {
		return c.moved.String()
	}
	return c.o.URL
}

// move makes the next messages go to an address; nil stands for o.URL, for the beginning of a session.
func (c *Client) move(to *url.URL) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = to
}
