package cli

import (
	"context"
	"flag"
	"os"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/direct"
	"holdline/cmd/holdline/pair"
	"holdline/cmd/holdline/stdio"
)

// newProxyCommand returns the proxy as a command of the tree, for help, completions and man
// pages. When the proxy runs, [runProcess] calls [stdio.Run] before it builds the tree, unless
// a flag comes before the name of the command.
func newProxyCommand(proc *cmdenv.Process) *cobra.Command {
	flags, _ := stdio.Flags(&stdio.Options{}, func(string) string { return "" })
	cmd := &cobra.Command{
		Use:   pair.Command,
		Short: "The proxy that an agent's MCP configuration names",
		Long: `Carries one MCP client's stdio to the daemon and back. This is the command that
an agent's MCP configuration names; a daemon is started if none runs.

The names of identity, project and server are any UTF-8 of at most 128 bytes without
control characters.

The command is also a program of its own, holdline-stdio, which takes half the memory.
If that file lies beside holdline and is of the same build, this command becomes it.

Exit codes: 0 done, 1 failed, 2 usage, 3 no daemon, 4 line lost.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var args []string
			flags.VisitAll(func(f *flag.Flag) {
				if cmd.Flags().Changed(f.Name) {
					args = append(args, "--"+f.Name+"="+f.Value.String())
				}
			})
			if code := stdio.Run(args, proc, wholeProgram(cmd.Context(), proc)); code != cmdenv.ExitOK {
				return cmdenv.ExitWith(code)
			}
			return nil
		},
	}
	cmd.Flags().AddGoFlagSet(flags)
	return cmd
}

// wholeProgram returns what the proxy needs of this program.
func wholeProgram(ctx context.Context, proc *cmdenv.Process) stdio.Whole {
	return stdio.Whole{
		Path:   func() (string, error) { return pair.Program(os.Args[0]) },
		Help:   func() int { return runTree(ctx, proc, NewRoot(proc), []string{"help", pair.Command}) },
		Direct: func(server string) error { return direct.Run(proc, server) },
	}
}
