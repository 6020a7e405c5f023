package daemon

import (
	"context"

	"holdline/daemon/consult"
	"holdline/daemon/supervisor"
	"holdline/daemon/telemetry"
	"holdline/protocol/process"
)

// starter starts workers for consults, and reports their states to telemetry.
type starter struct {
	workers *supervisor.Supervisor
	t       *telemetry.Recorder
}

// Start starts a worker for a consult.
func (s starter) Start(ctx context.Context, dir string, spec process.Spec, env []string) (consult.Process, error) {
	s.t.WorkerStarting(spec.ID, 0) // which generation it is, is known once it runs
	w, err := s.workers.Start(ctx, dir, spec, env)
	if err != nil {
		s.t.WorkerEnded(spec.ID)
		return nil, err
	}
	s.t.WorkerStarting(spec.ID, w.Generation())
	s.t.WorkerReady(spec.ID)
	return watched{w, s.t}, nil
}

// Attach adopts the worker of a consult that an earlier daemon has started. It also
// returns the number of the last write that the worker knows.
func (s starter) Attach(ctx context.Context, dir string, afterSeq int64) (consult.Process, int64, error) {
	w, err := s.workers.Attach(ctx, dir, afterSeq)
	if err != nil {
		return nil, 0, err
	}
	s.t.WorkerStarting(w.ID(), w.Generation())
	s.t.WorkerReady(w.ID())
	return watched{w, s.t}, w.LastWrite(), nil
}

// watched is a worker whose end is reported to telemetry.
type watched struct {
	*supervisor.Worker
	t *telemetry.Recorder
}

// Close closes the connection to the worker, which telemetry then no longer shows.
func (w watched) Close() {
	w.Worker.Close()
	w.t.WorkerEnded(w.ID())
}
