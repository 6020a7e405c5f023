//go:build man

package cli

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"holdline/cmd/holdline/cmdenv"
)

// manCommands are those of a build that makes the man pages of a release. What
// makes them is in no other build.
func manCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use:    "man DIR",
		Short:  "Write a man page for each command into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true // it names a day
			if _, err := os.Stat(args[0]); err != nil {
				return err
			}
			// The date is that of SOURCE_DATE_EPOCH.
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "holdline " + cmdenv.Version, Manual: "Holdline"}, args[0])
		},
	}}
}
