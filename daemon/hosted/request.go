package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// Request sends a request of the daemon's own and returns the result. It blocks until
// the server answers, exits ([errDied]), or ctx ends. A JSON-RPC error of the server
// is an [*dialect.Refusal].
func (u *upstream) Request(ctx context.Context, kind, method string, params json.RawMessage) (json.RawMessage, error) {
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
		return dialect.ResultOf(method, msg)
	case <-u.exited:
		select {
		case msg := <-ch: // it ended after it had answered, as one does that refuses its client
			return dialect.ResultOf(method, msg)
		default:
		}
		return nil, errDied
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
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
