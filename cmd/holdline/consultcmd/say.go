package consultcmd

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/protocol/control"
)

// newSayCommand returns the command consult say. It survives the end of the daemon: the message
// has a key, and is said once.
func newSayCommand(proc *cmdenv.Process) *cobra.Command {
	var wait bool
	say := &cobra.Command{
		Use: "say ID [TEXT…]", Short: "Say something to a consult, while it runs or after its end",
		Args: cobra.MinimumNArgs(1),
		Long: `Say something to a consult that runs, or continue one that has ended. Without a text,
it is read from stdin.

Claude Code gets it in the same turn, other programs get it in their next one. What is
said to a consult that has ended begins a new one, which continues its session. Prints
"delivered" if the program has taken the message, else "queued", with the id of the
consult that gets it. With --wait, waits for the answer of that and prints it.

With --json, an object: receipt, message_id, consult_id.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := pickConsult(cmd, proc, args[0])
			if err != nil {
				return err
			}
			text, err := consultPrompt(cmd, args[1:], "message", "holdline consult say ID 'look at …, too'")
			if err != nil {
				return err
			}
			c, err := attach.ConnectOrStart(cmd, proc)
			if err != nil {
				return err
			}
			var receipt control.Receipt
			params := control.SayParams{ID: id, Text: text, Key: rand.Text()}
			err = attach.Outlast(cmd, proc, c, func(ctx context.Context, c *control.Client) error {
				return c.Call(ctx, control.ConsultSay, params, &receipt, nil)
			})
			if err != nil {
				return err
			}
			confirmConsult(cmd, proc, params.Key)
			if !wait {
				return console.Print(cmd, receipt, func(out io.Writer) { fmt.Fprintln(out, receipt.Words()) })
			}
			fmt.Fprintln(cmd.ErrOrStderr(), receipt.Words())
			answer, err := waitConsult(cmd, proc, receipt.ConsultID)
			if err != nil {
				return err
			}
			return printConsult(cmd, answer)
		},
	}
	say.Flags().BoolVar(&wait, "wait", false, "wait for the answer, and print it")
	return say
}
