package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/doctor"
	"holdline/protocol/socket"
)

func newDoctorCommand(w *world) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything that could be wrong, and say how to mend it",
		Long: `Check the configuration, the directories, the socket, the daemon, the versions of
daemon and proxies, and claude, and say how to mend what is wrong. Nothing is
changed. The exit code is 1 if there is a problem.

With --json, a list of objects: check, state (ok, note, problem), what, why,
mend.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
