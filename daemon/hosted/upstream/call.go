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
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
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
	// lost says why the process that has the call cannot answer it any more, though it lives; nil if it can.
	lost *fault.Record
	// Doubt is that of its [tool.RemoteCall] if no record of it was found. It never changes.
	Doubt func() *fault.Record

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

// FactsLocked returns a call's facts; pending: its owner wants the answer. hub.Mu must be held.
func (c *Call) FactsLocked(pending bool) calls.Facts {
	return c.Facts(pending, c.Up != nil && c.Up.State != stage.Exited && c.lost == nil)
}

// EndLocked returns why the process that had the call last cannot answer it; nil if it lives, or if
// that is not known. The caller must hold hub.Mu.
func (c *Call) EndLocked() *fault.Record {
	if c.lost == nil && c.Up != nil {
		return c.Up.Death
	}
	return c.lost
}

// DropLocked settles a call that no owner wants any more, and cancels it if it is in flight. The
// call leaves the maps, its answer goes, and readers are woken to remove its records and files. It
// does nothing to a call that is over. A call of an earlier daemon is only marked as unwanted until
// the output from before the attach is read: that may hold the answer. The caller must hold hub.Mu.
func (h *Hub) DropLocked(c *Call) {
	u := c.Up
	if c.Phase() == calls.Over {
		return
	}
	if u != nil && u.Calls[c.write] != c { // its write is void, and another call may have the number
		c.UnsentLocked(u)
		u = c.Up
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
	h.RemoveLocked(c)
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

// RemoveLocked removes c from the hub's calls, if it is the one of its key. h.Mu must be held.
func (h *Hub) RemoveLocked(c *Call) {
	if h.Calls[c.Key] == c {
		delete(h.Calls, c.Key)
	}
}

// CancelLocked queues a cancellation of the call for the server; a full queue drops it. With forget
// the record of the call is dropped, but only once the cancellation is written: until then the next
// daemon would have to cancel the call. The caller must hold hub.Mu.
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
		Void: func() bool { // the write was not made after all, and another call has its number
			u.hub.Mu.Lock()
			defer u.hub.Mu.Unlock()
			return u.Calls[write] != nil && u.Calls[write] != c
		},
	})
}

// ForgetVoidLocked detaches a call from a process that did not get it. hub.Mu must be held.
func (c *Call) ForgetVoidLocked() {
	if c.Up == nil {
		return
	}
	if c.Up.Calls[c.write] == c { // the record is void, and its number may be another's
		delete(c.Up.Calls, c.write)
	}
	c.Up, c.write = nil, 0
}

// UnsentLocked makes a call [calls.New] again, which was certainly not written to u. It does
// nothing unless u has it, open or lost. The caller must hold hub.Mu.
func (c *Call) UnsentLocked(u *Process) {
	if (c.Phase() == calls.Open || c.Phase() == calls.Lost) && c.Up == u {
		c.ForgetVoidLocked()
		c.Apply(calls.Unsent)
	}
}

// HasWantedCallLocked reports whether a client may still ask for a call. hub.Mu must be held.
func (u *Process) HasWantedCallLocked() bool {
	for _, c := range u.Calls {
		if c.Claim().Wanted() {
			return true
		}
	}
	return false
}

// HasDetachedLocked reports whether a detached call is not answered or over. hub.Mu must be held.
func (u *Process) HasDetachedLocked() bool {
	for _, c := range u.Calls {
		if at := c.Phase(); c.Claim().IsDetached() && c.Up == u && at != calls.Answered && at != calls.Over {
			return true
		}
	}
	return false
}

// CanDetach reports whether a call is open and awaited, and its process attached. Call it after
// WriteCall has returned: then its record is never void. It takes hub.Mu.
func (h *Hub) CanDetach(c *Call) bool {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	return c.Phase() == calls.Open && c.Claim() == calls.Awaited && c.Up != nil && c.Up.attached != nil
}

// Detach records in the worker's journal that the store of tasks owns a call. It blocks on the
// disk, and returns its error. It takes hub.Mu, but not while it writes.
func (h *Hub) Detach(c *Call) error {
	h.Mu.Lock()
	w, write, key := c.Up.attached, c.write, c.Key
	h.Mu.Unlock()
	return w.Detach(write, key.Session, key.N)
}

// UnsureLocked returns a channel that is closed once it is known whether an earlier daemon has made
// the call, or its process is condemned; nil if it is. The caller must hold hub.Mu.
func (c *Call) UnsureLocked() chan struct{} {
	if c == nil || c.Phase() != calls.Open || c.Up == nil {
		return nil
	}
	return c.Up.unsure
}

