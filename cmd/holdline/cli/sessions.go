package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/serverscmd"
	"holdline/daemon/plural"
	"holdline/protocol/control"
)

// newSessionsCommand returns the command sessions, which prints the sessions of the status one
// by one.
func newSessionsCommand(proc *cmdenv.Process) *cobra.Command {
	var verbose bool
	cmd := console.WithJSON(&cobra.Command{
		Use:   "sessions",
		Short: "List the agents that are connected",
		Long: `List the agents that are connected.

With --json, a list of objects as under "sessions" in status --json.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, nil)
			if err != nil {
				return err
			}
			return console.Print(cmd, s.Sessions, func(out io.Writer) {
				printSessions(out, s.Sessions, proc.Getenv("HOME"), verbose)
			})
		},
	})
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show the versions of MCP and of the proxies, too")
	return cmd
}

// printSessions prints one row for each session, in the order of the status.
func printSessions(w io.Writer, sessions []control.Session, home string, verbose bool) {
	if len(sessions) == 0 {
		fmt.Fprintln(w, "no agent is connected")
		return
	}
	head := []string{"SESSION", "IDENTITY", "CLIENT", "SERVER", "PID", "STATE", "BUSY", "CALLS", "AGE", "CWD"}
	optional := []string{"PID", "BUSY", "AGE", "CLIENT"}
	if verbose { // what the user asked for stays, and more of the rest gives way
		head = append(head, "ERA", "PROXY")
		optional = append(optional, "CALLS", "STATE", "SERVER")
	}
	guests := slices.ContainsFunc(sessions, func(s control.Session) bool { return s.Socket != "" })
	if guests {
		head = slices.Insert(head, 2, "SOCKET")
	}
	t := console.NewTable(w, head...)
	t.Optional(optional...)
	for _, s := range sessions {
		row := []any{
			s.ID, s.Identity, s.Client, s.Uses("all"), pidOf(s.PID), serverscmd.Paint(s.State), s.InFlight,
			s.Calls, plural.Age(s.SinceMS), console.Tilde(s.Cwd, home), s.Era, s.Proxy,
		}
		if guests {
			row = slices.Insert(row, 2, any(cmp.Or(s.Socket, "-")))
		}
		t.Row(row...)
	}
	t.Flush()
}

// pidOf returns a pid for a table. Processes elsewhere have none here.
func pidOf(pid int) any {
	if pid == 0 {
		return "-"
	}
	return pid
}
