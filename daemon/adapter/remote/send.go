package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"holdline/daemon/waiting"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Limits of what the client reads besides messages, and of its resumes.
const (
	maxErrorBody = 64 << 10         // bytes
	errorTime    = 5 * time.Second  // for the body of an error status
	maxResumes   = 5                // of a stream that has brought nonsense, in a row, without progress
	maxRetry     = 30 * time.Second // that a server can ask for before a resume
	minRetry     = 100 * time.Millisecond
	firstRetry   = 500 * time.Millisecond
	steadyStream = 10 * time.Second // a stream that was open for so long did not fail: it was closed
)

// errGone reports a session that the server does not know any more.
var errGone = errors.New("the session is gone")

// Send posts one message, a request, a notification or a response, and passes what the
// server sends for it to emit. For a request the last of these is its answer. If the
// server has forgotten the session, Send begins a new one first.
//
// Send blocks until the answer has come. The error is ctx's cause, emit's own, or a
// [*fault.Record]:
//
//   - transport_failure: the message was not sent, or it was sent twice and may be;
//   - outcome_unknown: it was sent, must not be sent twice, and the answer is lost;
//   - unauthenticated: the server wants other credentials;
//   - resource_exhausted: the server refuses it for now;
//   - downstream_failure: the server refuses it, or the answer to a request that may be sent twice makes no sense.
//
// Where the status or the body may come from a gateway that has passed the request on, the fault is
// outcome_unknown, too, unless the body is the server's own answer.
//
// Many servers close a kept connection at the moment at which a request is written to it. No
// client can tell whether they have read it.
func (c *Client) Send(ctx context.Context, line []byte, emit Emit) error {
	m, err := parse(line)
	if err != nil {
		return fault.New(fault.InvalidRequest, fault.Protocol, "", "%v", err)
	}
	return c.send(ctx, &m, emit)
}

// send is [Client.Send] for a message that is parsed already.
func (c *Client) send(ctx context.Context, m *message, emit Emit) error {
	err := c.sendOnce(ctx, m, emit)
	if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.OutcomeUnknown || !m.repeats {
		return err
	}
	// A gateway that dies breaks all its connections at once, and those that were kept may look good for
	// a moment. The second attempt must not be lost to one of them.
	c.http.CloseIdleConnections()
	err = c.sendOnce(ctx, m, emit)
	if f, ok := errors.AsType[*fault.Record](err); ok && f.Fault.Code == fault.OutcomeUnknown {
		f = fault.New(fault.TransportFailure, fault.Server, m.operation(),
			"%s was asked twice, and both answers were lost: %s", c.o.Name, f.Fault.Detail)
		f.Retried = true
		return f
	}
	return err
}

// sendOnce sends a message. If the server has forgotten the session it begins a new one, and
// sends the message again: it was refused.
func (c *Client) sendOnce(ctx context.Context, m *message, emit Emit) error {
	if m.Method == mcp.Initialize {
		s := c.begin(bytes.Clone(m.line))
		return c.initialize(ctx, m, s, emit, c.establish)
	}
	if m.version != "" {
		return c.sendModern(ctx, m, emit)
	}
	if m.Method == mcp.Initialized {
		c.setReady(bytes.Clone(m.line))
	}
	s := c.session()
	emit = c.noting(m, emit)
	err := c.postOnce(ctx, m, s, emit)
	if refusal, ok := errors.AsType[*versionError](err); ok {
		if err := c.renewIn(ctx, s, refusal); err != nil || m.Method == mcp.Initialized { // the new session has that
			return err
		}
		s = c.session()
		err = c.postOnce(ctx, m, s, emit)
	}
	if d, ok := errors.AsType[*doubt](err); ok {
		return c.resolve(ctx, m, s, d, emit)
	}
	if !errors.Is(err, errGone) {
		return err
	}
	if err := c.renew(ctx, s); err != nil {
		// What is not known is the outcome of the handshake: the message itself was refused.
		if f, ok := errors.AsType[*fault.Record](err); ok && f.Fault.Code == fault.OutcomeUnknown && !m.repeats {
			return fault.New(fault.TransportFailure, fault.Server, m.operation(),
				"%s has forgotten the session, and the handshake of a new one was lost: %s", c.o.Name, f.Fault.Detail)
		}
		return err
	}
	s = c.session()
	s.fresh = true
	return c.kept(m, c.post(ctx, m, s, emit))
}

