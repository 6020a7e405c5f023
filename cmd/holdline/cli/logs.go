package cli

import (
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/serverscmd"
	"holdline/cmd/holdline/starter"
	"holdline/contrib"
	"holdline/daemon/service"
	"holdline/protocol/control"
)

// newLogsCommand returns the command logs.
//
// Where the log of the daemon is depends on what has started the daemon. So the command asks a
// running daemon. If none answers, it takes the journal if systemd would start one, else the file
// of daemons that are started on demand.
func newLogsCommand(proc *cmdenv.Process) *cobra.Command {
	var how serverscmd.LogOptions
	var all bool
	cmd := &cobra.Command{
		Use:   "logs [NAME]",
		Short: "Show the daemon's log, or what servers wrote to stderr",
		Long: `Show the end of the daemon's log: the journal's where systemd runs it, the file in
~/Library/Logs where launchd does, else the file that a daemon started on demand writes.
With NAME, show what the processes of that MCP server wrote to stderr, preceded by the
first lines on stdout that are not MCP. If no process runs, show what the last one
wrote. With --all, show what all servers wrote, ordered by time; each line begins with
the server's name. Values that env and headers configure, and secrets in args and url,
appear as ***, and characters that control a terminal as ?.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all && len(args) == 1 {
				return fmt.Errorf("%w: NAME and --all cannot be used together", cmdenv.ErrUsage)
			}
			if all || len(args) == 1 {
				return serverscmd.PrintLogs(cmd, proc, strings.Join(args, ""), how)
			}
			lines, follow, since := how.Lines(cmd), how.Follow, how.Since.Time
			// An error is no reason to fail here: the log is needed most when the daemon does
			// not answer. Then it is where the log of a daemon would be that is started now.
			c, err := attach.Connect(cmd.Context(), cmd, proc)
			if err != nil && service.FindUnits(proc.Getenv).Enabled() {
				return journal(cmd, follow, lines, since)
			}
			if err == nil {
				// A daemon of systemd logs to the journal even if it gives no status: the
				// greeting says that systemd manages it.
				managed := c.Daemon.Managed
				var status control.StatusAnswer
				err := c.Call(cmd.Context(), control.Status, nil, &status, nil)
				c.Close()
				if managed == service.Systemd {
					return journal(cmd, follow, lines, since)
				}
				if err == nil && status.Daemon.StartedBy == service.Launchd {
					path := filepath.Join(proc.Getenv("HOME"), contrib.LaunchLog)
					return console.Tail(cmd.Context(), cmd.OutOrStdout(), path, lines, since, follow)
				}
				if err == nil && status.Daemon.StartedBy == "shell" {
					console.Warn(cmd, "daemon %d was started by hand and logs to its own terminal; "+
						"this is the log of those started on demand", status.Daemon.PID)
				}
			}
			dir, err := cmdenv.StateDir(proc.Getenv)
			if err != nil {
				return err
			}
			return console.Tail(cmd.Context(), cmd.OutOrStdout(), filepath.Join(dir, starter.DaemonLog), lines, since, follow)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "what all servers wrote, each line with the server's name")
	how.AddFlags(cmd)
	return cmd
}

// journal runs journalctl for the daemon's unit, with the streams of this command. It blocks
// until journalctl ends, and returns nil if the user interrupts it.
func journal(cmd *cobra.Command, follow bool, lines uint, since time.Time) error {
	// Not --user, which looks into journals of the user's own alone: there is
	// none where the journal is not kept over a reboot.
	args := []string{"--user-unit", contrib.SystemdService, "--no-pager"}
	if lines != math.MaxUint {
		args = append(args, "-n", fmt.Sprint(lines))
	}
	if !since.IsZero() {
		args = append(args, "--since", fmt.Sprintf("@%d", since.Unix()))
	}
	if follow {
		args = append(args, "-f")
	}
	c := exec.CommandContext(cmd.Context(), "journalctl", args...)
	c.Stdout, c.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := c.Run(); err != nil && cmd.Context().Err() == nil {
		return fmt.Errorf("journalctl: %w", err)
	}
	return nil
}
