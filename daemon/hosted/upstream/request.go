package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/background"
	"holdline/daemon/standing"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
)

// Request sends a request of the daemon's own and returns the result. It blocks until
// the server answers, exits ([standing.ErrExited]), or ctx ends. A JSON-RPC error of the server
// is an [*dialect.RefusalError].
func (u *Process) Request(ctx context.Context, kind, method string, params json.RawMessage) (json.RawMessage, error) {
	ch := make(chan jsonrpc.Message, 1)
	var write int64
	_, err := u.Worker().WriteFunc(ctx, calls.Record{Kind: kind, Name: method}, func(id int64) ([]byte, error) {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		write = id
		u.internal[id] = inquiry{take: func(msg jsonrpc.Message) { ch <- msg }}
		return append(jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), '\n'), nil
	})
	defer func() {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		delete(u.internal, write)
	}()
	if err != nil {
		return nil, u.fallen(ctx, err)
	}
	select {
	case msg := <-ch:
		return dialect.ResultOf(method, msg)
	case <-u.Exited:
		select {
		case msg := <-ch: // it ended after it had answered, as one does that refuses its client
			return dialect.ResultOf(method, msg)
		default:
		}
		return nil, standing.ErrExited
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fallTimeout bounds the wait for the process's end after a failed write. That end is
// the usual reason of the failure.
const fallTimeout = 5 * time.Second

// fallen returns the error for a write that failed with err: [standing.ErrExited] if the process
// ends within [fallTimeout], else err.
func (u *Process) fallen(ctx context.Context, err error) error {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Fault.Code == fault.ResourceExhausted || f.Fault.Code == fault.InternalFailure {
		return err
	}
	t := time.NewTimer(fallTimeout)
	defer t.Stop()
	select {
	case <-u.Exited:
		return standing.ErrExited
	case <-t.C:
	case <-ctx.Done():
	}
	return err
}

// goneTimeout bounds the wait for the end of a process that takes no writes.
const goneTimeout = time.Minute

// AwaitLost waits until a process that takes no writes has exited. A process that takes
// writes again is not lost, unless it ends. It returns the cause of ctx if that ends first.
func (u *Process) AwaitLost(ctx context.Context, ends bool) error {
	if w := u.Worker(); w.Status().Attached && !ends {
		return nil
	}
	t := time.NewTimer(goneTimeout)
	defer t.Stop()
	select {
	case <-u.Exited:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// makeBackgroundWrites makes the writes to the process that belong to no call, until it
// has exited or the hub closes.
func (u *Process) makeBackgroundWrites() {
	w := u.Worker()
	u.writes.Run(u.hub.Life, u.Exited, func(b *background.Write) {
		// Its record is on disk before the server can see it.
		id, err := w.Write(u.hub.Life, b.Rec, append(b.Line, '\n'))
		faultpoint.At("hosted.errand")
		if err == nil {
			u.hub.Mu.Lock()
			u.records.Made(b.Rec.Kind, id)
			u.nudge()
			u.hub.Mu.Unlock()
		}
		if b.Done != nil {
			b.Done(err)
		}
	})
}