// MadeLocked reports whether the call may have reached a process. It is only right if UnsureLocked
// returns nil. The caller must hold hub.Mu.
func (c *Call) MadeLocked() bool { return c != nil && c.Phase().Made() }

// WriteCall writes a call to the process, which then has it, with the deadline until. again says
// that the process that had the call has died: it counts as a replay. WriteCall returns when the
// bytes are in the server's stdin. It also returns at the time until and when ctx is done, which
// does not take the write back. The worker must be attached, and hub.Mu not held.
//
// died reports that this process has exited; err is not nil then. If [supervisor.NotDispatched] is
// true for the error, nothing was written, and the caller must call UnsentLocked.
func (u *Process) WriteCall(ctx context.Context, rec calls.Record, c *Call, o *listing.Offer, rc *tool.RemoteCall,
	again bool, until time.Time,
) (died bool, err error) {
	composed := false
	_, err = u.Worker().WriteFunc(ctx, until, rec, func(id int64) (p bulk.Parts, err error) {
		envelope, names := u.Envelope(), dialect.NewNames(id, rc, u.Tokens)
		if p, err = envelope.Line(rc, o, &names); err != nil {
			return p, err
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
			return p, ErrExited
		case c.Phase() == calls.Over:
			return p, errUnwanted
		case again:
			c.Replays++
			c.earlier = append(c.earlier, place{c.Up, c.write})
			again = false // it is counted, and the place is kept, once
		default:
			c.ForgetVoidLocked()
		}
		c.Up, c.write, c.names, c.Begun, c.lost = u, id, names, time.Now(), nil
		c.Deadline.Set(until)
		u.Calls[id] = c
		c.Apply(calls.Sent)
		u.lookAfterLocked()
		return p, nil
	})
	if !supervisor.NotDispatched(err) {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		c.Repeated()
	}
	return died, err
}

// errUnwanted says that the call was settled before its write was made.
var errUnwanted = errors.New("no client waits for the answer")

// Answer returns a call's answer, from memory or its file, or the file's error. It takes hub.Mu.
func (h *Hub) Answer(c *Call) (calls.Answer, error) {
	h.Mu.Lock()
	a, u, write := c.Answer, c.Up, c.write
	size, sum := c.FileSum()
	h.Mu.Unlock()
	if a.IsZero() {
		return calls.ReadAnswer(u.Dir, write, size, sum)
	}
	return a, nil
}

// FileLocked returns where in a file the result is; nil if that is unknown. hub.Mu must be held.
func (c *Call) FileLocked() *bulk.File {
	at, ok := c.ResultInFile()
	if !ok || c.Up == nil {
		return nil
	}
	return &bulk.File{
		Path: calls.AnswerFile(c.Up.Dir, c.write), Offset: at.Offset, Size: at.Size, Changed: at.Changed,
	}
}

// RefLocked returns the name "worker:write"; a process must have the call. hub.Mu must be held.
func (c *Call) RefLocked() string { return fmt.Sprint(c.Up.ID, ":", c.write) }

// restartClockLocked gives a call its full time again, and wakes the goroutine that waits for it.
// The reader records the new deadline later, if it differs enough. The caller must hold hub.Mu.
func (u *Process) restartClockLocked(c *Call) {
	timeout, _ := u.Instance.Limits()
	until := time.Now().Add(timeout)
	if c.Deadline.Move(until, timeout) {
		u.records.MoveDeadline(c.write, until)
		u.nudge()
	}
	c.Progressed()
}

// recordDeadlines writes moved deadlines, by which the next daemon goes, into the records of their
// calls. It logs errors. It takes hub.Mu, but not while it writes. Only the reader calls it.
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

// namedLocked returns the call with that id or, as sort says, token; or nil. A write of the call
// that was followed by another one names it no more. The caller must hold hub.Mu.
func (u *Process) namedLocked(sort dialect.Name, name []byte) *Call {
	if !sort.IsBroken() {
		write := dialect.Number(name)
		if sort == dialect.Token {
			write = u.Tokens.Write(name)
		}
		if c := u.Calls[write]; c != nil && c.hasLocked(u, write) {
			return c
		}
		return nil
	}
	for write, c := range u.Calls {
		if c.hasLocked(u, write) && c.names[sort] == string(name) {
			return c
		}
	}
	return nil
}
