package remote

import (
	"context"
	"net/http"

	"holdline/daemon/redact"
)

// Login gives requests the token of a login. Its errors are a [*fault.Record], or ctx's
// cause.
type Login interface {
	// Token returns the token for the next request, or "" for none. renew lets it renew a login
	// that has run out.
	Token(ctx context.Context, renew bool) (redact.Secret, error)
	// Refused takes note of an answer 401 or 403 to a request with that token, and returns
	// another one with which to send the request again. again means that this was done
	// already. It returns "" and nil if the server asks for no login that is known here.
	Refused(
		ctx context.Context, token redact.Secret, status int, header http.Header, again bool,
	) (redact.Secret, error)
	// Answered takes note that the server has answered a request without a token.
	Answered(ctx context.Context)
}

// otherToken returns another token with which to send a request again after that answer, or "".
// Of requests that carry no message the login does not hear: some servers refuse all of these, and
// a login must neither be renewed in each process nor be lost for that. Only a token that another
// process has stored meanwhile is tried.
func (c *Client) otherToken(
	req *http.Request, token redact.Secret, resp *http.Response, again bool,
) (other redact.Secret, err error) {
	ctx, refused := req.Context(), resp.StatusCode == http.StatusUnauthorized
	switch {
	case req.Method == http.MethodPost && token == "" && resp.StatusCode < http.StatusMultipleChoices:
		c.o.Login.Answered(ctx)
	case req.Method == http.MethodPost && (refused || resp.StatusCode == http.StatusForbidden):
		return c.o.Login.Refused(ctx, token, resp.StatusCode, resp.Header, again)
	case req.Method == http.MethodGet && refused && !again:
		if other, err = c.o.Login.Token(ctx, false); err == nil && other != token {
			return other, nil
		}
	}
	return "", nil
}
