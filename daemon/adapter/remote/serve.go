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
	noteTimeout = 10 * time.Second // for what is not answered: the next message waits for it
)

// Why a call of [Serve] ends early.
var (
	errCancelled = errors.New("cancelled by the one who asked")
	errLeft      = errors.New("nobody listens any more")
)

// Serve makes the server of o look like one that reads in and writes out, one
// message a line, until in ends. Then it breaks what is under way, ends the
// session and returns nil, or what was wrong with in or out. When ctx is done
// it closes in, and returns ctx's cause.
//
// A request whose answer cannot be had is answered with the fault as a
// JSON-RPC error. What is not answered is sent in its order, and the next
// message waits for it; requests do not wait for each other.
func Serve(ctx context.Context, in io.ReadCloser, out io.Writer, log *slog.Logger, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = in.Close() })
	defer stop()
	b := &bridge{c: New(o), log: log, out: out, left: cancel, calls: map[string]*call{}}
	err := b.read(ctx, jsonrpc.NewLines(in, nil, b.c.o.MaxMessage))
	if why := context.Cause(ctx); why != nil {
		err = why
	}
	cancel(errLeft)
	b.work.Wait()
	b.c.Close(ctx)
	return err
}

type bridge struct {
	c    *Client
	log  *slog.Logger
	left context.CancelCauseFunc
	work sync.WaitGroup

	writing sync.Mutex
	out     io.Writer // guarded by writing

	mu       sync.Mutex
	calls    map[string]*call // under way, by request id; guarded by mu
	listened int              // the era of the session that is listened to; guarded by mu
	hush     func()           // ends listening to the one before; guarded by mu
}

type call struct {
	modern bool
	end    context.CancelCauseFunc
}

// read takes lines until there are no more; nil is their end.
func (b *bridge) read(ctx context.Context, lines *jsonrpc.Lines) error {
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
		default:
			b.note(ctx, &m)
		}
	}
}

// note sends what is not answered.
func (b *bridge) note(ctx context.Context, m *message) {
	timed, stop := context.WithTimeout(ctx, noteTimeout)
	defer stop()
	if err := b.c.Send(timed, m.line, b.emit); err != nil && ctx.Err() == nil {
		b.log.WarnContext(ctx, "message not delivered", "method", m.Method, "err", err)
	}
	if m.Method == mcp.Initialized {
		b.listen(ctx)
	}
}

// cancel ends a call. A modern server is told by the end of the connection
// alone.
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
	if !c.modern {
		b.note(ctx, m)
	}
	c.end(errCancelled)
}

// request has a request answered.
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
		err := b.c.Send(ctx, m.line, b.emit)
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
		if m.version == "" && m.Method != mcp.Initialize {
			b.listen(all) // the session may be a new one
		}
	})
}

// listen hears what the server says unasked, once for each session.
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
	b.work.Go(func() {
		if err := b.c.Listen(ctx, b.emit); err != nil && ctx.Err() == nil {
			b.log.WarnContext(ctx, "not listening to the server any more", "err", err)
		}
	})
}

// fail answers a request with a fault, and says it aloud: whoever asked may
// show no more than that the server does not work.
func (b *bridge) fail(ctx context.Context, m *message, f *fault.Record) {
	b.log.WarnContext(ctx, "request not answered by the server", "method", m.Method, "code", f.Fault.Code, "err", f)
	_ = b.emit(jsonrpc.AppendError(nil, m.ID, f.JSONRPCCode, f.Error(), f.JSON())) // nobody listens: b.left knows
}

// emit writes one message. It is for any goroutine.
func (b *bridge) emit(line []byte) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	_, err := b.out.Write(append(slices.Clip(line), '\n'))
	if err != nil {
		err = fmt.Errorf("writing messages: %w", err)
		b.left(err)
	}
	return err
}

// Target is what a process needs to know of a server that it is to [Serve]: a
// secret, which it is told by an environment variable.
type Target struct {
	Name    string            `json:"name"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
}

// EnvTarget is that variable.
const EnvTarget = "HOLDLINE_REMOTE"

// Encode is the variable's value.
func (t Target) Encode() string {
	b, err := json.Marshal(t)
	if err != nil { // strings always encode
		return ""
	}
	return string(b)
}

// ParseTarget reads the variable's value.
func ParseTarget(s string) (Target, error) {
	var t Target
	if err := json.Unmarshal([]byte(s), &t); err != nil || t.URL == "" {
		return Target{}, fmt.Errorf("%s names no server", EnvTarget) // its text may be a secret
	}
	return t, nil
}
