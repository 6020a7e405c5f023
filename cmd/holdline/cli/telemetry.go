package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/protocol/control"
)

func newTelemetryCommand(proc *cmdenv.Process) *cobra.Command {
	return console.WithJSON(&cobra.Command{
		Use:   "telemetry",
		Short: "Show what was called, how often, how fast and with which faults",
		Long: `Show what was called, how often, how fast and with which faults.

With --json, the full telemetry_snapshot: telemetry (uptime_ms, state, totals,
methods, …) and host_rollouts.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := attach.Ask[control.TelemetryAnswer](cmd, proc, control.Telemetry, nil)
			if err != nil {
				return err
			}
			return console.Print(cmd, answer.Value, func(out io.Writer) { fmt.Fprintln(out, answer.Text) })
		},
	})
}
