package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"holdline/daemon/listener"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// Progress sends the command line a note while a request is being answered. It
// never blocks for long, and must not be called after the answer.
type Progress func(control.Progress)

// Handler answers one request. The result is encoded as JSON. The cause of the end of ctx is
// [tool.ErrStopping] if the daemon stops; else the client has disconnected.
type Handler func(ctx context.Context, params json.RawMessage, progress Progress) (any, error)

// handle returns a handler that decodes its parameters; absent ones are zero.
func handle[P any](answer func(ctx context.Context, p P, progress Progress) (any, error)) Handler {
	return func(ctx context.Context, params json.RawMessage, progress Progress) (any, error) {
		var p P
		if params != nil {
			if err := json.Unmarshal(params, &p); err != nil {
				return nil, fault.New(fault.InvalidInput, fault.Host, "control", "parameters: %v", err)
			}
		}
		return answer(ctx, p, progress)
	}
}

// handleNone returns a handler of a request that has no parameters.
func handleNone(answer func(ctx context.Context) (any, error)) Handler {
	return func(ctx context.Context, _ json.RawMessage, _ Progress) (any, error) { return answer(ctx) }
}

// maxRequests bounds the requests of one connection that are answered at the same time.
const maxRequests = 16

// writeTimeout bounds one line to a command line that does not read.
const writeTimeout = 10 * time.Second

// Server serves command lines. Its fields must not change once it serves.
type Server struct {
	Log      *slog.Logger
	Welcome  func() protocol.Welcome
	Handlers map[string]Handler // by method
}

// conn is one connection. Its writes are whole lines.
type conn struct {
	*listener.Conn
	mu sync.Mutex // held while a line is written
}

// ServeConn serves one command line until it closes the connection, and returns after all
// handlers have returned. Up to [maxRequests] requests are answered at the same time, in
// any order; the next one waits until one of these is answered. A line that is no request
// gets an error, and the connection goes on.
//
// The context of the handlers ends when the connection closes. If the daemon stops, its
// cause is [tool.ErrStopping].
func (s *Server) ServeConn(ctx context.Context, lc *listener.Conn) {
	outer := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(outer))
	// The handlers must see why the daemon stops, and not that the client is gone.
	unhook := context.AfterFunc(outer, func() { cancel(tool.ErrStopping) })
	defer unhook()
	c := &conn{Conn: lc}
	stop := context.AfterFunc(ctx, func() { _ = lc.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	w := s.Welcome()
	w.Holdline = protocol.Version
	c.writeLine(protocol.Append(nil, w))

	var requests sync.WaitGroup
	defer requests.Wait()
	defer cancel(nil) // runs before Wait
	slots := make(chan struct{}, maxRequests)
	for {
		line, err := lc.Lines.Next()
		if err != nil {
			return
		}
		msg, err := jsonrpc.Parse(bytes.Clone(line))
		if err != nil || msg.Kind != jsonrpc.Request {
			f := fault.New(fault.InvalidRequest, fault.Protocol, "control", "not a request of this protocol")
			c.writeLine(append(jsonrpc.AppendError(nil, msg.ID, f.JSONRPCCode, f.Fault.Detail, f.JSON()), '\n'))
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		requests.Go(func() {
			defer func() { <-slots }()
			s.answer(ctx, c, msg)
		})
	}
}

// answer calls the handler of a request and writes its answer. An error that is no fault
// becomes an internal_failure. If the handler was interrupted, since the daemon stops, the
// answer is a transport_failure.
func (s *Server) answer(ctx context.Context, c *conn, msg jsonrpc.Message) {
	handler := s.Handlers[msg.Method]
	var result any
	var err error
	if handler == nil {
		err = fault.New(fault.UnknownMethod, fault.Protocol, msg.Method,
			"the daemon does not know %q: it is of another version than this command, see holdline doctor", msg.Method)
	} else {
		result, err = handler(ctx, msg.Params, func(p control.Progress) {
			if params, err := json.Marshal(p); err == nil {
				c.writeLine(append(jsonrpc.AppendRequest(nil, nil, control.ProgressNote, params), '\n'))
			}
		})
	}
	var raw json.RawMessage
	if err == nil {
		raw, err = json.Marshal(result)
	}
	if err != nil {
		f := fault.From(err, fault.Host, msg.Method)
		if f.Fault.Code == fault.InternalFailure && ctx.Err() != nil || errors.Is(err, tool.ErrStopping) {
			// The handler was interrupted; nothing in it has failed.
			f = fault.New(fault.TransportFailure, fault.Host, msg.Method, "the daemon is stopping")
		}
		if !errors.Is(err, context.Canceled) {
			s.Log.InfoContext(ctx, "command refused", "method", msg.Method, "code", f.Fault.Code, "err", f.Fault.Detail)
		}
		c.writeLine(append(jsonrpc.AppendError(nil, msg.ID, f.JSONRPCCode, f.Fault.Detail, f.JSON()), '\n'))
		return
	}
	c.writeLine(append(jsonrpc.AppendResult(nil, msg.ID, raw), '\n'))
}

// writeLine sends one line. It blocks for at most [writeTimeout]: if the command line does
// not read, writeLine closes the connection, which ends the reads, too.
func (c *conn) writeLine(line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := c.Socket.Write(line); err != nil {
		_ = c.Close()
	}
}
