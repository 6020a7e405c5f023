//go:build !man

package cli

import "github.com/spf13/cobra"

// manCommands are none: see the build with the tag man.
func manCommands() []*cobra.Command { return nil }
