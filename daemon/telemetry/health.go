package telemetry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdline/protocol/fault"
)

// Parts are figures that other parts of the daemon know and pass to [Recorder.Health].
type Parts struct {
	Sessions int // connected or kept for their clients
	Servers  int // hosted
	Unwell   []Unwell
}

// Unwell is a hosted server that cannot be used at the moment, or must not be used.
type Unwell struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"` // what is wrong with it, for people
}

// Health is the state of the daemon at one moment.
type Health struct {
	HealthBody `json:"health"`

	WorkerAlive      bool      `json:"worker_alive"` // false only while one that should run does not
	LaunchPathStable bool      `json:"launch_path_stable"`
	Daemon           Daemon    `json:"daemon"`
	Sessions         int       `json:"sessions"`
	Workers          int       `json:"workers"` // that run or start
	Servers          int       `json:"servers"`
	Unwell           []Unwell  `json:"unwell,omitempty"`
	TelemetryLog     LogHealth `json:"telemetry_log"`

	// Ready reports whether handshakes and Holdline's own tools can be served. A hosted
	// server that fails is listed as unwell instead.
	Ready    bool          `json:"-"`
	NotReady string        `json:"-"` // why, for people; "" if it is ready
	Refusal  *fault.Record `json:"-"` // why the rollout is rejected; nil if it is not

	// The state of the whole daemon, for people: whether all is well, and what is not.
	// The caller of [Recorder.Health] sets them.
	Verdict  string   `json:"-"`
	Troubles []string `json:"-"`

	program string // path of the program
}

// HealthBody is the inner object of a [Health].
type HealthBody struct {
	State               State         `json:"state"`
	Generation          int64         `json:"generation"`
	UptimeMS            int64         `json:"uptime_ms"`
	ConsecutiveFailures int64         `json:"consecutive_failures"`
	RestartCount        int64         `json:"restart_count"`
	Rollout             Rollout       `json:"rollout"`
	LastFault           *fault.Record `json:"last_fault"` // nil if the last work succeeded
}

// HealthConcise is a [Health] with few details.
type HealthConcise struct {
	Ready            bool  `json:"ready"`
	WorkerGeneration int64 `json:"worker_generation"`
	WorkerAlive      bool  `json:"worker_alive"`
	RolloutPending   bool  `json:"rollout_pending"`
	LaunchPathStable bool  `json:"launch_path_stable"`

	Unwell []Unwell `json:"unwell,omitempty"`
}

// Health returns the state of the daemon now. It writes the lines of the call log that
// wait, so that a failure of the log shows at once; it may therefore take as long as a
// write.
func (r *Recorder) Health(p Parts) Health {
	log := r.log.Health()
	r.mu.Lock()
	defer r.mu.Unlock()
	h := Health{
		HealthBody: HealthBody{
			State: r.state(), Generation: r.generation, UptimeMS: time.Since(r.begin).Milliseconds(),
			ConsecutiveFailures: r.consecutive, RestartCount: r.restarts, Rollout: r.rollout,
			LastFault: cmp.Or(r.lastFault, r.refusal), // calls that succeed do not fix a rollout
		},
		WorkerAlive: true, LaunchPathStable: r.stable, Daemon: r.o.Daemon,
		Sessions: p.Sessions, Servers: p.Servers, Unwell: p.Unwell, TelemetryLog: log,
		NotReady: r.notReady(), Refusal: r.refusal, program: r.o.Executable,
	}
	h.Ready = h.NotReady == ""
	for _, state := range r.workers {
		if state == Recovering {
			h.WorkerAlive = false
		} else {
			h.Workers++
		}
	}
	return h
}

// notReady returns why handshakes and Holdline's own tools cannot be served, or not surely; "" if
// they can. The caller must hold mu.
func (r *Recorder) notReady() string {
	switch {
	case !r.serving:
		return "the daemon is starting or stopping"
	case r.rollout == Reloading:
		return "a newer program takes over"
	case r.faulty && r.lastFault != nil:
		return "the last request failed: " + fault.Short(r.lastFault.Fault.Detail, 240)
	case r.faulty:
		return "the last request failed"
	}
	return ""
}

// state returns the worst state of all parts. A transport fault of some work makes the
// daemon recovering until other work succeeds or a lost worker is back. The caller must
// hold mu.
func (r *Recorder) state() State {
	worst := Cold
	if r.faulty || r.rollout == Reloading {
		worst = Recovering
	}
	for _, state := range r.workers {
		if slices.Index(byBadness, state) > slices.Index(byBadness, worst) {
			worst = state
		}
	}
	return worst
}

// Concise returns h with few details.
func (h Health) Concise() HealthConcise {
	return HealthConcise{
		Ready: h.Ready, WorkerGeneration: h.Generation, WorkerAlive: h.WorkerAlive,
		RolloutPending: h.Rollout == Pending || h.Rollout == Reloading, LaunchPathStable: h.LaunchPathStable,
		Unwell: h.Unwell,
	}
}

// Bounds of a text.
const (
	maxTroubles = 20  // lines
	maxTrouble  = 500 // bytes of a line
)

// Text returns h for people and models: one line of sentences, one for each trouble, and with
// full more lines of details.
func (h Health) Text(full bool) string {
	var b strings.Builder
	b.WriteString(h.line())
	for _, one := range h.Troubles[:min(len(h.Troubles), maxTroubles)] {
		b.WriteString("\n" + fault.Short(one, maxTrouble))
	}
	if !full {
		return b.String()
	}
	fmt.Fprintf(&b, "\nstate=%s generation=%d uptime=%s consecutive_failures=%d restarts=%d rollout=%s",
		h.State, h.Generation, (time.Duration(h.UptimeMS) * time.Millisecond).Round(time.Second), h.ConsecutiveFailures,
		h.RestartCount, h.Rollout)
	fmt.Fprintf(&b, "\ndaemon pid=%d version=%s epoch=%d", h.Daemon.PID, h.Daemon.Version, h.Daemon.Epoch)
	fmt.Fprintf(&b, "\nsessions=%d workers=%d servers=%d", h.Sessions, h.Workers, h.Servers)
	writeFault(&b, h.LastFault)
	if h.TelemetryLog.Failed > 0 {
		fmt.Fprintf(&b, "\ntelemetry log: %d lines lost", h.TelemetryLog.Failed)
		if h.TelemetryLog.LastError != "" {
			fmt.Fprintf(&b, ", failing now: %s", fault.Short(h.TelemetryLog.LastError, 240))
		}
	}
	return b.String()
}

// line returns in one line whether all is well, and what else is out of the ordinary.
func (h Health) line() string {
	all := []string{h.Verdict}
	if !h.WorkerAlive {
		all = append(all, "A process that was lost is being replaced.")
	}
	if h.Rollout != Stable {
		all = append(all, fmt.Sprintf("Upgrade: %s.", h.Rollout))
	}
	if !h.LaunchPathStable {
		all = append(all, fmt.Sprintf("Holdline's program %s is where builds and temporary files are removed; "+
			"to put a copy in a lasting place: holdline install --bin.", h.program))
	}
	return strings.Join(all, " ")
}