// kept returns err for a message of a session that has just begun. If the server has
// forgotten that one, too, a third attempt would not help, and kept returns a fault.
func (c *Client) kept(m *message, err error) error {
	if errors.Is(err, errGone) {
		return c.strange(m, "it forgets each session at once (404)")
	}
	return err
}

// initialize posts the handshake of session s. It calls set with the session as far as
// it is known: with the id before any part of the answer is emitted, and with the
// version before the answer is. The caller of Send may send its next message as soon as
// it has the answer, and that must belong to the session.
func (c *Client) initialize(ctx context.Context, m *message, s session, emit Emit, set func(session)) error {
	return c.exchange(ctx, m, s, func(line []byte) error {
		if answer, err := jsonrpc.Parse(line); err == nil && answer.Kind == jsonrpc.Response && answer.Result != nil {
			s.version, _ = mcp.String(jsonrpc.Field(answer.Result, "protocolVersion"))
			set(s) // before the answer is out: what is sent next belongs to the session
		}
		return emit(line)
	}, func(id string) {
		s.id = id
		set(s)
	})
}

// renew begins a new session in the place of old. If another caller has done so
// already, it returns nil at once. Other callers see the new session only after its
// handshake, since the server would refuse their messages before.
func (c *Client) renew(ctx context.Context, old session) error { return c.renewIn(ctx, old, nil) }

