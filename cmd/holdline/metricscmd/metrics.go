// Package metricscmd is the command metrics: the counters as OpenMetrics text.
package metricscmd

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

// NewCommand returns the command metrics. The daemon has no format for Prometheus: the
// command asks for the counters and the status, as telemetry and status do, and writes them as
// OpenMetrics text.
func NewCommand(proc *cmdenv.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "metrics",
		Short: "Print the counters as OpenMetrics text, such as for Prometheus",
		Long: `Print what was counted as OpenMetrics text: requests and faults by method and tool,
calls by identity and session (the busiest), latencies, the cache, servers with
their restarts and circuits, workers, consults, the daemon's memory. The counters
begin with the daemon. There is no HTTP server; the textfile collector of
Prometheus' node_exporter takes the output, for instance from a timer:

    cd /var/lib/node_exporter
    holdline metrics > holdline.prom.new && mv holdline.prom.new holdline.prom`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Get both answers before anything is printed: a command that fails prints no
			// text.
			_, counts, err := Counters(cmd, proc)
			if err != nil {
				return err
			}
			status, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, nil)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(openMetrics(counts, &status))
			return err
		},
	}
}

// Counters asks the daemon for its counters. It returns them as the daemon writes them, too.
func Counters(cmd *cobra.Command, proc *cmdenv.Process) (json.RawMessage, *telemetry.Snapshot, error) {
	answer, err := attach.Ask[control.TelemetryAnswer](cmd, proc, control.Telemetry, nil)
	if err != nil {
		return nil, nil, err
	}
	counts := new(telemetry.Snapshot)
	if err := json.Unmarshal(answer.Value, counts); err != nil {
		return nil, nil, fmt.Errorf("the daemon's counters: %w", err)
	}
	return answer.Value, counts, nil
}

// openMetrics returns the counters and the status as OpenMetrics text. The
// families come in a fixed order.
func openMetrics(counts *telemetry.Snapshot, status *control.StatusAnswer) []byte {
	m := new(metrics)
	daemonMetrics(m, counts, status)
	requestMetrics(m, counts.Telemetry.Methods)
	callerMetrics(m, "identity", counts.Identities)
	callerMetrics(m, "session", counts.Sessions)
	serverMetrics(m, status.Servers)
	return m.text()
}

// daemonMetrics adds the families about the daemon itself. Each state and each kind that is
// named here has a sample, even if its count is 0.
func daemonMetrics(m *metrics, counts *telemetry.Snapshot, s *control.StatusAnswer) {
	m.single("daemon_info", gauge, "", "The daemon that answers.", 1, "version", s.Daemon.Version,
		"pid", strconv.Itoa(s.Daemon.PID), "started_by", s.Daemon.StartedBy, "rollout", s.Daemon.Rollout)
	m.single("uptime_seconds", gauge, "seconds", "Age of the daemon.", float64(s.Daemon.UptimeMS)/1000)
	m.single("epoch", gauge, "", "Generation of the daemon.", float64(s.Daemon.Epoch))
	t := &counts.Telemetry
	m.single("ready", gauge, "", "1 if nothing is recovering or starting.",
		float64(truth(t.State == telemetry.Ready || t.State == telemetry.Cold)))
	m.single("consecutive_failures", gauge, "", "Failures of work since the last success.",
		float64(t.ConsecutiveFailures))
	m.single("worker_restarts", counter, "", "Workers that were started again.", float64(t.RestartCount))
	m.single("rollouts", counter, "", "Replacements of the daemon's binary.", float64(counts.HostRollouts))
	m.single("cache_lookups", counter, "", "Looks into the cache of answers.",
		float64(counts.Cache.Hits), "result", "hit")
	m.sample(float64(counts.Cache.Misses), "result", "miss")
	m.family("sessions", gauge, "", "Sessions of agents.")
	m.counted("state", tally(s.Sessions, func(x control.Session) string { return x.State }, "attached", "detached"))
	m.family("workers", gauge, "", "Worker processes.")
	m.counted("kind", tally(s.Workers, func(x control.Worker) string { return x.Kind }, "server", "consult"))
	m.family("consults", gauge, "", "Consults, by what became of them.")
	m.counted("state", map[string]int{
		"running": s.Consults.Running, "queued": s.Consults.Queued, "kept": s.Consults.Kept,
	})
	m.single("goroutines", gauge, "", "Goroutines of the daemon.", float64(s.Runtime.Goroutines))
	m.single("heap_bytes", gauge, "bytes", "Heap of the daemon in use.", float64(s.Runtime.HeapBytes))
	m.single("open_files", gauge, "", "Open file descriptors of the daemon.", float64(s.Runtime.FDs))
}

