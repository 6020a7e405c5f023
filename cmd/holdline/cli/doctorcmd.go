package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/doctor"
	"holdline/protocol/socket"
)

func newDoctorCommand(w *world) *cobra.Command {
	var asJSON, selftest bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything that could be wrong, and say how to mend it",
		Long: `Check the configuration, the directories, the socket, the daemon, the versions of
daemon and proxies, claude and codex, and say how to mend what is wrong. Nothing is
changed. The exit code is 1 if there is a problem.

With --consult-selftest, nothing of that is checked, but consults are run with the
claude that is installed, in a directory of their own, at each level; what answers
in place of the model is a stand-in on loopback that asks for every way to write to
files that there is. It costs nothing and needs no login. A table says what came of
each. The exit code is 1 if anything was written.

With --json, a list of objects: check, state (ok, note, problem), what, why,
mend.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if selftest {
				return runSelftest(cmd, w, asJSON)
			}
			explicit, err := cmd.Flags().GetString("socket")
			if err != nil {
				return err
			}
			paths, err := socket.Resolve(explicit, w.getenv)
			if err != nil {
				return err
			}
			found := doctor.Run(cmd.Context(), doctorOptions(w, paths))
			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), found); err != nil {
					return err
				}
			} else {
				for _, f := range found {
					fmt.Fprintf(cmd.OutOrStdout(), "%-8s %s: %s\n", f.State, f.Check, f.What)
					if f.State != doctor.OK {
						fmt.Fprintf(cmd.OutOrStdout(), "         why:  %s\n         mend: %s\n", f.Why, f.Mend)
					}
				}
			}
			for _, f := range found {
				if f.State == doctor.Problem {
					return &silent{exitFailure}
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&selftest, "consult-selftest", false, "try to write through consults, at each level")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
