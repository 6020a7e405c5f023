package hosted

import (
	"context"
	"math/rand/v2"

	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/listing"
	"holdline/daemon/policy"
	"holdline/daemon/tool"
)

// Limits of the calls that wait for a process of a server.
const (
	maxWaiting     = 1024
	maxWaitingEach = 256 // of one session
)

// guards protect an instance, and its callers. restarts ejects a server that fails
// too often.
type guards struct {
	restarts *policy.Restarts
	dispatch.Guards
}

func newGuards(spec *Spec) guards {
	return guards{
		restarts: policy.NewRestarts(spec.MaxRestarts, spec.RestartWindow, rand.Float64),
		Guards: dispatch.Guards{
			Breaker: policy.NewBreaker(spec.Name, spec.CircuitThreshold, spec.CircuitReset),
			Gate:    policy.NewGate(gateOf(spec)),
		},
	}
}

func gateOf(spec *Spec) policy.GateOptions {
	return policy.GateOptions{
		Server: spec.Name, InFlight: spec.MaxConcurrent, Queue: maxWaiting,
		PerSession: maxWaitingEach,
	}
}

// Handle makes a call of an offer. The server that is configured under the
// offer's name now gets it.
func (m *Manager) Handle(ctx context.Context, o *listing.Offer, rc *tool.RemoteCall) (tool.RemoteResult, error) {
	s, err := m.lookup(o.Remote.Server)
	if err != nil {
		return tool.RemoteResult{}, err
	}
	return m.calls.Handle(ctx, s, o, rc)
}

// Guards returns the guards of the instance that a caller uses.
func (s *server) Guards(c *tool.Caller) (dispatch.Guards, error) {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	inst, err := s.useLocked(c)
	if err != nil {
		return dispatch.Guards{}, err
	}
	return inst.guards.Guards, nil
}

// follow takes over changed limits. A guard whose limits have changed starts without
// its history.
func (g *guards) follow(was, is *Spec) {
	fresh := newGuards(is)
	if was.MaxRestarts != is.MaxRestarts || was.RestartWindow != is.RestartWindow {
		g.restarts = fresh.restarts
	}
	if was.CircuitThreshold != is.CircuitThreshold || was.CircuitReset != is.CircuitReset {
		g.Breaker = fresh.Breaker
	}
	g.Gate.Resize(gateOf(is))
}

// A server is the [dispatch.Server] of its calls.
var _ dispatch.Server = (*server)(nil)

// Name returns the name of the server.
func (s *server) Name() string { return s.spec.Name }

// Limits returns the present limits of the server's calls.
func (s *server) Limits() dispatch.Limits {
	spec := s.now()
	return dispatch.Limits{
		Timeout: spec.Timeout, MaxTimeout: spec.MaxTimeout, StartTimeout: spec.StartTimeout, Remote: spec.Remote,
	}
}

// Scope names those that share a process with a caller: a project or a session, or all.
func (s *server) Scope(c *tool.Caller) string { return s.instanceKey(c).of }
