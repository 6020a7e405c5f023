package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"holdline/daemon/calls"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// request sends a request of the daemon's own and returns the result. It blocks until
// the server answers, exits ([errDied]), or ctx ends. A JSON-RPC error of the server
// is an [*rpcError].
func (u *upstream) request(ctx context.Context, kind, method string, params json.RawMessage) (json.RawMessage, error) {
	ch := make(chan jsonrpc.Message, 1)
	var write int64
	_, err := u.worker().WriteFunc(ctx, calls.Record{Kind: kind, Name: method}, func(id int64) ([]byte, error) {
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		write = id
		u.internal[id] = inquiry{take: func(msg jsonrpc.Message) { ch <- msg }}
		return append(jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), '\n'), nil
	})
	defer func() {
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		delete(u.internal, write)
	}()
	if err != nil {
		return nil, u.fallen(ctx, err)
	}
	select {
	case msg := <-ch:
		return resultOf(method, msg)
	case <-u.exited:
		select {
		case msg := <-ch: // it ended after it had answered, as one does that refuses its client
			return resultOf(method, msg)
		default:
		}
		return nil, errDied
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// resultOf returns the result in the answer to a request of the daemon's own, or
// why it has none.
func resultOf(method string, msg jsonrpc.Message) (json.RawMessage, error) {
	if msg.Error != nil && msg.Kind != jsonrpc.Response { // it answered with something else
		words, _ := mcp.String(jsonrpc.Field(msg.Error, "message"))
		return nil, fmt.Errorf("%s: %s", method, words)
	}
	if msg.Error != nil {
		return nil, &rpcError{method: method, raw: msg.Error}
	}
	return msg.Result, nil
}

// fallTimeout bounds the wait for the process's end after a failed write. That end is
// the usual reason of the failure.
const fallTimeout = 5 * time.Second

// fallen returns the error for a write that failed with err: [errDied] if the process
// ends within [fallTimeout], else err.
func (u *upstream) fallen(ctx context.Context, err error) error {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Fault.Code == fault.ResourceExhausted || f.Fault.Code == fault.InternalFailure {
		return err
	}
	t := time.NewTimer(fallTimeout)
	defer t.Stop()
	select {
	case <-u.exited:
		return errDied
	case <-t.C:
	case <-ctx.Done():
	}
	return err
}

// errDied says that the server ended while it was asked.
var errDied = errors.New("it ended")

// An rpcError is a JSON-RPC error with which a server answered a request of the
// daemon's own.
type rpcError struct {
	method string
	raw    json.RawMessage
}

func (e *rpcError) Error() string {
	words, ok := mcp.String(jsonrpc.Field(e.raw, "message"))
	if !ok || words == "" {
		return fmt.Sprintf("%s is refused: %s", e.method, fault.Quote(e.raw))
	}
	return fmt.Sprintf("%s is refused: %s (%s)", e.method, fault.Quote([]byte(words)),
		fault.Quote(jsonrpc.Field(e.raw, "code")))
}
