package telemetry

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"holdline/protocol/fault"
)

// How many rows snapshots show.
const (
	hotMethods  = 6
	hotSessions = 12
)

// Snapshot is what was counted so far.
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

// Totals counts requests. Every request is a success, a response error or a
// transport fault. Percentiles are milliseconds.
type Totals struct {
	RequestCount        int64   `json:"request_count"`
	SuccessCount        int64   `json:"success_count"`
	ResponseErrorCount  int64   `json:"response_error_count"`
	TransportFaultCount int64   `json:"transport_fault_count"`
	RetryCount          int64   `json:"retry_count"`
	P50                 float64 `json:"p50_ms"`
	P95                 float64 `json:"p95_ms"`
	P99                 float64 `json:"p99_ms"`
}

// Method is [Totals] of one operation, and its latencies in milliseconds.
type Method struct {
	Method              string  `json:"method"`           // see [Operation.String]
	Server              string  `json:"server,omitempty"` // hosted server
	Tool                string  `json:"tool,omitempty"`   // the server's own name
	RequestCount        int64   `json:"request_count"`
	SuccessCount        int64   `json:"success_count"`
	ResponseErrorCount  int64   `json:"response_error_count"`
	TransportFaultCount int64   `json:"transport_fault_count"`
	RetryCount          int64   `json:"retry_count"`
	LastLatencyMS       int64   `json:"last_latency_ms"`
	MaxLatencyMS        int64   `json:"max_latency_ms"`
	AvgLatencyMS        int64   `json:"avg_latency_ms"`
	P50                 float64 `json:"p50_ms"`
	P95                 float64 `json:"p95_ms"`
	P99                 float64 `json:"p99_ms"`
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
	Session         int64   `json:"session,omitempty"` // number that people see
	Identity        string  `json:"identity"`
	Client          string  `json:"client,omitempty"`
	Calls           int64   `json:"calls"`
	ResponseErrors  int64   `json:"response_errors"`
	TransportFaults int64   `json:"transport_faults"`
	Retries         int64   `json:"retries"`
	P50             float64 `json:"p50_ms"`
	P95             float64 `json:"p95_ms"`
	P99             float64 `json:"p99_ms"`
}

// Concise is a [Snapshot] in concise detail.
type Concise struct {
	Requests        int64       `json:"requests"`
	Successes       int64       `json:"successes"`
	ResponseErrors  int64       `json:"response_errors"`
	TransportFaults int64       `json:"transport_faults"`
	Retries         int64       `json:"retries"`
	WorkerRestarts  int64       `json:"worker_restarts"`
	HostRollouts    int64       `json:"host_rollouts"`
	HotMethods      []HotMethod `json:"hot_methods"`
}

// HotMethod is one of the busiest operations.
type HotMethod struct {
	Method          string `json:"method"`
	Requests        int64  `json:"requests"`
	ResponseErrors  int64  `json:"response_errors"`
	TransportFaults int64  `json:"transport_faults"`
	Retries         int64  `json:"retries"`
}

// Snapshot is what was counted so far.
func (r *Recorder) Snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Snapshot{
		Telemetry: Body{
			UptimeMS: time.Since(r.begin).Milliseconds(), State: r.state(), Generation: r.generation,
			ConsecutiveFailures: r.consecutive, RestartCount: r.restarts, LastFault: r.lastFault,
			Totals: Totals{
				RequestCount: r.totals.requests, SuccessCount: r.totals.successes,
				ResponseErrorCount: r.totals.errors, TransportFaultCount: r.totals.transport,
				RetryCount: r.totals.retries,
				P50:        ms(r.totals.percentile(.5)), P95: ms(r.totals.percentile(.95)), P99: ms(r.totals.percentile(.99)),
			},
			Methods: make([]Method, 0, len(r.operations)),
		},
		HostRollouts: r.rollouts,
		Cache:        CacheCounts{r.hits, r.misses},
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
		row := calls(one.identity, &one.counts)
		row.Session, row.Client = one.number, one.client
		s.Sessions = append(s.Sessions, row)
	}
	for name, c := range r.identities {
		s.Identities = append(s.Identities, calls(name, c))
	}
	s.Sessions, s.Identities = busiest(s.Sessions), busiest(s.Identities)
	return s
}

func method(op Operation, c *counts) Method {
	m := Method{
		Method: op.String(), Server: op.Server, Tool: op.Tool, RequestCount: c.requests, SuccessCount: c.successes,
		ResponseErrorCount: c.errors, TransportFaultCount: c.transport, RetryCount: c.retries,
		LastLatencyMS: c.last.Milliseconds(), MaxLatencyMS: c.longest.Milliseconds(), AvgLatencyMS: c.average().Milliseconds(),
		P50: ms(c.percentile(.5)), P95: ms(c.percentile(.95)), P99: ms(c.percentile(.99)),
	}
	if c.lastError != "" {
		code := c.lastError
		m.LastError = &code
	}
	return m
}