// work has the counts and latencies of requests or calls that have the same labels. It is one
// row of the input of [workMetrics].
type work struct {
	of labels
	telemetry.Totals
}

// requestMetrics adds the families about requests of each method and tool. A tool call's
// method is tools/call, with the tool and its server as labels.
func requestMetrics(m *metrics, methods []telemetry.Method) {
	rows := make([]work, len(methods))
	// The method of a call of a tool is "tools/call:" and the name that agents see.
	for i, x := range methods {
		method, tool, _ := strings.Cut(x.Method, ":")
		if x.Tool == "" {
			tool = ""
		}
		rows[i] = work{labels{"method", method, "tool", tool, "server", x.Server}, x.Totals}
	}
	workMetrics(m, "requests", "request", "Requests by method, tool and outcome.", "requests", rows)
}

// callerMetrics adds the families about tool calls of identities or of sessions. who is
// "identity" or "session"; only a session has the labels session and client.
func callerMetrics(m *metrics, who string, callers []telemetry.SessionCounts) {
	rows := make([]work, len(callers))
	for i, x := range callers {
		of := labels{"identity", x.Identity}
		if who == "session" {
			of = append(of, "session", strconv.FormatInt(x.Session, 10), "client", x.Client)
		}
		// Callers have no count of successes of their own.
		rows[i] = work{of, telemetry.Totals{
			RequestCount: x.Calls, SuccessCount: x.Calls - x.ResponseErrors - x.TransportFaults,
			ResponseErrorCount: x.ResponseErrors, TransportFaultCount: x.TransportFaults, RetryCount: x.Retries,
			Percentiles: x.Percentiles,
		}}
	}
	workMetrics(m, who+"_calls", who, "Tool calls of the busiest by outcome.", "tool calls", rows)
}

// workMetrics adds the outcomes, retries and latencies of work. name is the family of the
// outcomes, prefix begins the names of the others, and noun names the work in help texts.
func workMetrics(m *metrics, name, prefix, help, noun string, rows []work) {
	m.family(name, counter, "", help)
	for _, x := range rows {
		of := slices.Clip(x.of) // each append below must make a copy
		m.sample(float64(x.SuccessCount), append(of, "outcome", "success")...)
		m.sample(float64(x.ResponseErrorCount), append(of, "outcome", "response_error")...)
		m.sample(float64(x.TransportFaultCount), append(of, "outcome", "transport_fault")...)
	}
	m.family(prefix+"_retries", counter, "", "Number of "+noun+" that were run again after a crash.")
	for _, x := range rows {
		m.sample(float64(x.RetryCount), x.of...)
	}
	m.family(prefix+"_duration_seconds", summary, "seconds", "Latencies of "+noun+".")
	for _, x := range rows {
		m.quantiles(x.Percentiles, x.RequestCount, x.of...)
	}
}

// serverMetrics adds the families about hosted servers. All but the state have one sample for
// each server, with its name as the only label.
func serverMetrics(m *metrics, servers []control.Server) {
	m.family("server_state", gauge, "", "1 for the state that a hosted server is in.")
	for _, s := range servers {
		m.sample(1, "server", s.Name, "scope", s.Scope, "state", s.State, "circuit", s.Circuit)
	}
	type server = control.Server
	each := func(name string, kind kindOf, help string, value func(*server) int) {
		m.family("server_"+name, kind, "", help)
		for i := range servers {
			m.sample(float64(value(&servers[i])), "server", servers[i].Name)
		}
	}
	each("processes", gauge, "Processes that run.", func(s *server) int { return s.Processes })
	each("sessions", gauge, "Sessions that share its processes.", func(s *server) int { return s.RefCount })
	each("restarts", gauge, "Restarts in the window of its budget.", func(s *server) int { return s.Restarts })
	each("failures", gauge, "Calls in a row that failed because of it.", func(s *server) int { return s.Failures })
	each("ejected", gauge, "1 if it is not started any more.", func(s *server) int { return truth(s.Ejected) })
	each("calls_in_flight", gauge, "Calls in flight.", func(s *server) int { return s.InFlight })
	each("calls_queued", gauge, "Calls that wait for their turn.", func(s *server) int { return s.Queued })
	each("cache_entries", gauge, "Answers that are kept.", func(s *server) int { return s.CacheCount })
	each("changed_tools", gauge, "Tools that differ from when first seen.", func(s *server) int { return s.Changed })
	each("noise_lines", counter, "Lines on stdout that were no messages.",
		func(s *server) int { return int(s.NoiseLines) })
}

// truth returns 1 for true and 0 for false.
func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tally counts list by key. Each of the named keys has a count, at least 0.
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
