package telemetry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// Bounds of the rows in snapshots.
const (
	hotMethods  = 6
	hotSessions = 12
)

// Snapshot is all that was counted since the daemon started.
type Snapshot struct {
	Telemetry    Body            `json:"telemetry"`
	HostRollouts int64           `json:"host_rollouts"`
	Cache        CacheCounts     `json:"cache"`
	Sessions     []SessionCounts `json:"sessions"`   // the busiest
	Identities   []SessionCounts `json:"identities"` // the busiest
}

// Body is the inner object of a [Snapshot].
type Body struct {
	UptimeMS            int64         `json:"uptime_ms"`
	State               State         `json:"state"`
	Generation          int64         `json:"generation"`
	ConsecutiveFailures int64         `json:"consecutive_failures"`
	RestartCount        int64         `json:"restart_count"`
	Totals              Totals        `json:"totals"`
	Methods             []Method      `json:"methods"` // by requests, transport faults, response errors, name
	LastFault           *fault.Record `json:"last_fault"`
}

// Method is [Totals] of one operation, and its latencies in milliseconds.
type Method struct {
	Method string `json:"method"`           // see [Operation.String]
	Server string `json:"server,omitempty"` // hosted server
	Tool   string `json:"tool,omitempty"`   // the server's own name
	Totals

	LastLatencyMS int64 `json:"last_latency_ms"`
	MaxLatencyMS  int64 `json:"max_latency_ms"`
	AvgLatencyMS  int64 `json:"avg_latency_ms"`
	// LastError is the code of the last request; nil if it was a success.
	LastError *fault.Code `json:"last_error"`
}

// CacheCounts counts looks into the cache of answers.
type CacheCounts struct {
	Hits   int64 `json:"hits"`
	Misses int64 `json:"misses"`
}

// SessionCounts counts the tool calls of a session or an identity.
type SessionCounts struct {
	Session  int64  `json:"session,omitempty"` // number that people see
	Identity string `json:"identity"`
	Client   string `json:"client,omitempty"`
	Calls    int64  `json:"calls"`
	Failures
	Percentiles
}

// Concise is a [Snapshot] with few details.
type Concise struct {
	Requests  int64 `json:"requests"`
	Successes int64 `json:"successes"`
	Failures
	WorkerRestarts int64       `json:"worker_restarts"`
	HostRollouts   int64       `json:"host_rollouts"`
	HotMethods     []HotMethod `json:"hot_methods"`
}

// HotMethod is one of the operations with the most requests.
type HotMethod struct {
	Method   string `json:"method"`
	Requests int64  `json:"requests"`
	Failures
}

// Snapshot returns all that was counted so far, with the busiest operations, sessions
// and identities first, and what the cache of answers has counted. It shares no memory
// with the recorder.
func (r *Recorder) Snapshot(cache CacheCounts) Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Snapshot{
		Telemetry: Body{
			UptimeMS: time.Since(r.begin).Milliseconds(), State: r.state(), Generation: r.generation,
			ConsecutiveFailures: r.consecutive, RestartCount: r.restarts, LastFault: r.lastFault,
			Totals:  r.totals.totals(),
			Methods: make([]Method, 0, len(r.operations)),
		},
		HostRollouts: r.o.Rollouts,
		Cache:        cache,
		Sessions:     make([]SessionCounts, 0, len(r.sessions)),
		Identities:   make([]SessionCounts, 0, len(r.identities)),
	}
	for op, c := range r.operations {
		s.Telemetry.Methods = append(s.Telemetry.Methods, method(op, c))
	}
	slices.SortFunc(s.Telemetry.Methods, func(a, b Method) int {
		return cmp.Or(
			cmp.Compare(b.RequestCount, a.RequestCount),
			cmp.Compare(b.TransportFaultCount, a.TransportFaultCount),
			cmp.Compare(b.ResponseErrorCount, a.ResponseErrorCount),
			cmp.Compare(a.Method, b.Method),
		)
	})
	for _, one := range r.sessions {
		row := callerCounts(one.identity, &one.counts)
		row.Session, row.Client = one.number, one.client
		s.Sessions = append(s.Sessions, row)
	}
	for name, c := range r.identities {
		s.Identities = append(s.Identities, callerCounts(name, c))
	}
	s.Sessions, s.Identities = busiest(s.Sessions), busiest(s.Identities)
	return s
}

// Loads returns what was counted of the tool calls of each hosted server, by its name.
func (r *Recorder) Loads() map[string]control.Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := map[string]*counts{}
	for op, c := range r.operations {
		if op.Server == "" || op.Method != toolsCall {
			continue
		}
		if sums[op.Server] == nil {
			sums[op.Server] = &counts{}
		}
		sums[op.Server].merge(c)
	}
	loads := map[string]control.Load{}
	for server, c := range sums {
		loads[server] = control.Load{
			Calls: c.total.RequestCount, Errors: c.total.RequestCount - c.total.SuccessCount,
			P50MS: ms(c.percentile(.5)),
		}
	}
	return loads
}

