package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/telemetry"
	"holdline/protocol/control"
)

func newMetricsCommand(proc *cmdenv.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "metrics",
		Short: "Print what was counted as OpenMetrics text, for Prometheus and its like",
		Long: `Print what was counted as OpenMetrics text: requests and faults by method and tool,
calls by identity and session (the busiest), latencies, the cache, servers with
their restarts and circuits, workers, consults, the daemon's memory. The counters
begin with the daemon. There is no HTTP server; the textfile collector of
Prometheus' node_exporter takes the output, for instance from a timer:

    holdline metrics > /var/lib/node_exporter/holdline.prom.new &&
        mv /var/lib/node_exporter/holdline.prom.new /var/lib/node_exporter/holdline.prom`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			counted, err := attach.Ask[control.TelemetryAnswer](cmd, proc, control.Telemetry, nil)
			if err != nil {
				return err
			}
			var counts telemetry.Snapshot
			if err := json.Unmarshal(counted.Value, &counts); err != nil {
				return fmt.Errorf("the daemon's counters: %w", err)
			}
			status, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, nil)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(openMetrics(&counts, &status))
			return err
		},
	}
}

// openMetrics is what was counted and how things are, as OpenMetrics text.
func openMetrics(counts *telemetry.Snapshot, status *control.StatusAnswer) []byte {
	m := new(metrics)
	daemonMetrics(m, counts, status)
	requestMetrics(m, counts.Telemetry.Methods)
	callerMetrics(m, "identity", counts.Identities)
	callerMetrics(m, "session", counts.Sessions)
	serverMetrics(m, status.Servers)
	return m.text()
}

func daemonMetrics(m *metrics, counts *telemetry.Snapshot, s *control.StatusAnswer) {
	m.family("daemon_info", gauge, "", "The daemon that answers.")
	m.sample(1, "version", s.Daemon.Version, "pid", strconv.Itoa(s.Daemon.PID), "started_by", s.Daemon.StartedBy, "rollout", s.Daemon.Rollout)
	m.family("uptime_seconds", gauge, "seconds", "Age of the daemon.")
	m.sample(float64(s.Daemon.UptimeMS) / 1000)
	m.family("epoch", gauge, "", "Lives of daemons on this runtime directory.")
	m.sample(float64(s.Daemon.Epoch))
	m.family("ready", gauge, "", "1 if nothing is recovering or starting.")
	m.sample(truth(counts.Telemetry.State == telemetry.Ready || counts.Telemetry.State == telemetry.Cold))
	m.family("consecutive_failures", gauge, "", "Failures of work since the last success.")
	m.sample(float64(counts.Telemetry.ConsecutiveFailures))
	m.family("worker_restarts", counter, "", "Workers that were started again.")
	m.sample(float64(counts.Telemetry.RestartCount))
	m.family("rollouts", counter, "", "Replacements of the daemon's binary.")
	m.sample(float64(counts.HostRollouts))
	m.family("cache_lookups", counter, "", "Looks into the cache of answers.")
	m.sample(float64(counts.Cache.Hits), "result", "hit")
	m.sample(float64(counts.Cache.Misses), "result", "miss")
	m.family("sessions", gauge, "", "Sessions of agents.")
	m.counted("state", tally(s.Sessions, func(x control.Session) string { return x.State }, "attached", "detached"))
	m.family("workers", gauge, "", "Worker processes.")
	m.counted("kind", tally(s.Workers, func(x control.Worker) string { return x.Kind }, "server", "consult"))
	m.family("consults", gauge, "", "Consults, by what became of them.")
	m.counted("state", map[string]int{"running": s.Consults.Running, "queued": s.Consults.Queued, "kept": s.Consults.Kept})
	m.family("goroutines", gauge, "", "Goroutines of the daemon.")
	m.sample(float64(s.Runtime.Goroutines))
	m.family("heap_bytes", gauge, "bytes", "Heap of the daemon in use.")
	m.sample(float64(s.Runtime.HeapBytes))
	m.family("open_files", gauge, "", "Open file descriptors of the daemon.")
	m.sample(float64(s.Runtime.FDs))
}