// renewIn is [Client.renew] in another version of MCP, unless refusal is nil.
func (c *Client) renewIn(ctx context.Context, old session, refusal *versionError) error {
	select {
	case c.renewing <- struct{}{}:
		defer func() { <-c.renewing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.session().era != old.era {
		return nil
	}
	for {
		if refusal != nil {
			c.speak(refusal)
		}
		c.move(nil)
		fresh, ready, err := c.greet(ctx, session{era: old.era + 1, renewed: true})
		var again bool
		if refusal, again = errors.AsType[*versionError](err); again {
			continue
		}
		if err != nil {
			return err
		}
		c.establish(fresh)
		if c.onRenewed != nil && ready != nil {
			c.onRenewed()
		}
		return nil
	}
}

// greet makes the handshake of a new session. It returns the session and the notification with which the handshake
// has ended, nil if there was none.
func (c *Client) greet(ctx context.Context, fresh session) (session, []byte, error) {
	hello, ready := c.handshake()
	m, err := parse(hello)
	if err != nil { // the client has never sent an initialize
		return fresh, nil, fault.New(fault.DownstreamFailure, fault.Server, "",
			"server %s knows of no session (404), and none was begun", c.o.Name)
	}
	refused := false
	err = c.initialize(ctx, &m, fresh, func(line []byte) error {
		answer, err := jsonrpc.Parse(line)
		refused = refused || err == nil && answer.Error != nil
		return nil
	}, func(s session) { fresh = s })
	switch {
	case err != nil:
		return fresh, nil, fmt.Errorf("beginning a new session: %w", err)
	case refused:
		return fresh, nil, fault.New(fault.DownstreamFailure, fault.Server, mcp.Initialize,
			"server %s has forgotten the session and begins no new one", c.o.Name)
	}
	if c.isRefused(fresh.version) { // it names that again, whatever it is asked
		fresh.version = askedVersion(hello)
	}
	if ready == nil {
		return fresh, nil, nil
	}
	if m, err = parse(ready); err == nil {
		err = c.kept(&m, c.post(ctx, &m, fresh, nil))
	}
	if err != nil {
		return fresh, ready, fmt.Errorf("beginning a new session: %w", err)
	}
	return fresh, ready, nil
}

// post is [Client.exchange] in a session that exists already.
func (c *Client) post(ctx context.Context, m *message, s session, emit Emit) error {
	return c.exchange(ctx, m, s, emit, func(string) {})
}

// exchange posts one message and reads the answer. It calls greeted with the session's
// id, or "", before it emits any part of the answer. It returns errGone if the server
// does not know session s.
func (c *Client) exchange(ctx context.Context, m *message, s session, emit Emit, greeted func(id string)) error {
	resp, isSent, err := c.carry(ctx, m, s)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch err := c.status(m, s, resp, isSent, emit); {
	case errors.Is(err, errTold):
		return nil
	case err != nil:
		return err
	}
	id := resp.Header.Get(headerSession)
	greeted(id)
	if m.Method == mcp.Initialize {
		s.id = id // a resume of the answer belongs to the new session
	}
	if m.Kind != jsonrpc.Request {
		return nil
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch form, isDeclared, err := formOf(kind, resp); {
	case form == asOneText:
		text, err := c.body(ctx, m, resp)
		if err != nil {
			return err
		}
		if isDeclared {
			return c.oneText(m, s, text, emit)
		}
		var lines [][]byte // only the answer among them shows that these are messages
		err = c.oneText(m, s, text, func(line []byte) error {
			lines = append(lines, bytes.Clone(line))
			return nil
		})
		if _, isSenseless := errors.AsType[*fault.Record](err); isSenseless {
			break
		}
		if err != nil {
			return err
		}
		for _, line := range lines {
			if err := emit(line); err != nil {
				return err
			}
		}
		return nil
	case form == asStream:
		return c.stream(ctx, m, s, resp.Body, emit)
	case err != nil:
		return c.broken(ctx, m, true, err)
	}
	return c.senseless(m, fmt.Sprintf("its answer is neither JSON nor an event stream (status %d, type %.40q)",
		resp.StatusCode, kind))
}

// errTold reports that the body of an error status was the answer, and that it has been
// emitted.
var errTold = errors.New("answered")

// status returns nil if the response's body holds the answer. Otherwise it returns
// errGone, errTold, a [*doubt], a [*versionError], or a fault.
//
// A 400 that looks like a lost session (see [isSessionRefusal]) is believed until a message
// gets it in a session that has only just begun: then it is what this server answers to bad
// requests, and is passed on from then on.
//
// A 404 means a lost session. If its body has the id of the request, it may be what the request itself came to, such
// as a file that is missing: then it is a doubt.
func (c *Client) status(m *message, s session, resp *http.Response, isSent bool, emit Emit) error {
	code := resp.StatusCode
	if code >= 200 && code < 300 {
		c.taken(m, s)
		return nil
	}
	text := ownAnswer(m, resp, errorText(resp))
	var line []byte
	isOwn := false
	if speaks(code) && m.Kind == jsonrpc.Request {
		line, isOwn = c.errorBody(m, code, text)
	}
	isMissing := code == http.StatusNotFound && s.id != "" && m.version == ""
	if isMissing && !isOwn {
		return errGone
	}
	if next := c.otherVersion(m, s, code, text, isOwn); next != "" {
		return &versionError{s.version, next, c.refused(m, resp, text, isSent)}
	}
	if code == http.StatusBadRequest && s.id != "" && m.version == "" && isSessionRefusal(text) &&
		!c.answers400.Load() {
		if !s.fresh {
			return errGone
		}
		c.answers400.Store(true)
	}
	may, unhandled := doubts(code, text)
	unhandled = unhandled || isMissing && speaksOfSession(m, line)
	if may && (!isOwn || isMissing) && mayBeLost(m, s) && (code != http.StatusBadRequest || !c.answers400.Load()) {
		return &doubt{unhandled, line, c.refused(m, resp, text, isSent)}
	}
	if line != nil {
		if err := emit(line); err != nil {
			return err
		}
		return errTold
	}
	return c.refused(m, resp, text, isSent)
}

// errorText reads the body of an error status. It returns nil if that is too long, or takes too long: the status
// says enough.
func errorText(resp *http.Response) []byte {
	if body, ok := resp.Body.(*endingBody); ok {
		defer time.AfterFunc(errorTime, func() { body.cancel(errNoHead) }).Stop()
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil || len(text) == maxErrorBody {
		return nil
	}
	return bytes.TrimPrefix(text, bom)
}

// ownAnswer returns the answer to m that is in the body of an error status as an event of a stream, or in an array. If
// there is none, it returns the body.
func ownAnswer(m *message, resp *http.Response, body []byte) []byte {
	found := body
	look := func(text []byte) error {
		answer, err := jsonrpc.Parse(text)
		if err == nil && answer.Kind == jsonrpc.Response && answer.ID != nil && sameID(answer.ID, m.ID) {
			found = bytes.Clone(text)
			return errTold
		}
		return nil
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch text := bytes.TrimSpace(body); {
	case m.Kind != jsonrpc.Request:
	case kind == "text/event-stream":
		_, _ = newEvents(bytes.NewReader(body), maxErrorBody).readEvents(look)
	case len(text) > 0 && text[0] == '[' && json.Valid(text):
		_ = jsonrpc.Elements(text, look)
	}
	return found
}

// speaks reports whether the body of an error status may hold the server's own answer. For the
// codes of logins and limits the status itself says what is wrong.
func speaks(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false
	}
	return code >= 400
}

// errorBody returns the JSON-RPC answer in the body of an error status, or nil if there is none. isOwn says
// that it has the id of the request. Servers leave the id out of an error if they refused the
// request before they had read it; then it gets the request's own. Where the status can follow a
// request that was carried out, only the id shows that the server itself answers, and not a
// gateway that lost its answer.
func (c *Client) errorBody(m *message, code int, text []byte) (line []byte, isOwn bool) {
	answer, err := jsonrpc.Parse(text)
	isOwn = err == nil && answer.Kind == jsonrpc.Response && answer.ID != nil && sameID(answer.ID, m.ID)
	isEarly := err == nil && isNobodys(answer.ID) && answer.Error != nil && !isGatewayLoss(code) &&
		code != http.StatusServiceUnavailable && (refusesUnhandled(code) || m.repeats)
	switch {
	case isOwn && answer.Error == nil:
		line, err = oneLine(text)
	case isOwn || isEarly:
		var failure []byte
		if failure, err = oneLine(answer.Error); err == nil {
			line = jsonrpc.AppendFailure(nil, m.ID, failure)
		}
	}
	if err != nil { // the status says enough
		return nil, false
	}
	return line, isOwn
}

// isNobodys reports whether an answer with this id is to no request, but to whatever the server could not read: the
// Python SDK calls it so.
func isNobodys(id jsonrpc.ID) bool {
	return id == nil || string(id) == `"server-error"` || string(id) == `""`
}

// body reads an answer that is one JSON text. If the connection breaks behind the whole of it, nothing is lost.
func (c *Client) body(ctx context.Context, m *message, resp *http.Response) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.o.MaxMessage)+1))
	if len(text) > c.o.MaxMessage {
		return nil, c.tooLarge(m)
	}
	text = bytes.TrimPrefix(text, bom)
	if (err != nil || endsWithConnection(resp)) && !json.Valid(text) {
		return nil, c.broken(ctx, m, true, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return text, nil
}

// oneText passes on a JSON text: the answer to m, or an array that contains it. A fault means that it makes no sense.
func (c *Client) oneText(m *message, s session, text []byte, emit Emit) error {
	answered, err := c.deliver(m, text, emit)
	if bad, ok := errors.AsType[badMessageError](err); ok {
		return c.doubtful(m, s, c.senseless(m, string(bad)))
	}
	if err != nil || answered {
		return err
	}
	what := "its answer is to something else"
	if said, err := jsonrpc.Parse(text); err == nil && said.Error != nil && isNobodys(said.ID) {
		what = "it answers with an error that names no request"
	}
	return c.doubtful(m, s, c.senseless(m, what+words(text)))
}

// endsWithConnection reports whether nothing but the end of the connection says where the body ends. Then an
// answer that was cut off looks like one that came to its end.
func endsWithConnection(resp *http.Response) bool {
	return resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && !resp.Uncompressed
}

// sameID reports whether an answer with id a is to a request with id b. Some servers keep ids as strings,
// or as floating-point numbers, and answer "7" or 7.0 to request 7; nothing else that this client asks
// can be meant.
func sameID(a, b jsonrpc.ID) bool {
	x, y := a.Key()[1:], b.Key()[1:] // without the mark of the type
	if x == y {
		return true
	}
	f, err := strconv.ParseFloat(x, 64)
	g, other := strconv.ParseFloat(y, 64)
	return err == nil && other == nil && f == g && f < 1<<53
}

// badMessageError is the error of a text that is no message. It says what the server did.
type badMessageError string

// Error returns what the server did.
func (b badMessageError) Error() string { return string(b) }

// skip counts an event that is no message. It logs the first one, the second, the fourth and
// so on: a server may send many.
func (c *Client) skip(ctx context.Context, why error) {
	if n := c.skipped.Add(1); n&(n-1) == 0 {
		c.o.Log.WarnContext(ctx, "event of the server skipped", "skipped", n, "err", why)
	}
}

// deliver emits a JSON text, which is one message or an array of them. It reports
// whether the answer to m was among them; m may be nil. A text that is no message is a
// [badMessageError].
func (c *Client) deliver(m *message, text []byte, emit Emit) (answered bool, err error) {
	line, err := oneLine(text)
	if err != nil {
		return false, badMessageError("it sent what is no JSON" + words(text))
	}
	if line[0] == '[' { // batches were part of 2025-03-26
		err := jsonrpc.Elements(line, func(value []byte) error {
			if len(value) == 0 || value[0] == '[' {
				return badMessageError("it sent an array in an array")
			}
			is, err := c.deliver(m, value, emit)
			answered = answered || is
			return err
		})
		return answered, err
	}
	answer, err := jsonrpc.Parse(line)
	if err != nil {
		return false, badMessageError("it sent what is no JSON-RPC message" + words(text))
	}
	answered = m != nil && answer.Kind == jsonrpc.Response && answer.ID != nil && sameID(answer.ID, m.ID)
	return answered, emit(line)
}

// isAnswer reports whether a text, which may be cut off, is the whole answer to m.
func (c *Client) isAnswer(m *message, text []byte) bool {
	line, err := oneLine(text)
	if err != nil || len(line) == 0 {
		return false
	}
	answer, err := jsonrpc.Parse(line)
	return err == nil && answer.Kind == jsonrpc.Response && answer.ID != nil && sameID(answer.ID, m.ID)
}

// stream reads events until the answer to m has come. If the stream ends before, it resumes
// the stream, for as long as ctx lives: a server, or a gateway in front of it, may be away for
// a while. The pauses grow while there is no progress: a message, another event id, or a stream
// that was open for a while. After such a stream it resumes at once, since many load balancers
// close each connection after some time.
//
// It cannot resume without an event id, nor for a modern message, nor if the server refuses that
// for good. Then the answer is lost, and the fault is outcome_unknown. An event that is no message
// is skipped; if no answer comes besides, it counts as the answer, which makes no sense then.
func (c *Client) stream(ctx context.Context, m *message, s session, body io.ReadCloser, emit Emit) error {
	e := newEvents(body, c.o.MaxMessage)
	var bad badMessageError
	for resumes := 0; ; resumes++ {
		answered, before, opened := false, e.last, time.Now()
		n, err := e.readEvents(func(text []byte) error {
			is, err := c.deliver(m, text, emit)
			answered = answered || is
			if errors.As(err, &bad) {
				c.skip(ctx, err)
				err = nil
			}
			if err == nil && is {
				return errTold
			}
			return err
		})
		_ = body.Close()
		if errors.Is(err, errCut) && c.isAnswer(m, e.rest) { // servers forget the empty line behind it
			answered, err = c.deliver(m, e.rest, emit)
			if err == nil {
				err = errTold
			}
		}
		switch {
		case answered && errors.Is(err, errTold):
			return nil
		case errors.Is(err, jsonrpc.ErrTooLong):
			return c.tooLarge(m)
		case err != nil && !errors.Is(err, errCut):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		isSteady := time.Since(opened) >= steadyStream
		if n > 0 || e.last != before || isSteady {
			resumes = 0
		}
		if bad != "" && (e.last == "" || m.version != "" || resumes == maxResumes) {
			return c.doubtful(m, s, c.senseless(m, string(bad)))
		}
		if e.last == "" || m.version != "" {
			return c.broken(ctx, m, true, io.ErrUnexpectedEOF)
		}
		if body, err = c.reopen(ctx, s, e, &resumes, isSteady); err != nil {
			return c.broken(ctx, m, true, err)
		}
		e.from(body)
	}
}

// reopen opens the stream that follows the last event of e. If that fails in a way that may pass, it tries again
// until ctx is done, after pauses that grow with the number of tries. The first try is made at once if now is true.
func (c *Client) reopen(
	ctx context.Context, s session, e *events, tries *int, now bool,
) (body io.ReadCloser, err error) {
	for asked := time.Duration(0); ; *tries++ {
		if !now {
			if err := waiting.Pause(ctx, max(e.retry(*tries), asked)); err != nil {
				return nil, err
			}
		}
		if body, err = c.resume(ctx, s, e.last, resumeTimeout); err == nil || ctx.Err() != nil || !mayPass(err) {
			return body, err
		}
		now, asked = false, pauseAsked(err)
	}
}

// resume opens the stream that follows event last, or the server's general stream if
// last is "". The caller must close it. Its head has to come within headTime, if that is not 0.
// A status other than 200 is a [*statusError].
func (c *Client) resume(ctx context.Context, s session, last string, headTime time.Duration) (io.ReadCloser, error) {
	req, err := c.request(ctx, http.MethodGet, nil, s)
	if err != nil {
		return nil, err
	}
	if last != "" {
		req.Header.Set(headerLastSeen, last)
	}
	resp, _, err := c.do(req, nil, headTime)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && kind == "text/event-stream" {
		return resp.Body, nil
	}
	_ = resp.Body.Close()
	refused := &statusError{code: resp.StatusCode}
	if ms := retryAfter(resp.Header.Get("Retry-After")); ms != nil {
		refused.after = min(time.Duration(*ms)*time.Millisecond, maxRetry)
	}
	return nil, refused
}

// statusError is the error of a stream that the server has not opened.
type statusError struct {
	code  int
	after time.Duration // that the server asks to wait, at most [maxRetry]
}

// Error returns the status for people.
func (e *statusError) Error() string {
	return fmt.Sprintf("status %d %s", e.code, http.StatusText(e.code))
}

// mayPass reports whether a stream that could not be opened may open later. A status of 409 may: some servers
// have not yet noticed that the connection of the stream before has ended. A login that is lost does not come
// back by itself.
func mayPass(err error) bool {
	if refused, ok := errors.AsType[*statusError](err); ok {
		switch refused.code {
		case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
			return true
		case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
			return false
		}
		return refused.code >= 500
	}
	f, ok := errors.AsType[*fault.Record](err)
	return !ok || f.Fault.Code != fault.Unauthenticated
}

// pauseAsked returns the pause that the server asks for with its refusal, or 0.
func pauseAsked(err error) time.Duration {
	if refused, ok := errors.AsType[*statusError](err); ok {
		return refused.after
	}
	return 0
}

// Listen passes on what the server sends unasked. It blocks until ctx is done and
// returns its cause, or until emit fails and returns that error. It returns nil if the
// server offers no such stream, or no longer knows the session. It opens a stream that
// breaks again, after a pause that grows, or at once if it was open for a while. Events that
// are no messages are skipped. It returns errGone if the server no longer knows a session in
// which the stream was open for a while.
func (c *Client) Listen(ctx context.Context, emit Emit) error {
	s := c.session()
	e := newEvents(nil, c.o.MaxMessage)
	heard, wasSteady := false, false
	for failures := 0; ; failures++ {
		opened := time.Now()
		body, err := c.resume(ctx, s, e.last, 0)
		if refused, ok := errors.AsType[*statusError](err); ok && !mayPass(err) &&
			(refused.code != http.StatusUnauthorized || !heard) {
			isGone := refused.code == http.StatusNotFound || refused.code == http.StatusBadRequest
			if isGone && wasSteady && s.id != "" {
				return errGone
			}
			return nil
		}
		if err == nil {
			heard = c.o.Login != nil
			e.from(body)
			n, err := e.readEvents(func(text []byte) error {
				_, err := c.deliver(nil, text, emit)
				if _, bad := errors.AsType[badMessageError](err); bad {
					c.skip(ctx, err)
					return nil
				}
				return err
			})
			_ = body.Close()
			switch {
			case errors.Is(err, jsonrpc.ErrTooLong):
				c.skip(ctx, err)
				e.last = "" // a resume behind it would bring the same event again
			case !errors.Is(err, errCut):
				return err
			}
			if n > 0 {
				failures = 0
			}
			if time.Since(opened) >= steadyStream && ctx.Err() == nil {
				failures, wasSteady = -1, true // the next failure is the first one
				continue
			}
		}
		if err := waiting.Pause(ctx, max(e.retry(failures), pauseAsked(err))); err != nil {
			return err
		}
	}
}
