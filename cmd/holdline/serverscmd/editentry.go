package serverscmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/editor"
	"holdline/daemon/config"
	"holdline/daemon/config/edit"
)

// newEditEntry returns the command servers edit.
func (s *serversCommand) newEditEntry() *cobra.Command {
	return &cobra.Command{
		Use: "edit NAME", Short: "Edit a server's entry in your editor, check and apply it", Args: cobra.ExactArgs(1),
		Long: `Edit the entry of one server with $VISUAL, $EDITOR, or vi. You edit a copy: the entry
is replaced once the copy has no mistakes, and a running daemon then reads it. The rest of
the file stays as it is.

Only you can read the copy, and it is removed when the command ends. The command needs a
terminal. In scripts, "holdline config set mcpServers.NAME.KEY VALUE" changes one
setting.`,
		RunE: func(cmd *cobra.Command, args []string) error { return s.editEntry(cmd, args[0]) },
	}
}

// editEntry has the user edit the entry of a server until it has no mistakes or the user gives up.
func (s *serversCommand) editEntry(cmd *cobra.Command, name string) error {
	path, cfg, err := s.loadConfig()
	if err != nil {
		return err
	}
	if err := attach.CheckEdit(s.proc, path); err != nil {
		return err
	}
	if _, ok := cfg.Servers[name]; !ok {
		return config.NoServer(name, &cfg)
	}
	before, err := edit.ServerText(path, name)
	if err != nil {
		return err
	}
	head := fmt.Sprintf("// Server %s of %s.\n", name, path)
	draft, err := editor.New(cmd, s.proc, "server.json", []byte(head+before+"\n"),
		fmt.Sprintf("for one setting: holdline config set mcpServers.%s.KEY VALUE", name))
	if err != nil {
		return err
	}
	defer draft.Close()
	after, err := draft.Edit(func(text []byte) error { return edit.CheckServer(name, text) })
	ctx, stop := editor.Uninterrupted(cmd)
	defer stop()
	cmd.SetContext(ctx)
	changed := false
	if err == nil {
		changed, err = edit.ReplaceServer(ctx, path, name, before, after)
	}
	switch {
	case err != nil:
		return draft.Keep(fmt.Errorf("%w\nserver %s is as it was in %s", err, name, path))
	case !changed:
		return console.Say(cmd, "server %s: no change", name)
	}
	_ = console.Say(cmd, "server %s changed in %s; to try it: holdline servers test %[1]s", name, path)
	return attach.ReloadFile(cmd, s.proc, path)
}
