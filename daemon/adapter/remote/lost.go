package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Servers say in many ways that they have lost a session, mostly after a restart: the MCP text
// wants 404, which some answer to everything else, too. Such an answer is a doubt, which a ping in
// the same session resolves: if that is refused as well, a new session begins.

// pingTime is how long a server may take to answer a ping that resolves a doubt.
const pingTime = 10 * time.Second

// doubt is the error of an answer that may mean that the server has lost the session. If the
// session lives, line is the answer, or err the fault.
type doubt struct {
	unhandled bool // the server has certainly not carried the request out
	line      []byte
	err       error
}

// Error returns what the server has answered.
func (d *doubt) Error() string {
	if d.err == nil {
		return "an error of the server"
	}
	return d.err.Error()
}

// give returns what the caller of [Client.Send] gets if the session lives.
func (d *doubt) give(emit Emit) error {
	if d.line != nil {
		return emit(d.line)
	}
	return d.err
}

// mayBeLost reports whether an answer to m in session s that is no success may mean that the
// session is lost. A message of a session that has only just begun gets no better answer in
// another one.
func mayBeLost(m *message, s session) bool {
	return s.id != "" && !s.fresh && m.version == "" && m.Kind == jsonrpc.Request && m.Method != mcp.Initialize &&
		m.Method != mcp.Ping
}

// doubts reports whether a status may mean that the session is lost, and whether the request was
// refused unhandled then. text is the body. A 403 is mostly about what the login allows, and a 429 about
// how often the server is asked.
func doubts(code int, text []byte) (may, unhandled bool) {
	switch code {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusConflict:
		return true, true
	case http.StatusForbidden:
		return bytes.Contains(bytes.ToLower(text), []byte("session")), false
	case http.StatusTooManyRequests:
		return false, false
	}
	return code > http.StatusBadRequest, false
}

// speaksOfSession reports whether a line is an error for m whose text is about sessions.
func speaksOfSession(m *message, line []byte) bool {
	if !bytes.Contains(line, []byte(`"error"`)) {
		return false
	}
	answer, err := jsonrpc.Parse(line)
	if err != nil || answer.Error == nil || answer.ID == nil || !sameID(answer.ID, m.ID) {
		return false
	}
	text := strings.ToLower(string(answer.Error))
	return strings.Contains(text, "session") || strings.Contains(text, "not initialized")
}

// postOnce posts a message in session s. It returns a [*doubt] instead of the server's answer or
// fault if that may mean that the session is lost.
func (c *Client) postOnce(ctx context.Context, m *message, s session, emit Emit) error {
	if !mayBeLost(m, s) {
		return c.post(ctx, m, s, emit)
	}
	var stale []byte
	err := c.post(ctx, m, s, func(line []byte) error {
		if !c.answers400.Load() && speaksOfSession(m, line) {
			stale = bytes.Clone(line)
			return nil
		}
		return emit(line)
	})
	if err == nil && stale != nil {
		return &doubt{line: stale}
	}
	return err
}

// resolve finds out whether the server has lost session s. If not, it passes on the answer that
// raised the doubt. If so, it begins a new session, and posts the message again if that cannot
// make it run twice.
func (c *Client) resolve(ctx context.Context, m *message, s session, d *doubt, emit Emit) error {
	if !c.isLost(ctx, s) {
		return d.give(emit)
	}
	if err := c.renew(ctx, s); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return d.give(emit) // it begins no other session: its answer says more
	}
	if !d.unhandled && !m.repeats {
		return fault.New(fault.OutcomeUnknown, fault.Server, m.operation(),
			"%s has lost the session, and a new one was begun. Whether it did what was asked is not known", c.o.Name)
	}
	s = c.session()
	s.fresh = true
	return c.kept(m, c.post(ctx, m, s, emit))
}

// isLost reports whether the server refuses a ping in session s. It returns false if it cannot be
// reached, or takes no requests for now.
func (c *Client) isLost(ctx context.Context, s session) bool {
	if c.session().era != s.era {
		return true // another call has found that out
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pingTime, errors.New("the ping was not answered"))
	defer cancel()
	m, err := parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"holdline-ping-%d","method":%q}`, s.era, mcp.Ping))
	if err != nil {
		return false
	}
	lives := false
	err = c.post(ctx, &m, s, func(line []byte) error {
		answer, err := jsonrpc.Parse(line)
		const noMethod = "-32601" // the session lives all the same
		lives = lives || err == nil && answer.Kind == jsonrpc.Response &&
			(answer.Result != nil || string(jsonrpc.Field(answer.Error, "code")) == noMethod)
		return nil
	})
	f, isFault := errors.AsType[*fault.Record](err)
	switch {
	case ctx.Err() != nil, lives:
		return false
	case err == nil, errors.Is(err, errGone):
		return true
	case !isFault:
		return false
	}
	return f.Reason() != fault.RateLimited && f.Reason() != fault.Unreachable
}
