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
	Ready   bool          `json:"-"`
	Refusal *fault.Record `json:"-"` // why the rollout is rejected; nil if it is not
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
		Ready:   r.serving && !r.faulty && r.rollout != Reloading,
		Refusal: r.refusal,
	}
	for _, state := range r.workers {
		if state == Recovering {
			h.WorkerAlive = false
		} else {
			h.Workers++
		}
	}
	return h
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

// Text returns h for people and models: one line of sentences, and with full more lines of
// details.
func (h Health) Text(full bool) string {
	var b strings.Builder
	b.WriteString(h.sentences())
	if !full {
		return b.String()
	}
	fmt.Fprintf(&b, "\nstate=%s generation=%d uptime=%s consecutive_failures=%d restarts=%d rollout=%s",
		h.State, h.Generation, (time.Duration(h.UptimeMS) * time.Millisecond).Round(time.Second), h.ConsecutiveFailures,
		h.RestartCount, h.Rollout)
	fmt.Fprintf(&b, "\ndaemon pid=%d version=%s epoch=%d", h.Daemon.PID, h.Daemon.Version, h.Daemon.Epoch)
	fmt.Fprintf(&b, "\nsessions=%d workers=%d servers=%d", h.Sessions, h.Workers, h.Servers)
	for _, one := range h.Unwell {
		fmt.Fprintf(&b, "\nserver %s: %s: %s", fault.Short(one.Name, maxField), one.State, fault.Short(one.Detail, 240))
	}
	writeFault(&b, h.LastFault)
	if h.TelemetryLog.Failed > 0 {
		fmt.Fprintf(&b, "\ntelemetry log: %d lines lost", h.TelemetryLog.Failed)
		if h.TelemetryLog.LastError != "" {
			fmt.Fprintf(&b, ", failing now: %s", fault.Short(h.TelemetryLog.LastError, 240))
		}
	}
	return b.String()
}

// sentences returns in one line whether the daemon is ready, how its servers are, what failed
// last, and what else is out of the ordinary.
func (h Health) sentences() string {
	all := []string{"Ready."}
	if !h.Ready {
		all[0] = "Not ready."
	}
	var servers, faults string
	var down []string
	for _, one := range h.Unwell {
		down = append(down, fmt.Sprintf("%s (%s)", fault.Short(one.Name, maxField), one.State))
	}
	switch up := h.Servers - len(down); {
	case len(down) > 0:
		servers = fmt.Sprintf("%d of %d servers up; not: %s", max(up, 0), h.Servers, strings.Join(down, ", "))
	case up == 1:
		servers = "1 server up"
	default:
		servers = fmt.Sprintf("%d servers up", up)
	}
	if faults = "no recent faults"; h.LastFault != nil {
		faults = "last fault " + string(h.LastFault.Fault.Code)
	}
	all = append(all, servers+", "+faults+".")
	if !h.WorkerAlive {
		all = append(all, "A process that was lost is being replaced.")
	}
	if h.Rollout != Stable {
		all = append(all, fmt.Sprintf("Upgrade: %s.", h.Rollout))
	}
	if !h.LaunchPathStable {
		all = append(all, "Holdline's program is in a place that may vanish.")
	}
	return strings.Join(all, " ")
}