// method returns the row of an operation. It copies the error's code, which later
// requests change.
func method(op Operation, c *counts) Method {
	m := Method{
		Method: op.String(), Server: op.Server, Tool: op.Tool, Totals: c.totals(),
		LastLatencyMS: c.last.Milliseconds(), MaxLatencyMS: c.longest.Milliseconds(),
		AvgLatencyMS: c.average().Milliseconds(),
	}
	if c.lastError != "" {
		code := c.lastError // which later requests change
		m.LastError = &code
	}
	return m
}

// callerCounts returns the row of a session or an identity.
func callerCounts(identity string, c *counts) SessionCounts {
	t := c.totals()
	return SessionCounts{
		Identity: identity, Calls: t.RequestCount, Failures: t.failures(), Percentiles: t.Percentiles,
	}
}

// busiest returns the [hotSessions] rows with the most calls, sorted. It sorts rows in
// place.
func busiest(rows []SessionCounts) []SessionCounts {
	slices.SortFunc(rows, func(a, b SessionCounts) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Identity, b.Identity),
			cmp.Compare(a.Session, b.Session))
	})
	return slices.Clip(rows[:min(len(rows), hotSessions)])
}

// Concise returns s with few details.
func (s Snapshot) Concise() Concise {
	t := s.Telemetry
	c := Concise{
		Requests: t.Totals.RequestCount, Successes: t.Totals.SuccessCount, Failures: t.Totals.failures(),
		WorkerRestarts: t.RestartCount, HostRollouts: s.HostRollouts, HotMethods: make([]HotMethod, 0, hotMethods),
	}
	for _, m := range t.Methods[:min(len(t.Methods), hotMethods)] {
		c.HotMethods = append(c.HotMethods, HotMethod{m.Method, m.RequestCount, m.failures()})
	}
	return c
}

// textMethods and textSessions bound the rows of the full text.
const (
	textMethods  = 24
	textSessions = 6
)

// Text returns s for a model to read, with more rows and figures if full is true.
func (s Snapshot) Text(full bool) string {
	t := s.Telemetry
	var b strings.Builder
	fmt.Fprintf(&b, "requests=%d success=%d %s\n", t.Totals.RequestCount, t.Totals.SuccessCount,
		t.Totals.failures().outcomes())
	fmt.Fprintf(&b, "worker_restarts=%d host_rollouts=%d", t.RestartCount, s.HostRollouts)
	if full {
		fmt.Fprintf(&b, "\nstate=%s generation=%d uptime=%s consecutive_failures=%d", t.State, t.Generation,
			(time.Duration(t.UptimeMS) * time.Millisecond).Round(time.Second), t.ConsecutiveFailures)
		fmt.Fprintf(&b, "\n%s cache_hits=%d cache_misses=%d", t.Totals.latencies(), s.Cache.Hits, s.Cache.Misses)
	}
	b.WriteString("\nhot methods:")
	if len(t.Methods) == 0 {
		b.WriteString(" none")
	}
	rows := hotMethods
	if full {
		rows = textMethods
	}
	for _, m := range t.Methods[:min(len(t.Methods), rows)] {
		fmt.Fprintf(&b, "\n%s requests=%d %s", m.Method, m.RequestCount, m.failures().outcomes())
		if full {
			fmt.Fprintf(&b, " last=%dms avg=%dms max=%dms %s", m.LastLatencyMS, m.AvgLatencyMS, m.MaxLatencyMS,
				m.latencies())
			if m.LastError != nil {
				fmt.Fprintf(&b, " last_error=%s", *m.LastError)
			}
		}
	}
	if !full {
		return b.String()
	}
	writeMore(&b, len(t.Methods)-rows)
	for i, one := range s.Sessions[:min(len(s.Sessions), textSessions)] {
		if i == 0 {
			b.WriteString("\nsessions:")
		}
		fmt.Fprintf(&b, "\n#%d %s calls=%d %s %s", one.Session, fault.Short(one.Identity, maxField), one.Calls,
			one.outcomes(), one.latencies())
	}
	writeMore(&b, len(s.Sessions)-textSessions)
	writeFault(&b, t.LastFault)
	return b.String()
}

// writeMore writes how many rows are left out, if left is above 0.
func writeMore(b *strings.Builder, left int) {
	if left > 0 {
		fmt.Fprintf(b, "\n+%d more", left)
	}
}

// writeFault writes the last fault, if there is one.
func writeFault(b *strings.Builder, f *fault.Record) {
	if f != nil {
		fmt.Fprintf(b, "\nlast fault: %s in %s: %s",
			f.Fault.Code, fault.Short(f.Operation, maxField), fault.Short(f.Fault.Detail, 240))
	}
}
