package serverscmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/importer"
	"holdline/cmd/holdline/planview"
	"holdline/daemon/config"
	"holdline/daemon/config/edit"
	"holdline/daemon/plural"
)

// removeOptions are the flags of servers remove.
type removeOptions struct {
	giveBack bool // clients get their own server back
	yes      bool // do not ask
}

// newRemove returns the command servers remove.
func newRemove(s *serversCommand) *cobra.Command {
	var o removeOptions
	cmd := &cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm"}, Short: "Remove a server, and its entries from your agents' files",
		Long: `Remove a server from the configuration, and the entries that start it from the files of
all your agents. On a terminal the command shows them, and asks.

--give-back gives each client the server back that it had under this name before setup
moved it. A client that had none loses its entry.

Agents that run keep their tools of the server until they are started again; calls of
them fail.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return s.removeServer(cmd, args[0], o) },
	}
	cmd.Flags().BoolVar(&o.giveBack, "give-back", false, "give clients the server back that they had before setup")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	return cmd
}

// removeServer removes a server from the configuration, and before that its entries from the clients' files: a
// server without entries harms nobody. Entries of a server that is not configured any more are removed, too.
func (s *serversCommand) removeServer(cmd *cobra.Command, name string, o removeOptions) error {
	path, cfg, err := s.loadConfig()
	if err != nil {
		return err
	}
	if err := attach.CheckEdit(s.proc, path); err != nil {
		return err
	}
	look, held, err := s.entriesOf(name)
	if err != nil {
		return err
	}
	held = slices.DeleteFunc(held, func(h importer.Held) bool {
		if h.Common {
			console.Warn(cmd, "left %s: other people have this file, too", &h)
		}
		return h.Common
	})
	_, configured := cfg.Servers[name]
	if !configured && len(held) == 0 {
		return config.NoServer(name, &cfg)
	}
	if len(held) > 0 && !o.yes && console.IsTerminal(s.proc.Stdin) {
		console.Line(cmd.ErrOrStderr(), 4, "%s start%s it: %s", plural.Count(len(held), "entry"),
			map[bool]string{true: "s"}[len(held) == 1], planview.Names(held))
		what := "remove these entries"
		if o.giveBack {
			what = "give the clients their own servers back"
		}
		if !console.Confirm(cmd, s.proc.Stdin, fmt.Sprintf("Remove %s, and %s? [Y/n] ", name, what), true) {
			console.Line(cmd.ErrOrStderr(), 4, "Nothing was changed.")
			return cmdenv.ExitWith(cmdenv.ExitFailure)
		}
	}
	done, err := importer.TakeAway(cmd.Context(), look, held, o.giveBack)
	if err != nil {
		return err
	}
	address := s.loggedInAt(name)
	if configured {
		err = s.editFile(cmd, name, "removed", func(path string) (bool, error) {
			return true, edit.RemoveServer(cmd.Context(), path, name)
		})
	}
	if len(done.Files) > 0 {
		what := "its entries are removed from"
		if o.giveBack {
			what = "its entries are as they were before setup in"
		}
		_ = console.Say(cmd, "%s: %s", what, strings.Map(console.Printable, strings.Join(done.Files, ", ")))
	}
	if done.Kept != "" {
		_ = console.Say(cmd, "entries that no setup wrote are kept as they were in %s", done.Kept)
	}
	if err == nil && address != "" {
		_ = console.Say(cmd, "its login is kept; to end it: holdline servers logout --url %s", address)
	}
	planview.WarnLeft(cmd, done.Left)
	if err == nil && len(done.Left) > 0 {
		return cmdenv.ExitWith(cmdenv.ExitFailure)
	}
	return err
}

// entriesOf returns the entries of clients' files that start a server, and what package importer needs to
// change them. There are none for a configuration file that no client's holdline reads.
func (s *serversCommand) entriesOf(name string) (importer.Options, []importer.Held, error) {
	look, err := s.clients(s.proc)
	if err != nil || s.isOtherFile() {
		return look, nil, err
	}
	held, _, err := importer.FindHeld(look) // doctor names files that cannot be read
	return look, slices.DeleteFunc(held, func(h importer.Held) bool { return h.Server != name || h.Elsewhere }), err
}

// isOtherFile reports whether the user has named another configuration file than the one that the daemons of
// clients read.
func (s *serversCommand) isOtherFile() bool {
	path, err := cmdenv.ConfigPath(s.file, s.proc.Getenv)
	usual, uerr := cmdenv.ConfigPath("", s.proc.Getenv)
	return err != nil || uerr != nil || path != usual && !cmdenv.SameFile(path, usual)
}