func calls(identity string, c *counts) SessionCounts {
	return SessionCounts{
		Identity: identity, Calls: c.requests, ResponseErrors: c.errors, TransportFaults: c.transport, Retries: c.retries,
		P50: ms(c.percentile(.5)), P95: ms(c.percentile(.95)), P99: ms(c.percentile(.99)),
	}
}

func busiest(rows []SessionCounts) []SessionCounts {
	slices.SortFunc(rows, func(a, b SessionCounts) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Session, b.Session))
	})
	return slices.Clip(rows[:min(len(rows), hotSessions)])
}

// ms is d in milliseconds, to the microsecond.
func ms(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}

// Concise is s in concise detail.
func (s Snapshot) Concise() Concise {
	t := s.Telemetry
	c := Concise{
		Requests: t.Totals.RequestCount, Successes: t.Totals.SuccessCount,
		ResponseErrors: t.Totals.ResponseErrorCount, TransportFaults: t.Totals.TransportFaultCount,
		Retries: t.Totals.RetryCount, WorkerRestarts: t.RestartCount, HostRollouts: s.HostRollouts,
		HotMethods: make([]HotMethod, 0, hotMethods),
	}
	for _, m := range t.Methods[:min(len(t.Methods), hotMethods)] {
		c.HotMethods = append(c.HotMethods, HotMethod{
			m.Method, m.RequestCount, m.ResponseErrorCount, m.TransportFaultCount, m.RetryCount,
		})
	}
	return c
}

// textMethods and textSessions bound the rows of the full text.
const (
	textMethods  = 24
	textSessions = 6
)

// Text is s for a model to read.
func (s Snapshot) Text(full bool) string {
	t := s.Telemetry
	var b strings.Builder
	fmt.Fprintf(&b, "requests=%d success=%d response_error=%d transport_fault=%d retry=%d\n",
		t.Totals.RequestCount, t.Totals.SuccessCount, t.Totals.ResponseErrorCount, t.Totals.TransportFaultCount, t.Totals.RetryCount)
	fmt.Fprintf(&b, "worker_restarts=%d host_rollouts=%d", t.RestartCount, s.HostRollouts)
	if full {
		fmt.Fprintf(&b, "\nstate=%s generation=%d uptime=%s consecutive_failures=%d", t.State, t.Generation,
			(time.Duration(t.UptimeMS) * time.Millisecond).Round(time.Second), t.ConsecutiveFailures)
		fmt.Fprintf(&b, "\np50=%vms p95=%vms p99=%vms cache_hits=%d cache_misses=%d",
			t.Totals.P50, t.Totals.P95, t.Totals.P99, s.Cache.Hits, s.Cache.Misses)
	}
	b.WriteString("\nhot methods:")
	rows := hotMethods
	if full {
		rows = textMethods
	}
	if len(t.Methods) == 0 {
		b.WriteString(" none")
	}
	for i, m := range t.Methods {
		if i == rows {
			if full {
				fmt.Fprintf(&b, "\n+%d more", len(t.Methods)-rows)
			}
			break
		}
		fmt.Fprintf(&b, "\n%s requests=%d response_error=%d transport_fault=%d retry=%d",
			m.Method, m.RequestCount, m.ResponseErrorCount, m.TransportFaultCount, m.RetryCount)
		if full {
			fmt.Fprintf(&b, " last=%dms avg=%dms max=%dms p50=%vms p95=%vms p99=%vms",
				m.LastLatencyMS, m.AvgLatencyMS, m.MaxLatencyMS, m.P50, m.P95, m.P99)
			if m.LastError != nil {
				fmt.Fprintf(&b, " last_error=%s", *m.LastError)
			}
		}
	}
	if !full {
		return b.String()
	}
	for i, one := range s.Sessions {
		if i == 0 {
			b.WriteString("\nsessions:")
		}
		if i == textSessions {
			fmt.Fprintf(&b, "\n+%d more", len(s.Sessions)-i)
			break
		}
		fmt.Fprintf(&b, "\n#%d %s calls=%d response_error=%d transport_fault=%d retry=%d p50=%vms p95=%vms p99=%vms", one.Session,
			oneLine(one.Identity, maxField), one.Calls, one.ResponseErrors, one.TransportFaults, one.Retries, one.P50, one.P95, one.P99)
	}
	if f := t.LastFault; f != nil {
		fmt.Fprintf(&b, "\nlast fault: %s in %s: %s", f.Fault.Code, oneLine(f.Operation, maxField), oneLine(f.Fault.Detail, 240))
	}
	return b.String()
}
