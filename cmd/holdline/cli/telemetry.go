package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/protocol/control"
)

func newTelemetryCommand(proc *cmdenv.Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "telemetry",
		Short: "Show what was called, how often, how fast and with which faults",
		Long: `Show what was called, how often, how fast and with which faults.

With --json, the full telemetry_snapshot: telemetry (uptime_ms, state, totals,
methods, …) and host_rollouts.`,
		Args: cmdenv.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return attach.WithDaemon(cmd, proc, func(ctx context.Context, c *control.Client) error {
				var answer control.TelemetryAnswer
				if err := c.Call(ctx, control.Telemetry, nil, &answer, nil); err != nil {
					return err
				}
				if asJSON {
					return console.PrintJSON(cmd.OutOrStdout(), answer.Value)
				}
				_, err := io.WriteString(cmd.OutOrStdout(), answer.Text+"\n")
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
