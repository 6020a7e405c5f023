package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/background"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/listing"
	"holdline/daemon/standing"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A Call is a tool call, and the client's request that waits for it. Its fields are
// guarded by the hub's mutex.
type Call struct {
	*calls.Call
	Up      *Process // the process that has it, or had it last; nil for none
	write   int64    // its write to that process
	earlier []place  // its writes to processes that died before
	// Withdrawn says that its client has cancelled it, and cannot continue it.
	Withdrawn bool

	// Of the request that waits, or waited last.
	OnProgress   func(params json.RawMessage) // nil if the client wants none, or none waits
	Asked        chan struct{}                // holds a token when the server may have asked something
	Level        string                       // log messages from this level on were asked for; "" for none
	Capabilities json.RawMessage              // of a modern client; nil otherwise
	back         chan struct{}                // closed when the call is not suspended any more; nil unless it is
	names        dialect.Names
}

// place is a write to a process.
type place struct {
	up    *Process
	write int64
}

// NewCall returns a call that no process has.
func NewCall(c *calls.Call) *Call { return &Call{Call: c, Asked: make(chan struct{}, 1)} }

// FactsLocked returns what is known of the call.
func (c *Call) FactsLocked(pending bool) calls.Facts {
	return c.Facts(pending, c.Up != nil && c.Up.State != stage.Exited)
}

// DropLocked settles a call that no owner wants any more. One in flight is
// cancelled; what is kept of it goes. A call of an earlier daemon waits until the
// output that its process wrote before the attach is read: it may hold the answer,
// and then the call must not be cancelled.
func (h *Hub) DropLocked(c *Call) {
	u := c.Up
	if c.Phase() == calls.Over {
		return
	}
	h.unparkLocked(c)
	c.Demand(calls.Withdraw)
	if c.Phase() == calls.Open && u != nil && u.State != stage.Exited && !u.hasCaughtUp() {
		return
	}
	cancels := calls.Decide(c.FactsLocked(false)) == calls.Cancel
	if cancels {
		u.CancelLocked(c, true)
	}
	c.Apply(calls.Settle)
	freed, hasFile := c.DropAnswer()
	h.spooledLocked(c.Key.Session, -freed)
	delete(h.Calls, c.Key)
	for _, at := range append(c.earlier, place{u, c.write}) {
		if at.up == nil {
			continue
		}
		delete(at.up.Calls, at.write)
		if !cancels || at != (place{u, c.write}) {
			at.up.records.Forget(at.write)
		}
		if hasFile {
			at.up.records.Remove(at.write)
		}
		at.up.nudge()
	}
}

// CancelLocked queues a cancellation of the call for the server. With forget the record of
// the call is dropped once the cancellation is written; before that the next daemon
// needs the record, since it would have to cancel the call.
func (u *Process) CancelLocked(c *Call, forget bool) {
	write := c.write
	u.writes.Push(background.Write{
		Rec:  calls.Record{N: c.Key.N, Session: c.Key.Session, Kind: calls.KindCancel, Name: c.Name},
		Line: jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote, fmt.Appendf(nil, `{"requestId":%d}`, write)),
		Done: func(err error) {
			if err != nil || !forget {
				return
			}
			u.hub.Mu.Lock()
			defer u.hub.Mu.Unlock()
			u.records.Forget(write)
			u.nudge()
		},
	})
}

// ForgetVoidLocked detaches a call from a process that certainly did not get it.
func (c *Call) ForgetVoidLocked() {
	if c.Up == nil {
		return
	}
	if c.Up.Calls[c.write] == c { // the record is void, and its number may be another's
		delete(c.Up.Calls, c.write)
	}
	c.Up, c.write = nil, 0
}

// UnsentLocked records that a call was not written to a process, which certainly did not get it.
func (c *Call) UnsentLocked(u *Process) {
	if (c.Phase() == calls.Open || c.Phase() == calls.Lost) && c.Up == u {
		c.ForgetVoidLocked()
		c.Apply(calls.Unsent)
	}
}

// HasWantedCallLocked reports whether a client may still ask for the answer to a
// call of the process.
func (u *Process) HasWantedCallLocked() bool {
	for _, c := range u.Calls {
		if c.Claim().Wanted() {
			return true
		}
	}
	return false
}

// HasDetachedLocked reports whether the process has a detached call that has not ended.
func (u *Process) HasDetachedLocked() bool {
	for _, c := range u.Calls {
		if at := c.Phase(); c.Claim().IsDetached() && c.Up == u && at != calls.Answered && at != calls.Over {
			return true
		}
	}
	return false
}

