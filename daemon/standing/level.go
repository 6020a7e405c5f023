package standing

import (
	"context"
	"encoding/json"
	"time"

	"holdline/daemon/calls"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// levelWait is how long a call waits for its server to confirm a more verbose
// level.
const levelWait = time.Second

// quietest is the level of a server whose messages no session wants any more.
const quietest = "emergency"

// level is the log level of a legacy process.
type level struct {
	asked   string // the level that the process was asked for last; "" if none
	write   int64  // of that request
	pending bool   // the process has not answered it yet
}

// raises reports whether a level is more verbose than the one that the process was asked
// for.
func (l *level) raises(wanted string) bool {
	return wanted != "" && wanted != l.asked && mcp.Verbose(l.asked, wanted) == wanted
}

// levelDue returns the level that the process has to be asked for, and false if it has the
// right one. The caller must hold r.mu.
func (r *Requests) levelDue(d *Desired) (wanted string, due bool) {
	if !d.Serving || !r.logs {
		return "", false
	}
	wanted = d.level
	switch {
	case wanted == r.level.asked:
		return "", false
	case r.level.raises(wanted):
		return wanted, true
	case d.Provisional:
		return "", false
	case wanted == "":
		wanted = quietest
	}
	return wanted, wanted != r.level.asked
}

// setLevel asks the process for a level. It returns once the request is written. If it
// cannot be written, the level that was asked for before stays recorded.
func (r *Requests) setLevel(ctx context.Context, wanted string) error {
	params, err := json.Marshal(map[string]string{"level": wanted})
	if err != nil { // strings encode
		return err
	}
	r.mu.Lock()
	before := r.level
	r.mu.Unlock()
	var write int64
	err = r.p.Inquire(ctx, calls.Record{Kind: calls.KindSetLevel, Name: wanted}, mcp.SetLevel, params, func(id int64) {
		r.mu.Lock()
		defer r.mu.Unlock()
		write = id
		r.level = level{asked: wanted, write: id, pending: true}
	}, func(msg jsonrpc.Message) {
		if msg.Error != nil {
			r.log.DebugContext(ctx, "server refuses a level", "wanted", wanted, "err", fault.Quote(msg.Error))
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.level.write == write {
			r.level.pending = false
		}
		r.notify()
	})
	if err == nil {
		r.forget(before.write)
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.level = before
	r.level.pending = false
	return err
}

// AwaitLevel waits, for at most levelWait, until the process has confirmed a
// level as verbose as any session wants. A session that asks for messages and
// then calls a tool must not miss what the call logs.
func (r *Requests) AwaitLevel(ctx context.Context) {
	if waits, _, _ := r.levelAwaited(); !waits { // the usual case
		return
	}
	limit := time.NewTimer(levelWait)
	defer limit.Stop()
	for {
		waits, due, changed := r.levelAwaited()
		if !waits {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			r.mu.Lock()
			if !due { // the process does not answer: later calls do not wait for that
				r.level.pending = false
			}
			r.mu.Unlock()
			return
		case <-r.p.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// levelAwaited reports whether the process has yet to confirm a more verbose level. due
// says that it has not even been asked for it; then levelAwaited wakes the reconcile loop.
// changed is closed when either may have changed.
func (r *Requests) levelAwaited() (waits, due bool, changed <-chan struct{}) {
	r.mu.Lock()
	logs := r.logs
	r.mu.Unlock()
	if !logs {
		return false, false, nil
	}
	d := r.desired()
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted, due := r.levelDue(&d)
	if due {
		r.Wake()
	}
	return due && r.level.raises(wanted) || r.level.pending && !due, due, r.changed
}
