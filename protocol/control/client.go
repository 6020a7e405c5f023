package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// Client is a connection of the command line to a daemon. It makes one request at a time,
// and is for one goroutine. The caller must close it.
type Client struct {
	// Daemon describes the daemon, as its welcome does.
	Daemon protocol.DaemonInfo

	conn  net.Conn
	lines *jsonrpc.Lines // reads conn
	next  int64          // id of the latest request
}

// RemoteError is the error with which the daemon has answered a request.
type RemoteError struct {
	Message string
	Fault   *fault.Record // nil if it came without one
}

// Error returns the daemon's message.
func (e *RemoteError) Error() string { return e.Message }

// NewClient greets the daemon on conn, which it owns from then on, and waits for
// its welcome for [protocol.GreetingTimeout] at most. A refusal is returned as a
// [*protocol.Refusal]. If ctx is done the error is its cause, so that an interrupt is
// not taken for a daemon that does not answer. version is that of the calling program.
func NewClient(ctx context.Context, conn net.Conn, version string) (*Client, error) {
	return NewClientOf(ctx, conn, version, "")
}

// NewClientOf is [NewClient] for a program whose state directory is state: a daemon that serves
// another one refuses.
func NewClientOf(ctx context.Context, conn net.Conn, version, state string) (*Client, error) {
	c := &Client{conn: conn, lines: jsonrpc.NewLines(conn, jsonrpc.MaxFrame)}
	c.lines.DropTail = true // of a daemon that died while it wrote
	err := c.greet(ctx, version, state)
	if err == nil {
		return c, nil
	}
	conn.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, err
}

// greet sends the greeting and reads the welcome, within [protocol.GreetingTimeout].
func (c *Client) greet(ctx context.Context, version, state string) error {
	if err := c.conn.SetDeadline(time.Now().Add(protocol.GreetingTimeout)); err != nil {
		return err
	}
	stop := c.interruptBy(ctx)
	defer stop()
	greeting := protocol.Greeting{
		Holdline: protocol.Version, Role: protocol.RoleControl, Version: version, State: state,
	}
	_, werr := c.conn.Write(protocol.Append(nil, greeting))
	welcome, err := protocol.ReadWelcome(c.lines, werr)
	if err != nil {
		return err
	}
	c.Daemon = welcome.Daemon
	return c.conn.SetDeadline(time.Time{})
}

// Close ends the connection, and with it whatever the daemon does for it.
func (c *Client) Close() error { return c.conn.Close() }

// interruptBy makes reads and writes fail once ctx is done.
func (c *Client) interruptBy(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
}

// Call makes a request and blocks until its answer, which is decoded into answer
// unless that is nil. Meanwhile it calls progress, which may be nil. If ctx is
// done Call returns its cause, and the client must not be used any more. An error
// answer is a [*RemoteError].
func (c *Client) Call(ctx context.Context, method string, params, answer any, progress func(Progress)) error {
	stop := c.interruptBy(ctx)
	defer stop()
	err := c.call(method, params, answer, progress)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// call is [Client.Call] without the context, whose end makes the reads and writes here
// fail. Answers to earlier calls, which were given up, are skipped.
func (c *Client) call(method string, params, answer any, progress func(Progress)) error {
	var raw json.RawMessage
	if params != nil {
		var err error
		if raw, err = json.Marshal(params); err != nil {
			return fmt.Errorf("%s: encoding: %w", method, err)
		}
	}
	c.next++
	id := jsonrpc.IntID(c.next)
	if _, err := c.conn.Write(append(jsonrpc.AppendRequest(nil, id, method, raw), '\n')); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	for {
		line, err := c.lines.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: the daemon closed the connection: %w", method, io.ErrUnexpectedEOF)
		} else if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		msg, err := jsonrpc.Parse(line)
		if err != nil {
			return fmt.Errorf("%s: answer: %w", method, err)
		}
		switch {
		case msg.Kind == jsonrpc.Notification && msg.Method == ProgressNote:
			var p Progress
			if progress != nil && json.Unmarshal(msg.Params, &p) == nil {
				progress(p)
			}
		case msg.Kind == jsonrpc.Response && msg.ID.Key() == id.Key():
			return decode(method, msg, answer)
		}
	}
}

// decode stores the result of a response in answer, unless that is nil. An error answer
// is returned as a [*RemoteError].
func decode(method string, msg jsonrpc.Message, answer any) error {
	if msg.Error != nil {
		var e struct {
			Message string        `json:"message"`
			Data    *fault.Record `json:"data"`
		}
		if err := json.Unmarshal(msg.Error, &e); err != nil {
			return fmt.Errorf("%s: answer: %w", method, err)
		}
		return &RemoteError{Message: e.Message, Fault: e.Data}
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(msg.Result, answer); err != nil {
		return fmt.Errorf("%s: answer: %w", method, err)
	}
	return nil
}
