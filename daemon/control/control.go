// Package control answers the command line, from sources that package daemon
// gives it.
//
// [Server.ServeConn] is the handler of role "control". It owns a goroutine
// for each request, which ends with the connection: a command that is
// interrupted ends what it waited for.
package control

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

// Handler answers one request. Progress never blocks for long and may be
// called until the handler returns. The cause of the end of ctx is
// [tool.ErrStopping] if the daemon stops, else the client has left.
type Handler func(ctx context.Context, params json.RawMessage, progress func(control.Progress)) (any, error)

// maxRequests is how many requests of one connection may be in flight.
const maxRequests = 16

// writeTimeout bounds one line to a command line that does not read.
const writeTimeout = 10 * time.Second

// Options are a server's settings.
type Options struct {
	Log     *slog.Logger
	Welcome func() protocol.Welcome
	// Handlers by method.
	Handlers map[string]Handler
}

// Server serves command lines.
type Server struct{ o Options }

// New makes a server.
func New(o Options) *Server { return &Server{o: o} }

// conn is one connection; its writes are whole lines.
type conn struct {
	*listener.Conn
	mu sync.Mutex // held while a line is written
}

// ServeConn serves one command line until it closes the connection.
func (s *Server) ServeConn(ctx context.Context, lc *listener.Conn) {
	outer := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(outer))
	leave := context.AfterFunc(outer, func() { cancel(tool.ErrStopping) }) // and not the client's end
	defer leave()
	c := &conn{Conn: lc}
	stop := context.AfterFunc(ctx, func() { _ = lc.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	w := s.o.Welcome()
	w.Holdline = protocol.Version
	c.write(protocol.Append(nil, w))

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
			c.write(append(jsonrpc.AppendError(nil, msg.ID, f.JSONRPCCode, f.Fault.Detail, f.JSON()), '\n'))
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

func (s *Server) answer(ctx context.Context, c *conn, msg jsonrpc.Message) {
	handler := s.o.Handlers[msg.Method]
	var result any
	var err error
	if handler == nil {
		err = fault.New(fault.UnknownMethod, fault.Protocol, msg.Method,
			"the daemon does not know %q: it is of another version than this command, see holdline doctor", msg.Method)
	} else {
		result, err = handler(ctx, msg.Params, func(p control.Progress) {
			if params, err := json.Marshal(p); err == nil {
				c.write(append(jsonrpc.AppendRequest(nil, nil, control.ProgressNote, params), '\n'))
			}
		})
	}
	var raw json.RawMessage
	if err == nil {
		raw, err = json.Marshal(result)
	}
	if err != nil {
		f := fault.From(err, fault.Host, msg.Method)
		if f.Fault.Code == fault.InternalFailure && ctx.Err() != nil || errors.Is(err, tool.ErrStopping) { // the end of the work, not a fault in it
			f = fault.New(fault.TransportFailure, fault.Host, msg.Method, "the daemon is stopping")
		}
		if !errors.Is(err, context.Canceled) {
			s.o.Log.InfoContext(ctx, "command refused", "method", msg.Method, "code", f.Fault.Code, "err", f.Fault.Detail)
		}
		c.write(append(jsonrpc.AppendError(nil, msg.ID, f.JSONRPCCode, f.Fault.Detail, f.JSON()), '\n'))
		return
	}
	c.write(append(jsonrpc.AppendResult(nil, msg.ID, raw), '\n'))
}

// write sends one line. A command line that does not take it is given up: its
// reads end with the connection.
func (c *conn) write(line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := c.UnixConn.Write(line); err != nil {
		_ = c.Close()
	}
}