// CanDetach reports whether a call is under way in a process that this daemon has. It is for a
// call of which [Process.WriteCall] has returned: then the worker has the write, and its record is
// never void.
func (h *Hub) CanDetach(c *Call) bool {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	return c.Phase() == calls.Open && c.Claim() == calls.Awaited && c.Up != nil && c.Up.attached != nil
}

// Detach records that the store of tasks owns a call of which [Hub.CanDetach] was true. It
// blocks on the disk.
func (h *Hub) Detach(c *Call) error {
	h.Mu.Lock()
	w, write, key := c.Up.attached, c.write, c.Key
	h.Mu.Unlock()
	return w.Detach(write, key.Session, key.N)
}

// UnsureLocked returns a channel that is closed once it is known whether the call was
// made. It returns nil if that is known.
func (c *Call) UnsureLocked() chan struct{} {
	if c == nil || c.Phase() != calls.Open || c.Up == nil {
		return nil
	}
	return c.Up.unsure
}

// MadeLocked reports whether the call was made. It is only right if UnsureLocked
// returns nil.
func (c *Call) MadeLocked() bool { return c != nil && c.Phase().Made() }

// WriteCall writes a call to the process, with that record, and gives it to the process
// until the time until. again says that the process that had it has died. died reports
// that this one has exited: then nothing was written.
func (u *Process) WriteCall(ctx context.Context, rec calls.Record, c *Call, o *listing.Offer, rc *tool.RemoteCall,
	again bool, until time.Time,
) (died bool, err error) {
	composed := false
	_, err = u.Worker().WriteFunc(ctx, rec, func(id int64) ([][]byte, error) {
		envelope, names := u.Envelope(), dialect.NewNames(id, rc)
		line, err := envelope.Line(rc, o, &names)
		if err != nil {
			return nil, err
		}
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		if composed { // and void
			c.UnsentLocked(u)
		}
		composed = true
		switch {
		case u.State == stage.Exited:
			died = true
			return nil, standing.ErrExited
		case c.Phase() == calls.Over:
			return nil, errUnwanted
		case again:
			c.Replays++
			c.earlier = append(c.earlier, place{c.Up, c.write})
			again = false // it is counted, and the place is kept, once
		default:
			c.ForgetVoidLocked()
		}
		c.Up, c.write, c.names, c.Begun = u, id, names, time.Now()
		c.Deadline.Set(until)
		u.Calls[id] = c
		c.Apply(calls.Sent)
		return line, nil
	})
	return died, err
}

// errUnwanted says that the call was settled before its write was made.
var errUnwanted = errors.New("no client waits for the answer")

// Answer returns the answer of a call that has one, from memory or from its file.
func (h *Hub) Answer(c *Call) (calls.Answer, error) {
	h.Mu.Lock()
	a, u, write := c.Answer, c.Up, c.write
	h.Mu.Unlock()
	if a.IsZero() {
		return calls.ReadAnswer(u.Dir, write)
	}
	return a, nil
}

// FileLocked returns the file in which the call's result lies; nil if it is in none, or if it
// is not known where in the file.
func (c *Call) FileLocked() *tool.File {
	off, size, ok := c.ResultInFile()
	if !ok || c.Up == nil {
		return nil
	}
	return &tool.File{Path: calls.AnswerFile(c.Up.Dir, c.write), Offset: off, Size: size}
}

// RefLocked returns a name of the call that the next daemon finds it by, too: it has the
// worker and the write.
func (c *Call) RefLocked() string { return fmt.Sprint(c.Up.ID, ":", c.write) }

// restartClockLocked gives a call its full time for an answer again. The new deadline
// is written to the call's record later, by the reader.
func (u *Process) restartClockLocked(c *Call) {
	timeout, _ := u.Instance.Limits()
	until := time.Now().Add(timeout)
	if c.Deadline.Move(until, timeout) {
		u.records.MoveDeadline(c.write, until)
		u.nudge()
	}
	c.Progressed()
}

// recordDeadlines writes the deadlines that progress has moved into the records of
// their calls. The next daemon goes by these.
func (u *Process) recordDeadlines() {
	u.hub.Mu.Lock()
	w, moved := u.attached, u.records.TakeDeadlines()
	u.hub.Mu.Unlock()
	for write, until := range moved {
		if err := w.MoveDeadline(write, until); err != nil { // the next daemon gives it less time
			u.Log.Debug("a call's deadline is not on record", "err", err)
		}
	}
}

// namedLocked returns the call that the server knows by a name of that sort, or nil.
func (u *Process) namedLocked(sort dialect.Name, name []byte) *Call {
	if !sort.IsBroken() {
		return u.Calls[dialect.Number(name)]
	}
	for _, c := range u.Calls {
		if c.names[sort] == string(name) {
			return c
		}
	}
	return nil
}
