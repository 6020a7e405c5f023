package consultcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/protocol/control"
)

// NewListCommand returns the command consults with its subcommands. Only wait starts a daemon
// and survives its end; the others need one that runs. They act on the consults of all
// identities.
func NewListCommand(proc *cmdenv.Process) *cobra.Command {
	// The command consults and its subcommand list do the same.
	list := func(cmd *cobra.Command, _ []string) error {
		answer, err := attach.Ask[control.ConsultListAnswer](cmd, proc, control.ConsultList, nil)
		if err != nil {
			return err
		}
		return console.Print(cmd, answer.Consults, func(out io.Writer) { printConsults(out, answer.Consults) })
	}
	cmd := &cobra.Command{
		Use:   "consults",
		Short: "List the consults, running and kept; show, wait for, cancel or remove one",
		Long: `List the consults, running and kept.

With --json, a list of objects: id, state (queued, running, done, failed,
cancelled), identity, engine, cwd, model, created_unix_ms, took_ms, cost_usd, code, question (its
beginning), note (what it does).`,
		RunE: list,
	}
	cmd.PersistentFlags().Bool("json", false, "print JSON")
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "List the consults", RunE: list})
	// one returns a command that makes one request about one consult and prints the answer.
	// The request may be made again if the daemon is replaced.
	one := func(use, short, method string) *cobra.Command {
		return &cobra.Command{
			Use: use + " ID", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return attach.WithDaemon(cmd, proc, func(ctx context.Context, c *control.Client) error {
					var answer control.ConsultAnswer
					progress, done := console.ProgressLine(cmd.ErrOrStderr())
					err := c.Call(ctx, method, control.ConsultID{ID: args[0]}, &answer, progress)
					done()
					if err != nil {
						return err
					}
					return printConsult(cmd, answer)
				})
			},
		}
	}
	// wait blocks for long, so unlike the others it must survive the end of the daemon.
	wait := &cobra.Command{
		Use: "wait ID", Short: "Wait for a consult and print its answer", Args: cobra.ExactArgs(1),
		Long: `Wait for a consult and print its answer. The command starts a daemon if none runs,
and goes on with the next one if it ends.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := waitConsult(cmd, proc, args[0])
			if err != nil {
				return err
			}
			return printConsult(cmd, answer)
		},
	}
	cmd.AddCommand(
		wait,
		one("show", "Print a consult's answer, or what there is of it", control.ConsultShow),
		one("cancel", "End a running or queued consult; what it has is kept", control.ConsultCancel),
		newConsultRemoveCommand(proc),
	)
	return cmd
}

// printConsults prints a row for each consult, with the code of its fault if it has failed. The
// cost is empty if it is not known, as with engines that tell none.
func printConsults(out io.Writer, consults []control.Consult) {
	if len(consults) == 0 {
		fmt.Fprintln(out, "no consult is running or kept")
		return
	}
	t := console.NewTable(out, "CONSULT", "STATE", "IDENTITY", "ENGINE", "MODEL", "BEGUN", "TOOK", "COST", "CWD")
	for _, j := range consults {
		// A cost of 0 is shown, unlike one that is not known.
		cost := ""
		if j.CostUSD != nil {
			cost = fmt.Sprintf("$%.4f", *j.CostUSD)
		}
		state := j.State
		if j.Code != "" {
			state += " (" + j.Code + ")"
		}
		t.Row(j.ID, state, j.Identity, j.Engine, j.Model, time.UnixMilli(j.CreatedMS).Format("01-02 15:04:05"),
			(time.Duration(j.TookMS) * time.Millisecond).Round(100*time.Millisecond), cost, j.Cwd)
	}
	t.Flush()
}

// newConsultRemoveCommand returns the command consults rm. It tries all ids, even if one
// fails.
func newConsultRemoveCommand(proc *cmdenv.Process) *cobra.Command {
	return &cobra.Command{
		Use: "rm ID…", Short: "Remove kept answers", Args: cobra.MinimumNArgs(1),
		Long: `Remove kept answers, with their prompts. One that runs is cancelled first, with
holdline consults cancel; one that its client may still come for stays.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return attach.WithDaemon(cmd, proc, func(ctx context.Context, c *control.Client) error {
				// An unknown id must not keep the other answers from being removed.
				var errs []error
				for _, id := range args {
					if err := c.Call(ctx, control.ConsultRemove, control.ConsultID{ID: id}, nil, nil); err != nil {
						errs = append(errs, err)
					}
				}
				return errors.Join(errs...)
			})
		},
	}
}

// waitConsult waits for a consult and returns its answer. It starts a daemon if none runs, and
// goes on with the next one if the daemon ends. An interrupt ends the wait and not the consult.
func waitConsult(cmd *cobra.Command, proc *cmdenv.Process, id string) (answer control.ConsultAnswer, err error) {
	c, err := attach.ConnectOrStart(cmd, proc)
	if err != nil {
		return answer, err
	}
	show, done := console.ProgressLine(cmd.ErrOrStderr())
	err = attach.Outlast(cmd, proc, c, func(ctx context.Context, c *control.Client) error {
		return c.Call(ctx, control.ConsultWait, control.ConsultID{ID: id}, &answer, show)
	})
	done()
	if errors.Is(err, cmdenv.ErrLost) {
		return answer, lostConsult(id, err)
	}
	return answer, err
}
