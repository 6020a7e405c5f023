package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/background"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
)

// Request sends a request of the daemon's own and returns the result. It blocks until the server
// answers, the process exits ([ErrExited]), or ctx ends (its cause). A JSON-RPC error is
// an [*dialect.RefusalError]. If the write fails, the error is that of [Process.fallen], which
// waits. The worker must be attached, and the caller must not hold hub.Mu.
func (u *Process) Request(ctx context.Context, kind, method string, params json.RawMessage) (json.RawMessage, error) {
	ch := make(chan jsonrpc.Message, 1)
	own := inquiry{take: func(msg jsonrpc.Message) { ch <- msg }}
	write, err := u.inquire(ctx, calls.Record{Kind: kind, Name: method}, method, params, own, func(int64) {})
	if err != nil {
		return nil, u.fallen(ctx, err)
	}
	defer u.forgetInquiry(write)
	select {
	case msg := <-ch:
		return dialect.ResultOf(method, msg)
	case <-u.Exited:
		err = ErrExited
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	select {
	case msg := <-ch: // it ended after it had answered, as one does that refuses its client
		return dialect.ResultOf(method, msg)
	default:
		return nil, err
	}
}

// An inquiry is a request of the daemon's own that waits for its answer.
type inquiry struct {
	take  func(jsonrpc.Message) // called once, without the hub's mutex
	stays bool                  // its record is needed although it was answered
}

// asker is the type of [Process.inquire].
type asker func(ctx context.Context, rec calls.Record, method string, params json.RawMessage, own inquiry,
	made func(write int64)) (write int64, err error)

// inquire writes a request of the daemon's own and returns the number of its write. made is called
// with it and with hub.Mu held, before the worker gets the write. The answer goes to own, but not
// after an error, though the server may have got the request. hub.Mu must not be held.
func (u *Process) inquire(ctx context.Context, rec calls.Record, method string, params json.RawMessage,
	own inquiry, made func(write int64),
) (write int64, err error) {
	_, err = u.Worker().WriteFunc(ctx, time.Time{}, rec, func(id int64) (bulk.Parts, error) {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		u.dropVoidLocked(write, &own) // if it was composed before
		write = id
		u.internal[id] = &own
		made(id)
		return bulk.Parts{Before: append(jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), '\n')}, nil
	})
	if err != nil {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		u.dropVoidLocked(write, &own)
	}
	return write, err
}

// dropVoidLocked forgets an inquiry that failed, if it has that number still. hub.Mu must be held.
func (u *Process) dropVoidLocked(write int64, own *inquiry) {
	if u.internal[write] == own {
		delete(u.internal, write)
	}
}

// forgetInquiry has the answer to the daemon's own request ignored, if any. It takes hub.Mu.
func (u *Process) forgetInquiry(write int64) {
	if _, unanswered := u.takeInquiry(write); unanswered {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		u.nudge()
	}
}

// fallTimeout bounds the wait for the end of the process, which a failed write usually means.
const fallTimeout = 5 * time.Second

// fallen returns the error for a write that failed with err: [ErrExited] if the process
// exits within [fallTimeout], else err. It does not wait if err is no fault, or one that no exit
// explains. The caller must not hold hub.Mu, which an exit needs.
func (u *Process) fallen(ctx context.Context, err error) error {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Fault.Code == fault.ResourceExhausted || f.Fault.Code == fault.InternalFailure {
		return err
	}
	if u.exitsWithin(ctx, fallTimeout) {
		return ErrExited
	}
	return err
}

// exitsWithin reports whether it exits within d and before ctx ends. hub.Mu must not be held.
func (u *Process) exitsWithin(ctx context.Context, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return AwaitExits(ctx, []*Process{u}) == nil
}

// goneTimeout bounds the wait for the end of a process that takes no writes.
const goneTimeout = time.Minute

// AwaitLost waits up to [goneTimeout] for the exit of a process that took no write; not if its
// worker is attached, so that it takes writes again, unless the caller knows that it ends. It
// returns the cause of ctx if ctx ends first, else nil. The caller must not hold hub.Mu.
func (u *Process) AwaitLost(ctx context.Context, ends bool) error {
	if w := u.Worker(); w.Status().Attached && !ends {
		return nil
	}
	if u.exitsWithin(ctx, goneTimeout) {
		return nil
	}
	return context.Cause(ctx) // nil unless it has ended
}

// makeBackgroundWrites makes the queued writes that belong to no call, until the process has exited
// or the hub's Life ends. It takes hub.Mu, but not while it writes or calls a write's Done.
func (u *Process) makeBackgroundWrites() {
	w := u.Worker()
	u.writes.Run(u.hub.Life, u.Exited, func(b *background.Write) {
		if b.Void != nil && b.Void() {
			return
		}
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
