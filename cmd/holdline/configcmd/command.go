// Package configcmd has the command config: where the configuration is, whether it is
// right, what it means for one identity and tool, and changes of it.
//
// config edit has the user edit a copy, which it checks (edit.go). get, set and unset
// are about one setting (keys.go). After a change a running daemon reads the file.
//
// config check reports mistakes, which the daemon refuses, as errors. It also warns of
// settings that the daemon accepts and that most likely have no effect, for example a
// misspelt name (advice.go).
// config explain asks the same rules as the daemon does (explain.go).
package configcmd

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/config"
)

// NewCommand returns the command config and those below it. All of them take the flag
// --config. None needs a daemon; check and explain say more if one runs, and
// after a change the daemon reads the file.
func NewCommand(proc *cmdenv.Process) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Edit, check or explain the configuration, or say where it is",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	console.ConfigFlag(cmd.PersistentFlags(), &file)
	cmd.AddCommand(newKeyCommands(proc, &file)...)
	cmd.AddCommand(newEdit(proc, &file), newConfigExplain(proc, &file), &cobra.Command{
		Use:   "path",
		Short: "Print where the configuration is read from",
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := cmdenv.ConfigPath(file, proc.Getenv)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), path) // not wrapped, for $(holdline config path)
			return nil
		},
	}, &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file: its mistakes by line and column",
		Long: `Check a configuration file. The command names mistakes by line and column, and exits
with 1. It does the same for a server that Holdline leaves out, because its entry has a
mistake or its transport is sse; the other servers are served. On stderr, with exit code
0, it names settings that are no mistake but most likely have no effect: an identity as
which no client is known to have connected, and a rule that names nothing that servers
have listed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := cmdenv.ConfigPath(file, proc.Getenv)
			if len(args) == 1 {
				path, err = args[0], nil
			}
			if err != nil {
				return err
			}
			// A file that the user has named must exist. The default one may be missing:
			// then all defaults are in force, which is no mistake.
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				if len(args) == 1 || file != "" {
					return fmt.Errorf("there is no file %s", path)
				}
				return console.Say(cmd, "%s: there is no such file, so all settings have their defaults", path)
			}
			cfg, err := config.Load(path)
			if err != nil {
				return err
			}
			if err := unusable(&cfg); err != nil {
				return err
			}
			// Warnings go to stderr and do not change the exit code, since a rule may be
			// meant for a client or a tool that is yet to come.
			for _, warning := range newAdviser(cmd, proc, &cfg).warnings() {
				console.Warn(cmd, "%s", warning)
			}
			return console.Say(cmd, "%s: ok", path)
		},
	})
	return cmd
}

// unusable returns an error for the servers that the daemon leaves out: their entries have mistakes, or a
// transport that Holdline does not speak. The others are served. Each mistake has a line, and so has what to do.
func unusable(cfg *config.Config) error {
	var all []error
	wrong := cfg.Unusable()
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		text := strings.ReplaceAll(wrong[name].Error(), ". ", ".\n")
		if s, _ := cfg.Server(name); s.Mistakes() != "" {
			text = "its entry is wrong, so the server is left out:\n" + s.Mistakes() +
				"\ncorrect it, or remove it: holdline servers remove " + name
		}
		all = append(all, fmt.Errorf("mcpServers.%s: %s", name, strings.ReplaceAll(text, "\n", "\n  ")))
	}
	return errors.Join(all...)
}
