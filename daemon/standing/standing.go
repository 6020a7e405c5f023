package standing

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/listing"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
	"holdline/protocol/mcp"
)

// Pauses of the reconcile loop.
const (
	// retryPause is the pause after a request that could not be written.
	retryPause = time.Second
	// restPause is the pause between the end of a modern subscription and the
	// next one to the same resource. Some servers take two that overlap for one.
	restPause = time.Second
	// never is when a timer is due that is not needed.
	never = time.Hour
)

// ErrExited is returned if the process exits while a caller waits for it.
var ErrExited = errors.New("it ended")

// Process is the process of a server that the requests go to. Its methods may lock, and must
// be safe for concurrent use. A [Requests] holds no lock of its own while it calls them.
type Process interface {
	// Desired returns what holds for all that sessions want.
	Desired() Desired
	// Level returns the most verbose level that a session wants; "" if none wants
	// messages. It is called only for a process that logs.
	Level() string
	// URIs returns the resources of whose changes sessions want to know.
	URIs() map[string]struct{}
	// Inquire writes a request. made is called with the number of the write
	// before that is made, and take with the answer. If there is an error take is
	// not called, and the process may have read the request nevertheless. made
	// and take may be called with locks held that Desired takes.
	Inquire(ctx context.Context, rec calls.Record, method string, params json.RawMessage,
		made func(write int64), take func(msg jsonrpc.Message)) error
	// CancelListen cancels a subscriptions/listen request. It does not wait. The
	// answer to that request is ignored from now on.
	CancelListen(write int64)
	// Forget drops the records of these writes, which are not needed any more.
	Forget(writes ...int64)
	// Meta returns the members of _meta in a request of the modern era.
	Meta() json.RawMessage
	// Agreed is called when the process notifies of changes to a resource from
	// now on.
	Agreed(uri string)
	// Done returns a channel that is closed when the process has exited.
	Done() <-chan struct{}
}

// Desired says what holds for all that is wanted of a process.
type Desired struct {
	Serving bool // false: no request may be made
	// Provisional says that sessions of an earlier daemon may still come back. No
	// subscription is ended and no level lowered until then.
	Provisional bool

	level string // most verbose level that a session wants; "" if none wants messages
}

// Requests are the standing requests of one process. All methods may be called
// from any goroutine.
type Requests struct {
	p    Process
	log  *slog.Logger
	wake chan struct{} // holds a token if the reconcile loop has to look again

	mu      lockcheck.Mutex // guards all that follows; nothing else is locked while it is held
	modern  bool
	about   json.RawMessage // result of the handshake
	logs    bool            // it takes a level for its log messages
	level   level
	subs    map[string]*subscription // by URI
	changed chan struct{}            // closed and replaced after each request and each answer
}

// New returns the standing requests of a process that has got none yet.
func New(p Process, log *slog.Logger) *Requests {
	return &Requests{
		p: p, log: log, wake: make(chan struct{}, 1),
		subs: map[string]*subscription{}, changed: make(chan struct{}),
	}
}

// Introduce records what the process is. No request is made before.
func (r *Requests) Introduce(modern bool, about json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.modern, r.about, r.logs = modern, about, !modern && listing.Has(about, "logging")
}

// Wake makes the reconcile loop compare again what sessions want with what the
// process was asked for. It never blocks.
func (r *Requests) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run is the reconcile loop. It returns when the process has exited or ctx is
// done. It never waits for an answer of the process.
func (r *Requests) Run(ctx context.Context) {
	timer := time.NewTimer(never)
	defer timer.Stop()
	for {
		select {
		case <-r.wake:
		case <-timer.C:
		case <-r.p.Done():
			return
		case <-ctx.Done():
			return
		}
		timer.Reset(r.reconcile(ctx))
	}
}

// reconcile makes requests until none is due, and returns after how long one may
// be.
func (r *Requests) reconcile(ctx context.Context) time.Duration {
	for {
		more, err := r.step(ctx)
		if err != nil {
			r.log.DebugContext(ctx, "log level or subscription cannot be requested", "err", err)
			return retryPause
		}
		if !more {
			return r.untilRested()
		}
	}
}

// step makes the next request that is due, and reports whether there was one.
func (r *Requests) step(ctx context.Context) (more bool, err error) {
	d := r.desired()
	if !d.Serving {
		return false, nil
	}
	uris := r.wanted()
	r.mu.Lock()
	level, setLevel := r.levelDue(&d)
	uri, end, subscribe := r.subscriptionDue(uris, d.Provisional)
	r.mu.Unlock()
	switch {
	case setLevel:
		return true, r.setLevel(ctx, level)
	case subscribe && end:
		return true, r.unsubscribe(ctx, uri)
	case subscribe:
		return true, r.subscribe(ctx, uri)
	}
	return false, nil
}

// desired returns what is wanted. Of many sessions it asks only what matters to the process.
func (r *Requests) desired() Desired {
	r.mu.Lock()
	logs := r.logs
	r.mu.Unlock()
	d := r.p.Desired()
	if d.Serving && logs {
		d.level = r.p.Level()
	}
	return d
}

// notify wakes all that wait for a change. The caller must hold r.mu.
func (r *Requests) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Restore records the requests that an earlier daemon has made. records must be in their
// order; those with a write above last were not made. It returns the writes whose records
// are not needed any more; 0 stands for none.
func (r *Requests) Restore(records []calls.Record, last int64) (forget []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range records {
		if rec.Write > last {
			continue
		}
		switch rec.Kind {
		case calls.KindSetLevel:
			forget = append(forget, r.level.write)
			r.level.asked, r.level.write = rec.Name, rec.Write
		case calls.KindSubscribe, calls.KindListen:
			forget = append(forget, r.dropSubscription(rec.Name))
			r.subs[rec.Name] = &subscription{state: agreed, write: rec.Write, inherited: true}
		case calls.KindUnsubscribe:
			forget = append(forget, r.dropSubscription(rec.Name), rec.Write)
		case calls.KindCancel:
			for uri, s := range r.subs {
				if rec.Name == mcp.Listen && string(jsonrpc.IntID(s.write)) == string(rec.ID) {
					forget = append(forget, r.dropSubscription(uri))
				}
			}
		}
	}
	return forget
}

// forget drops the records of writes that are not needed any more; 0 stands for none.
func (r *Requests) forget(writes ...int64) {
	needless := writes[:0]
	for _, write := range writes {
		if write > 0 {
			needless = append(needless, write)
		}
	}
	if len(needless) > 0 {
		r.p.Forget(needless...)
	}
}

// wanted returns the URIs of which the process should notify. [ofLists] is one of them if a
// modern process notifies of changes of its lists.
func (r *Requests) wanted() map[string]struct{} {
	r.mu.Lock()
	modern, about := r.modern, r.about
	r.mu.Unlock()
	uris := map[string]struct{}{}
	if listing.Subscribable(about) {
		uris = r.p.URIs()
	}
	if modern && len(NotifiedLists(about)) > 0 {
		uris[ofLists] = struct{}{}
	}
	return uris
}
