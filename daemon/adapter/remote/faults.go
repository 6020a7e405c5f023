package remote

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/networds"
	"holdline/daemon/redact"
	"holdline/daemon/sendonce"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// broken returns the fault of a message whose connection broke, or the cause of ctx if
// that is done. sent means that the server may have got the message. If it has not, the
// fault is transport_failure and a retry is safe. If it may have, a request ends with
// outcome_unknown.
//
// The message leaves the URL out: its text may contain a secret.
func (c *Client) broken(ctx context.Context, m *message, sent bool, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if f, ok := errors.AsType[*fault.Record](err); ok && !sent { // of the login
		own := *f // others wait for the same token
		own.Operation = m.operation()
		return &own
	}
	// The whole error contains the URL, which may hold a secret.
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if !sent {
		return fault.New(fault.TransportFailure, fault.Server, m.operation(),
			"%s cannot be reached: %s", c.o.Name, networds.Of(err)).WithReason(fault.Unreachable)
	}
	if m.Kind != jsonrpc.Request {
		return fault.New(fault.TransportFailure, fault.Server, m.operation(),
			"the connection to %s broke: %s", c.o.Name, networds.Of(err))
	}
	return fault.New(fault.OutcomeUnknown, fault.Server, m.operation(),
		"the connection to %s broke before its answer (%s). Whether the server did what was asked is not known",
		c.o.Name, networds.Of(err))
}

// strange returns the fault of an answer that makes no sense.
func (c *Client) strange(m *message, what string) error {
	return fault.New(fault.DownstreamFailure, fault.Server, m.operation(), "server %s: %s", c.o.Name, what).
		WithReason(fault.BadOutput)
}

// senseless returns the fault of an answer of success that makes no sense. It may be the page of a gateway that
// has passed the request on, so of a request that must not be sent twice the outcome is not known.
func (c *Client) senseless(m *message, what string) error {
	if m.Kind != jsonrpc.Request || m.repeats {
		return c.strange(m, what)
	}
	return fault.New(fault.OutcomeUnknown, fault.Server, m.operation(),
		"server %s: %s. Whether it did what was asked is not known", c.o.Name, what).WithReason(fault.BadOutput)
}

// tooLarge returns the fault of a message that is larger than [Options.MaxMessage]. The server has
// carried the request out, and would answer the next one in the same way.
func (c *Client) tooLarge(m *message) error {
	return fault.New(fault.DownstreamFailure, fault.Server, m.operation(),
		"server %s has carried out the request, and its answer has more than %d bytes: ask it for less",
		c.o.Name, c.o.MaxMessage).WithReason(fault.BadOutput)
}

// refusesUnhandled reports whether a status says that the request was not carried out. Of all others this is not
// certain: a server may fail in the middle of its work, and a gateway in front of it says 503 or 408, and sends
// people on to another page with 302 or 303, also after it has passed a request on.
func refusesUnhandled(code int) bool {
	switch code {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden,
		http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusProxyAuthRequired,
		http.StatusGone, http.StatusLengthRequired, http.StatusPreconditionFailed,
		http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusUnsupportedMediaType,
		http.StatusRequestedRangeNotSatisfiable, http.StatusExpectationFailed, http.StatusMisdirectedRequest,
		http.StatusUnprocessableEntity, http.StatusLocked, http.StatusTooEarly, http.StatusUpgradeRequired,
		http.StatusPreconditionRequired, http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusUnavailableForLegalReasons:
		return true
	}
	return false
}

// isGatewayLoss reports whether a status is that of a gateway which has lost the answer: a request that may be
// sent twice is then sent again. 520 to 527 are those of Cloudflare, 598 and 599 those of some proxies.
func isGatewayLoss(code int) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout, 598, 599:
		return true
	}
	return code >= 520 && code <= 527
}

