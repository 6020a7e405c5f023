package remote

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"

	"holdline/daemon/redact"
)

// maxMoves bounds how often one message is sent on to another path.
const maxMoves = 3

// carry posts a message, and again where the server says that it is now (301, 307, 308): a server that answers so
// has done nothing with it. Many do that for an address without its last /. It follows within the origin alone: the
// message and its headers are for nobody else. The rest of the session goes to the new path at once.
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
		to := movedTo(req.URL, resp)
		if to == nil || moves == maxMoves {
			if to != nil { // it leads nowhere, which the next message need not repeat
				c.back()
			}
			return resp, isSent, nil
		}
		_ = resp.Body.Close()
		c.mu.Lock()
		c.moved = to
		c.mu.Unlock()
		c.o.Log.InfoContext(ctx, "the server has moved to another path",
			"from", redact.URL(req.URL.Path), "to", redact.URL(to.Path))
	}
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

// back makes the next message go to o.URL again: a new session begins.
func (c *Client) back() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = nil
}

// movedTo returns where a server that was asked at an address wants to have the message, or nil if that is no
// place to which it may go.
func movedTo(from *url.URL, resp *http.Response) *url.URL {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil
	}
	to, err := resp.Location()
	if err != nil || to.User != nil || origin(to) != origin(from) || to.RequestURI() == from.RequestURI() {
		return nil
	}
	to.User, to.Fragment, to.RawFragment = from.User, "", "" // a user and a password in the address belong to the origin
	return to
}

// origin returns scheme, host and port of an address, without the port of the scheme.
func origin(u *url.URL) string {
	own := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
	return u.Scheme + "://" + strings.TrimSuffix(strings.ToLower(u.Host), own)
}
