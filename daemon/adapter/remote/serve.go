package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Limits of [Serve].
const (
	maxCalls    = 1024             // under way at once
	maxNotes    = 1024             // notifications and responses that wait for those before them
	noteTimeout = 10 * time.Second // for a notification or a response: the next one waits for it
)

// Reasons for which a call of [Serve] ends early.
var (
	errCancelled = errors.New("the client cancelled the request")
	errLeft      = errors.New("the client is gone")
)

// Serve makes the server of o look like a process that reads in and writes out, one
// message a line. It blocks until in ends. Then it sends the notifications that wait, for
// at most two seconds, cancels the calls that are under way, ends the session and returns
// nil, or what was wrong with in or out. When ctx is done it closes in, and returns the
// cause of ctx.
//
// If a request gets no answer, Serve answers it with the fault as a JSON-RPC error.
// Notifications and responses are sent in their order. Requests wait neither for each other
// nor for these, but for "initialized", which a server must see before the first request.
func Serve(ctx context.Context, in io.ReadCloser, out io.Writer, log *slog.Logger, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = in.Close() })
	defer stop()
	c := New(o)
	log = c.unsaid.log(log)
	c.o.Log = log
	b := &bridge{
		c: c, log: log, out: out, left: cancel, calls: map[string]*call{}, notes: make(chan note, maxNotes),
	}
	b.c.onRenewed = func() { b.listen(ctx) }
	sent := make(chan struct{})
	b.work.Go(func() {
		defer close(sent)
		for n := range b.notes {
			b.sendNote(ctx, n.m)
			n.then()
		}
	})
	err := b.handleLines(ctx, jsonrpc.NewLines(in, b.c.o.MaxMessage))
	if why := context.Cause(ctx); why != nil {
		err = why
	}
	close(b.notes)
	select {
	case <-sent:
	case <-ctx.Done():
	case <-time.After(byeTimeout):
	}
	cancel(errLeft)
	b.work.Wait()
	b.c.Close(ctx)
	return err
}

// bridge is the state of [Serve].
type bridge struct {
	c    *Client
	log  *slog.Logger
	left context.CancelCauseFunc
	work sync.WaitGroup

	notes chan note // waiting; the reader of the lines alone sends, and closes it

	writing sync.Mutex
	out     io.Writer // guarded by writing

	mu       sync.Mutex
	calls    map[string]*call // under way, by request id; guarded by mu
	listened int              // the era of the session that is listened to; guarded by mu
	hush     func()           // ends listening to the one before; guarded by mu
}

// note is a notification or a response to be sent. then is called afterwards.
type note struct {
	m    *message
	then func()
}

// call is a request that is under way. end cancels it.
type call struct {
	modern bool
	end    context.CancelCauseFunc
}

// handleLines handles the lines until their end, and then returns nil. Lines that are no
// messages are skipped and logged.
func (b *bridge) handleLines(ctx context.Context, lines *jsonrpc.Lines) error {
	for {
		line, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, jsonrpc.ErrTooLong):
			b.log.WarnContext(ctx, "message skipped", "err", err)
			continue
		case err != nil:
			return fmt.Errorf("reading messages: %w", err)
		}
		m, err := parse(bytes.Clone(line)) // a call outlives the next line
		switch {
		case err != nil:
			b.log.WarnContext(ctx, "message skipped", "err", err)
		case m.Kind == jsonrpc.Request:
			b.request(ctx, &m)
		case m.Method == mcp.CancelledNote:
			b.cancel(ctx, &m)
		case m.Method == mcp.Initialized:
			b.sendNote(ctx, &m)
			b.listen(ctx)
		default:
			b.queueNote(ctx, &m, func() {})
		}
	}
}

// sendNote sends a notification or a response, and blocks until the server has it, at most
// [noteTimeout].
func (b *bridge) sendNote(ctx context.Context, m *message) {
	timed, stop := context.WithTimeout(ctx, noteTimeout)
	defer stop()
	if err := b.c.send(timed, m, b.emit); err != nil && ctx.Err() == nil {
		b.log.WarnContext(ctx, "message not delivered", "method", m.Method, "err", err)
	}
}

// queueNote has a notification or a response sent behind those that wait already, and then
// called. It never blocks. If the server takes none for so long that too many wait, it drops m.
func (b *bridge) queueNote(ctx context.Context, m *message, then func()) {
	select {
	case b.notes <- note{m, then}:
	default:
		b.log.WarnContext(ctx, "message dropped: the server takes none", "method", m.Method, "waiting", maxNotes)
		then()
	}
}

