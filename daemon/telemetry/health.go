package telemetry

import (
	"fmt"
	"strings"
	"time"

	"holdline/protocol/fault"
)

// Parts are counts that others know.
type Parts struct {
	Sessions int // connected or kept for their clients
	Servers  int // hosted
	Unwell   []Unwell
}

// Unwell is a hosted server that cannot be used now, or may not be.
type Unwell struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"` // what is wrong with it, for people
}

// Health is how well the daemon is at one moment. Its zero value is cold.
type Health struct {
	State               State
	Ready               bool // handshakes and Holdline's own tools can be served: a hosted server that fails is named in Parts
	Generation          int64
	Uptime              time.Duration
	ConsecutiveFailures int64
	RestartCount        int64
	Rollout             Rollout
	Refusal             *fault.Record // why the rollout is rejected; nil if it is not
	LastFault           *fault.Record // nil if the last work succeeded
	WorkerAlive         bool          // false only while one that should run does not
	LaunchPathStable    bool
	Daemon              Daemon
	Parts               Parts
	Workers             int // that run or start
	Log                 LogHealth
}

// HealthConcise is a [Health] in concise detail.
type HealthConcise struct {
	Ready            bool  `json:"ready"`
	WorkerGeneration int64 `json:"worker_generation"`
	WorkerAlive      bool  `json:"worker_alive"`
	RolloutPending   bool  `json:"rollout_pending"`
	LaunchPathStable bool  `json:"launch_path_stable"`

	Unwell []Unwell `json:"unwell,omitempty"`
}

// HealthFull is a [Health] in full detail.
type HealthFull struct {
	Health           HealthBody `json:"health"`
	WorkerAlive      bool       `json:"worker_alive"`
	LaunchPathStable bool       `json:"launch_path_stable"`
	Daemon           Daemon     `json:"daemon"`
	Sessions         int        `json:"sessions"`
	Workers          int        `json:"workers"`
	Servers          int        `json:"servers"`
	Unwell           []Unwell   `json:"unwell,omitempty"`
	TelemetryLog     LogHealth  `json:"telemetry_log"`
}

// HealthBody is the inner object of a [HealthFull].
type HealthBody struct {
	State               State         `json:"state"`
	Generation          int64         `json:"generation"`
	UptimeMS            int64         `json:"uptime_ms"`
	ConsecutiveFailures int64         `json:"consecutive_failures"`
	RestartCount        int64         `json:"restart_count"`
	Rollout             Rollout       `json:"rollout"`
	LastFault           *fault.Record `json:"last_fault"`
}

// Health is how things are now.
func (r *Recorder) Health(p Parts) Health {
	log := r.log.health()
	r.mu.Lock()
	defer r.mu.Unlock()
	h := Health{
		Generation: r.generation, Uptime: time.Since(r.begin),
		ConsecutiveFailures: r.consecutive, RestartCount: r.restarts, Rollout: r.rollout, Refusal: r.refusal, LastFault: r.lastFault,
		WorkerAlive: true, LaunchPathStable: r.stable,
		Daemon: r.o.Daemon, Parts: p, Log: log,
	}
	if h.LastFault == nil {
		h.LastFault = r.refusal // calls that succeed do not mend it
	}
	for _, w := range r.workers {
		if w.lost {
			h.WorkerAlive = false
		} else {
			h.Workers++
		}
	}
	h.State = r.state()
	h.Ready = r.serving && !r.faulty && r.rollout != Reloading
	return h
}

// state is the worst of the parts; mu is held. Work that ended in a transport
// fault makes it recovering until other work succeeds or the worker is back.
func (r *Recorder) state() State {
	worst := Cold
	if r.faulty || r.rollout == Reloading {
		worst = Recovering
	}
	for _, w := range r.workers {
		if w.state.rank() > worst.rank() {
			worst = w.state
		}
	}
	return worst
}

func (s State) rank() int {
	switch s {
	case Recovering:
		return 3
	case Starting:
		return 2
	case Ready:
		return 1
	case Cold:
	}
	return 0
}

// Concise is h in concise detail.
func (h Health) Concise() HealthConcise {
	return HealthConcise{
		Ready: h.Ready, WorkerGeneration: h.Generation, WorkerAlive: h.WorkerAlive,
		RolloutPending: h.Rollout == Pending || h.Rollout == Reloading, LaunchPathStable: h.LaunchPathStable,
		Unwell: h.Parts.Unwell,
	}
}

// Full is h in full detail.
func (h Health) Full() HealthFull {
	return HealthFull{
		Health: HealthBody{
			State: h.State, Generation: h.Generation, UptimeMS: h.Uptime.Milliseconds(),
			ConsecutiveFailures: h.ConsecutiveFailures, RestartCount: h.RestartCount,
			Rollout: h.Rollout, LastFault: h.LastFault,
		},
		WorkerAlive: h.WorkerAlive, LaunchPathStable: h.LaunchPathStable, Daemon: h.Daemon,
		Sessions: h.Parts.Sessions, Workers: h.Workers, Servers: h.Parts.Servers, Unwell: h.Parts.Unwell, TelemetryLog: h.Log,
	}
}

// Text is h for a model to read: one line, and more of them in full detail.
func (h Health) Text(full bool) string {
	var b strings.Builder
	if !h.Ready {
		b.WriteString("not-")
	}
	fmt.Fprintf(&b, "ready gen=%d", h.Generation)
	if h.LastFault != nil {
		fmt.Fprintf(&b, " last_fault=%s", h.LastFault.Fault.Code)
	}
	b.WriteString(" worker=")
	if h.WorkerAlive {
		b.WriteString("alive")
	} else {
		b.WriteString("dead")
	}
	if h.Rollout != Stable {
		fmt.Fprintf(&b, " rollout=%s", h.Rollout)
	}
	if !h.LaunchPathStable {
		b.WriteString(" launch_path=unstable")
	}
	for i, one := range h.Parts.Unwell {
		sep := ","
		if i == 0 {
			sep = " unwell="
		}
		fmt.Fprintf(&b, "%s%s:%s", sep, oneLine(one.Name, maxField), one.State)
	}
	if !full {
		return b.String()
	}
	fmt.Fprintf(&b, "\nstate=%s uptime=%s consecutive_failures=%d restarts=%d rollout=%s",
		h.State, h.Uptime.Round(time.Second), h.ConsecutiveFailures, h.RestartCount, h.Rollout)
	fmt.Fprintf(&b, "\ndaemon pid=%d version=%s epoch=%d", h.Daemon.PID, h.Daemon.Version, h.Daemon.Epoch)
	fmt.Fprintf(&b, "\nsessions=%d workers=%d servers=%d", h.Parts.Sessions, h.Workers, h.Parts.Servers)
	for _, one := range h.Parts.Unwell {
		fmt.Fprintf(&b, "\nserver %s: %s: %s", oneLine(one.Name, maxField), one.State, oneLine(one.Detail, 240))
	}
	if f := h.LastFault; f != nil {
		fmt.Fprintf(&b, "\nlast fault: %s in %s: %s", f.Fault.Code, oneLine(f.Operation, maxField), oneLine(f.Fault.Detail, 240))
	}
	if h.Log.Failed > 0 {
		fmt.Fprintf(&b, "\ntelemetry log: %d lines lost", h.Log.Failed)
		if h.Log.LastError != "" {
			fmt.Fprintf(&b, ", failing now: %s", oneLine(h.Log.LastError, 240))
		}
	}
	return b.String()
}

// oneLine is s without line breaks, cut to limit bytes.
func oneLine(s string, limit int) string {
	return bounded(strings.Join(strings.Fields(s), " "), limit)
}