// requestMetrics are those of each method and tool. A tool call's method is
// tools/call, with the tool and its server as labels.
func requestMetrics(m *metrics, methods []telemetry.Method) {
	m.family("requests", counter, "", "Requests by method, tool and outcome.")
	for _, x := range methods {
		of := operation(x)
		m.sample(float64(x.SuccessCount), append(of, "outcome", "success")...)
		m.sample(float64(x.ResponseErrorCount), append(of, "outcome", "response_error")...)
		m.sample(float64(x.TransportFaultCount), append(of, "outcome", "transport_fault")...)
	}
	m.family("request_retries", counter, "", "Requests that were run again after a crash.")
	for _, x := range methods {
		m.sample(float64(x.RetryCount), operation(x)...)
	}
	m.family("request_duration_seconds", summary, "seconds", "Latencies of requests.")
	for _, x := range methods {
		m.quantiles(x.P50, x.P95, x.P99, x.RequestCount, operation(x)...)
	}
}

// operation are the labels of one method and tool.
func operation(x telemetry.Method) labels {
	method, tool, _ := strings.Cut(x.Method, ":")
	if x.Tool == "" {
		tool = ""
	}
	return slices.Clip(labels{"method", method, "tool", tool, "server", x.Server})
}

// callerMetrics are the tool calls of identities or of sessions.
func callerMetrics(m *metrics, who string, rows []telemetry.SessionCounts) {
	of := func(x telemetry.SessionCounts) labels {
		l := labels{"identity", x.Identity}
		if who == "session" {
			l = append(l, "session", strconv.FormatInt(x.Session, 10), "client", x.Client)
		}
		return slices.Clip(l)
	}
	m.family(who+"_calls", counter, "", "Tool calls of the busiest by outcome.")
	for _, x := range rows {
		m.sample(float64(x.Calls-x.ResponseErrors-x.TransportFaults), append(of(x), "outcome", "success")...)
		m.sample(float64(x.ResponseErrors), append(of(x), "outcome", "response_error")...)
		m.sample(float64(x.TransportFaults), append(of(x), "outcome", "transport_fault")...)
	}
	m.family(who+"_retries", counter, "", "Tool calls that were run again after a crash.")
	for _, x := range rows {
		m.sample(float64(x.Retries), of(x)...)
	}
	m.family(who+"_duration_seconds", summary, "seconds", "Latencies of tool calls.")
	for _, x := range rows {
		m.quantiles(x.P50, x.P95, x.P99, x.Calls, of(x)...)
	}
}

func serverMetrics(m *metrics, servers []control.Server) {
	each := func(name string, kind kindOf, help string, value func(control.Server) float64) {
		m.family("server_"+name, kind, "", help)
		for _, s := range servers {
			m.sample(value(s), "server", s.Name)
		}
	}
	m.family("server_state", gauge, "", "1 for the state that a hosted server is in.")
	for _, s := range servers {
		m.sample(1, "server", s.Name, "scope", s.Scope, "state", s.State, "circuit", s.Circuit)
	}
	each("processes", gauge, "Processes that run.", func(s control.Server) float64 { return float64(s.Processes) })
	each("sessions", gauge, "Sessions that share its processes.", func(s control.Server) float64 { return float64(s.RefCount) })
	each("restarts", gauge, "Restarts in the window of its budget.", func(s control.Server) float64 { return float64(s.Restarts) })
	each("failures", gauge, "Calls in a row that failed for its sake.", func(s control.Server) float64 { return float64(s.Failures) })
	each("ejected", gauge, "1 if it is not started any more.", func(s control.Server) float64 { return truth(s.Ejected) })
	each("calls_in_flight", gauge, "Calls in flight.", func(s control.Server) float64 { return float64(s.InFlight) })
	each("calls_queued", gauge, "Calls that wait for their turn.", func(s control.Server) float64 { return float64(s.Queued) })
	each("cache_entries", gauge, "Answers that are kept.", func(s control.Server) float64 { return float64(s.CacheCount) })
	each("changed_tools", gauge, "Tools that are not what they were when first seen.", func(s control.Server) float64 { return float64(s.Changed) })
	each("noise_lines", counter, "Lines on stdout that were no messages.", func(s control.Server) float64 { return float64(s.NoiseLines) })
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// tally counts list by key. What is named is in it, at least with zero.
func tally[T any](list []T, key func(T) string, named ...string) map[string]int {
	counts := map[string]int{}
	for _, name := range named {
		counts[name] = 0
	}
	for _, x := range list {
		counts[key(x)]++
	}
	return counts
}
