package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdline/daemon/waiting"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// terminateMargin is how much longer than its two grace periods a worker may
// take to end its child.
const terminateMargin = 10 * time.Second

// errOverdue is the reason for killing a worker that does not end its child in time.
var errOverdue = errors.New("it did not end its program in time")

// Terminate ends the child and all that came from it: it closes stdin, sends
// SIGTERM after grace and SIGKILL after grace again. It returns when all are
// gone, with the child's exit. It works whatever the child does, and even if no event is
// received. A child for which its spec wants more time gets that. A worker that hangs is
// killed itself after [terminateMargin]. A second call can only shorten the time.
func (w *Worker) Terminate(ctx context.Context, grace time.Duration) (process.Exit, error) {
	grace = max(grace, w.spec.EndGrace())
	w.mu.Lock()
	if !waiting.IsClosed(w.gone) {
		w.moveLocked(Stopping)
	}
	w.mu.Unlock()
	late := time.AfterFunc(2*grace+terminateMargin, w.killOverdue)
	defer late.Stop()
	var exit process.Exit
	err := w.call(ctx, workerwire.Terminate, workerwire.TerminateParams{GraceMS: grace.Milliseconds()}, &exit)
	if errors.Is(err, errGone) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed > 0 || w.lost != nil {
			return w.exitLocked(), nil
		}
	}
	return exit, err
}

// killOverdue breaks the connection to a worker that has not ended its child in
// time. Instead of connecting again the daemon then kills the worker.
func (w *Worker) killOverdue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.killedBy == nil {
		w.killedBy = errOverdue
	}
	if w.c != nil {
		w.c.closeConn()
	}
}

// errGone is returned by call when the worker is over or was detached.
var errGone = errors.New("the worker is gone")

// call makes a request, and repeats it on the next connection as long as connections break.
// Use it only for requests that do no harm if the worker handles them twice.
func (w *Worker) call(ctx context.Context, kind workerwire.Kind, params, result any) error {
	for {
		if err := w.callOnce(ctx, kind, params, result); !errors.Is(err, errLost) {
			return err
		}
	}
}

// callOnce makes a request on the connection there is, or on the next one. params and
// result may be nil.
func (w *Worker) callOnce(ctx context.Context, kind workerwire.Kind, params, result any) error {
	c, err := w.connected(ctx)
	if err != nil {
		return fmt.Errorf("request to worker: %w", err)
	}
	request := workerwire.Frame{Kind: kind}
	if params != nil {
		request.Body = jsonrpc.Encode(params)
	}
	ch, err := c.request(request)
	if err != nil {
		return fmt.Errorf("request to worker: %w", w.reconnected(ctx, c))
	}
	w.readOn()
	select {
	case f, ok := <-ch:
		if !ok {
			return fmt.Errorf("request to worker: %w", w.reconnected(ctx, c))
		}
		return f.Decode(result)
	case <-ctx.Done():
		return fmt.Errorf("request to worker: %w", context.Cause(ctx))
	}
}

// readOn has the goroutine that receives read on, although events wait: a request was sent, and
// its answer stands behind them.
func (w *Worker) readOn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed.Broadcast()
}

// reconnected waits until the broken connection c is not the current one any more,
// and returns errLost so that the request is made again, or why it cannot be.
func (w *Worker) reconnected(ctx context.Context, c *client) error {
	if err := w.wait(ctx, time.Time{}, func() bool { return w.c != c }); err != nil {
		return err
	}
	return errLost
}

// connected blocks until there is a connection, and returns it.
func (w *Worker) connected(ctx context.Context) (*client, error) {
	var c *client
	err := w.wait(ctx, time.Time{}, func() bool { c = w.c; return c != nil })
	return c, err
}

// wait blocks until cond, which it calls with w.mu held, returns true. It returns errGone
// once the worker is over or detached, and the cause of ctx once that is done, or has waited
// until the time until, if that is not zero.
func (w *Worker) wait(ctx context.Context, until time.Time, cond func() bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cond() { // the common case needs no goroutine for ctx
		return nil
	}
	ctx, cancel := withUntil(ctx, until)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed.Broadcast()
	})
	defer stop()
	for !cond() {
		if waiting.IsClosed(w.gone) {
			return errGone
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.changed.Wait()
	}
	return nil
}
