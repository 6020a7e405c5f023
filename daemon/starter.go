package daemon

import (
	"context"

	"holdline/daemon/consult"
	"holdline/daemon/supervisor"
	"holdline/daemon/telemetry"
	"holdline/protocol/process"
)

// starter starts workers and tells telemetry how they fare.
type starter struct {
	consult.Starter
	workers *supervisor.Supervisor
	t       *telemetry.Recorder
}

func (s starter) Start(ctx context.Context, dir string, spec process.Spec, env []string) (consult.Process, error) {
	s.t.WorkerStarting(spec.ID, 0) // which generation it is, is known once it runs
	p, err := s.Starter.Start(ctx, dir, spec, env)
	if err != nil {
		s.t.WorkerEnded(spec.ID)
		return nil, err
	}
	s.t.WorkerStarting(spec.ID, s.workers.Generation())
	s.t.WorkerReady(spec.ID)
	return watched{p, spec.ID, s.t}, nil
}

// watched is a worker whose end is told.
type watched struct {
	consult.Process
	id string
	t  *telemetry.Recorder
}

func (w watched) Release() {
	w.Process.Release()
	w.t.WorkerEnded(w.id)
}
