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

// Request sends a request of the daemon's own and returns the result. It blocks until the server
// answers, the process exits ([standing.ErrExited]), or ctx ends (its cause); a later answer is
// ignored. A JSON-RPC error of the server is an [*dialect.RefusalError]. If the write fails,
// Request waits up to [fallTimeout] for the exit, and returns ErrExited or else the error of the
// write. The worker must be attached, and the caller must not hold hub.Mu.
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
		err = standing.ErrExited
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

// inquire writes a request of the daemon's own and returns the number of its write, without waiting
// for the answer. made is called with that number and with hub.Mu held, before the worker gets the
// write. rec is the record of the write. The answer goes to own, later. With an error no answer
// will be taken, though the server may have got the request. The caller must not hold hub.Mu.
func (u *Process) inquire(ctx context.Context, rec calls.Record, method string, params json.RawMessage,
	own inquiry, made func(write int64),
) (write int64, err error) {
	_, err = u.Worker().WriteFunc(ctx, rec, func(id int64) ([][]byte, error) {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		u.dropVoidLocked(write, &own) // if it was composed before
		write = id
		u.internal[id] = &own
		made(id)
		return [][]byte{append(jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), '\n')}, nil
	})
	if err != nil {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		u.dropVoidLocked(write, &own)
	}
	return write, err
}

// dropVoidLocked forgets an inquiry whose write failed, if it still has that number, which may be
// another's by now. The caller must hold hub.Mu.
func (u *Process) dropVoidLocked(write int64, own *inquiry) {
	if u.internal[write] == own {
		delete(u.internal, write)
	}
}

// forgetInquiry has the answer to one of the daemon's own requests ignored from now on, and wakes
// the reader to drop its record. It does nothing if the request was answered. It takes hub.Mu.
func (u *Process) forgetInquiry(write int64) {
	if _, unanswered := u.takeInquiry(write); unanswered {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		u.nudge()
	}
}

// fallTimeout bounds the wait for the process's end after a failed write. That end is
// the usual reason of the failure.
const fallTimeout = 5 * time.Second

// fallen returns the error for a write to the process that failed with err. It waits up to
// [fallTimeout] for the exit of the process: the result is [standing.ErrExited] if that comes, else
// err. It returns err at once if that is no fault, or one that no exit explains. The caller must
// not hold hub.Mu, which an exit needs.
func (u *Process) fallen(ctx context.Context, err error) error {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Fault.Code == fault.ResourceExhausted || f.Fault.Code == fault.InternalFailure {
		return err
	}
	if u.exitsWithin(ctx, fallTimeout) {
		return standing.ErrExited
	}
	return err
}

// exitsWithin waits for the process to exit, for at most d or until ctx ends, and reports whether
// it has exited. It does not end the process. The caller must not hold hub.Mu, which an exit needs.
func (u *Process) exitsWithin(ctx context.Context, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return AwaitExits(ctx, []*Process{u}) == nil
}

// goneTimeout bounds the wait for the end of a process that takes no writes.
const goneTimeout = time.Minute

// AwaitLost waits up to [goneTimeout] for the exit of a process that took no write. If its worker
// is attached, so that it takes writes again, AwaitLost returns at once, unless ends is set: the
// caller knows that the process is ending. It returns the cause of ctx if ctx ends first, else nil,
// also when the time is over. The caller must not hold hub.Mu.
func (u *Process) AwaitLost(ctx context.Context, ends bool) error {
	if w := u.Worker(); w.Status().Attached && !ends {
		return nil
	}
	if u.exitsWithin(ctx, goneTimeout) {
		return nil
	}
	return context.Cause(ctx) // nil unless it has ended
}

// makeBackgroundWrites makes the queued writes to the process that belong to no call, one after the
// other, until the process has exited or the hub's Life ends. It blocks while the server does not
// read. It tells each write's Done of the outcome, and has the reader drop records that have
// served. It takes hub.Mu, but not while it writes or calls Done.
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