// cancel ends a call. An older server gets the client's notification; a modern one sees
// the end of the connection. The call's id is free at once, so that the client may use
// it again.
func (b *bridge) cancel(ctx context.Context, m *message) {
	p, err := mcp.ParseParams(m.Params)
	if err != nil || p.RequestID == nil {
		return
	}
	key := jsonrpc.ID(p.RequestID).Key()
	b.mu.Lock()
	c := b.calls[key]
	delete(b.calls, key) // its id is free from here on
	b.mu.Unlock()
	if c == nil {
		return
	}
	stop := func() { c.end(errCancelled) }
	if c.modern {
		stop()
		return
	}
	b.queueNote(ctx, m, stop)
}

// request starts a call in a goroutine, which answers it. It refuses a second request
// with the id of one that is under way, and one beyond [maxCalls].
func (b *bridge) request(all context.Context, m *message) {
	ctx, end := context.WithCancelCause(all)
	key := m.ID.Key()
	b.mu.Lock()
	full, twice := len(b.calls) >= maxCalls, b.calls[key] != nil
	mine := &call{m.version != "", end}
	if !full && !twice {
		b.calls[key] = mine
	}
	b.mu.Unlock()
	switch {
	case full:
		end(nil)
		b.fail(all, m, fault.New(fault.ResourceExhausted, fault.Host, m.operation(),
			"%d calls to server %s are under way", maxCalls, b.c.o.Name))
		return
	case twice:
		end(nil)
		b.fail(all, m, fault.New(fault.InvalidRequest, fault.Protocol, m.operation(),
			"a request of this id is under way"))
		return
	}
	b.work.Go(func() {
		err := b.c.send(ctx, m, b.emit)
		b.mu.Lock()
		if b.calls[key] == mine {
			delete(b.calls, key)
		}
		b.mu.Unlock()
		over := ctx.Err() != nil
		end(nil)
		if err != nil && !over {
			b.fail(all, m, fault.From(err, fault.Server, m.operation()))
		}
	})
}

// listen starts to listen to what the server sends unasked, once for each session. It
// ends the listening to the session before. A session that took the place of another one is
// asked again for what that had granted.
func (b *bridge) listen(ctx context.Context) {
	s := b.c.session()
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.version == "" || s.era == b.listened || ctx.Err() != nil {
		return
	}
	b.listened = s.era
	if b.hush != nil {
		b.hush()
	}
	ctx, b.hush = context.WithCancel(ctx)
	if s.renewed {
		b.work.Go(func() { _ = b.c.restore(ctx, s, b.emit) }) // if emit fails, it ends the bridge itself
	}
	b.work.Go(func() {
		err := b.c.Listen(ctx, b.emit)
		if errors.Is(err, errGone) {
			err = b.c.renew(ctx, s) // which listens again
		}
		if err != nil && ctx.Err() == nil {
			b.log.WarnContext(ctx, "not listening to the server any more", "err", err)
		}
	})
}

// fail answers a request with a fault, and logs it: clients often show no more than
// that the server does not work.
func (b *bridge) fail(ctx context.Context, m *message, f *fault.Record) {
	b.log.WarnContext(ctx, "request not answered by the server", "method", m.Method, "code", f.Fault.Code, "err", f)
	// If this fails, emit has ended the bridge already.
	_ = b.emit(jsonrpc.AppendError(nil, m.ID, f.JSONRPCCode, f.Error(), f.JSON()))
}

// emit writes one message, without secrets that the server was sent. Any goroutine may call it. If the write fails,
// no message can be written any more, so it ends Serve.
func (b *bridge) emit(line []byte) error {
	line = b.c.unsaid.line(line)
	b.writing.Lock()
	defer b.writing.Unlock()
	_, err := b.out.Write(append(slices.Clip(line), '\n'))
	if err != nil {
		err = fmt.Errorf("writing messages: %w", err)
		b.left(err)
	}
	return err
}

// Target is what a process must know of a server that it is to [Serve]. It may hold
// secrets, so it is passed in an environment variable and not on the command line.
type Target struct {
	Name    string            `json:"name"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Login   *LoginAt          `json:"login,omitempty"`   // nil if requests carry no token of a login
	Secrets []string          `json:"secrets,omitempty"` // among these, that are surely secret
}

// LoginAt says where the login of a server is. None of it is secret.
type LoginAt struct {
	Dir        string   `json:"dir"`                   // of the store
	Target     string   `json:"target"`                // id in it
	KeyCommand []string `json:"key_command,omitempty"` // that prints the key of the store
}

// EnvTarget is the name of that variable.
const EnvTarget = "HOLDLINE_REMOTE"

// Encode returns the variable's value.
func (t Target) Encode() string {
	b, err := json.Marshal(t)
	if err != nil { // strings always encode
		return ""
	}
	return string(b)
}

// ParseTarget reads the variable's value. Its error does not quote the value, which may
// hold secrets.
func ParseTarget(s string) (Target, error) {
	var t Target
	if err := json.Unmarshal([]byte(s), &t); err != nil || t.URL == "" {
		return Target{}, fmt.Errorf("%s names no server", EnvTarget) // its text may be a secret
	}
	return t, nil
}