// refused returns the fault of a status that is no success. If the status can follow a request that was carried
// out, and that must not be sent twice, it is outcome_unknown. The texts of 401, 403 and of redirects name the
// configuration key to change.
// Texts quote what the body says.
func (c *Client) refused(m *message, resp *http.Response, body []byte, isSent bool) error {
	name, op, code := c.o.Name, m.operation(), resp.StatusCode
	text := strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
	if said, err := jsonrpc.Parse(body); code >= 400 && (err != nil || isNobodys(said.ID) || sameID(said.ID, m.ID)) {
		text += words(body) // and not what is for another client
	}
	mayHaveRun := m.Kind == jsonrpc.Request && isSent && !refusesUnhandled(code)
	switch {
	case code == http.StatusUnauthorized:
		oauth := ""
		if c.o.Login != nil {
			oauth = ". Or, if it does OAuth: holdline servers login " + name
		}
		return fault.New(fault.Unauthenticated, fault.Server, op,
			"%s needs a login (%s). Put its token into mcpServers.%s.headers, such as \"Authorization\": "+
				"\"Bearer ${TOKEN}\", and TOKEN=... into ~/.config/holdline/env; then: holdline reload%s",
			name, text, name, oauth).WithReason(fault.NotLoggedIn)
	case code == http.StatusForbidden:
		return fault.New(fault.Unauthenticated, fault.Server, op,
			"%s does not allow that with this login (%s). Its token is in mcpServers.%s.headers", name, text, name).
			WithReason(fault.Rejected)
	case code >= 300 && code < 400:
		where := "elsewhere"
		if at, err := resp.Location(); err == nil {
			where = "to " + at.Scheme + "://" + at.Host + redact.URL(at.Path)
		}
		if sendonce.Secured(resp) != nil {
			return fault.New(fault.DownstreamFailure, fault.Server, op,
				"%s wants to be asked by https (%s): by http, its headers and its address can be read on their way. "+
					"It has moved %s; write https in the place of http in mcpServers.%s.url", name, text, where, name).WithReason(fault.Rejected)
		}
		as, unknown := fault.DownstreamFailure, ""
		if mayHaveRun && !m.repeats {
			as, unknown = fault.OutcomeUnknown, ". Whether the server did what was asked is not known"
		}
		return fault.New(as, fault.Server, op,
			"%s has moved %s (%s), where Holdline does not follow. If that address is right, put it "+
				"into mcpServers.%s.url%s", name, where, text, name, unknown).WithReason(fault.Rejected)
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable && (!mayHaveRun || m.repeats):
		f := fault.New(fault.ResourceExhausted, fault.Server, op, "%s takes no more requests for now (%s)", name, text)
		f.RetryAfterMS = retryAfter(resp.Header.Get("Retry-After"))
		if code == http.StatusTooManyRequests {
			return f.WithReason(fault.RateLimited)
		}
		return f.WithReason(fault.Overloaded)
	case mayHaveRun && isGatewayLoss(code):
		return fault.New(fault.OutcomeUnknown, fault.Server, op,
			"the gateway before %s lost its answer (%s). Whether the server did what was asked is not known",
			name, text)
	case mayHaveRun && !m.repeats:
		return fault.New(fault.OutcomeUnknown, fault.Server, op,
			"%s, or a gateway before it, failed after it had the request (%s). Whether the server did what was "+
				"asked is not known", name, text)
	}
	return fault.New(fault.DownstreamFailure, fault.Server, op, "%s answers %s", name, text).
		WithReason(fault.Rejected)
}

// retryAfter returns the milliseconds of a Retry-After header, in seconds or as a date
// (RFC 9110), and nil if s is neither.
func retryAfter(s string) *int64 {
	var wait time.Duration
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		wait = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(s); err == nil {
		wait = max(0, time.Until(at))
	} else {
		return nil
	}
	ms := wait.Milliseconds()
	return &ms
}

// doubtful returns err, an answer of success to m that makes no sense, as a [*doubt] if it may mean that the
// session is lost.
func (c *Client) doubtful(m *message, s session, err error) error {
	if !mayBeLost(m, s) {
		return err
	}
	return &doubt{err: err}
}
