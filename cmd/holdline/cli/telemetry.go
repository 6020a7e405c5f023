package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/metricscmd"
	"holdline/cmd/holdline/serverscmd"
	"holdline/daemon/plural"
	"holdline/daemon/telemetry"
)

// newTelemetryCommand returns the command telemetry.
func newTelemetryCommand(proc *cmdenv.Process) *cobra.Command {
	var verbose bool
	cmd := console.WithJSON(&cobra.Command{
		Use:   "telemetry",
		Short: "Show what was called, how often, how fast and with which faults",
		Long: `Show which tools were called since the daemon has started, how often and how fast, the
busiest first. Half of the calls took as long as P50 says or less, and 95 of 100 as long
as P95 says or less. A result with which a tool reports its own failure is no error. -v
shows the other methods of MCP, too, such as tools/list.

With --json, the full telemetry_snapshot: telemetry (uptime_ms, state, totals,
methods, …) and host_rollouts.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, counts, err := metricscmd.Counters(cmd, proc)
			if err != nil {
				return err
			}
			return console.Print(cmd, answer, func(out io.Writer) { printTelemetry(out, counts, verbose) })
		},
	})
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show the other methods of MCP, too")
	return cmd
}

// printTelemetry prints a row for each tool; with verbose also for each other method, and for what they add
// up to.
func printTelemetry(w io.Writer, counts *telemetry.Snapshot, verbose bool) {
	body := &counts.Telemetry
	t := console.NewTable(w, "TOOL", "SERVER", "CALLS", "ERRORS", "P50", "P95")
	row := func(tool any, server string, sum *telemetry.Totals) {
		var errs any = sum.ResponseErrorCount + sum.TransportFaultCount
		if errs != int64(0) {
			errs = console.Bad.Paint(errs)
		}
		p50, p95 := console.Right(""), console.Right("")
		if sum.RequestCount > 0 {
			p50, p95 = serverscmd.Milliseconds(sum.P50), serverscmd.Milliseconds(sum.P95)
		}
		t.Row(tool, server, sum.RequestCount, errs, p50, p95)
	}
	rows := 0
	for i := range body.Methods {
		m := &body.Methods[i]
		method, name, _ := strings.Cut(m.Method, ":")
		if tool := cmp.Or(m.Tool, name); tool != "" || verbose {
			row(cmp.Or(tool, method), m.Server, &m.Totals)
			rows++
		}
	}
	switch {
	case verbose:
		row(console.Bold.Paint("all"), "", &body.Totals)
		t.Flush()
	case rows == 0:
		console.Line(w, 2, "No tool has been called since the daemon started.")
	default:
		t.Flush()
	}
	fmt.Fprintln(w)
	parts := []string{
		plural.Count(int(body.RestartCount), "restart") + " of workers",
		plural.Count(int(body.Totals.RetryCount), "call") + " made again after a crash",
	}
	if looks := counts.Cache.Hits + counts.Cache.Misses; looks > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d answers from the cache", counts.Cache.Hits, looks))
	}
	console.Line(w, 2, "In %s: %s.", plural.Age(body.UptimeMS), strings.Join(parts, ", "))
}
