package guestcmd

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/config"
	"holdline/daemon/config/edit"
	"holdline/daemon/plural"
	"holdline/protocol/control"
)

// NewDisconnectCommand returns the command disconnect.
func NewDisconnectCommand(proc *cmdenv.Process) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "disconnect SESSION | SOCKET",
		Short: "Disconnect an agent, or close a socket and disconnect its guests",
		Long: `End a session at once and cancel its calls. SESSION is a number that "holdline
sessions" shows. An agent that starts its proxy again is a new session.

With the name of a socket of the configuration: disable the socket in the configuration
file, and end the sessions of all its guests. They stay out until you enable it again:
holdline config unset sockets.SOCKET.disabled`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return disconnect(cmd, proc, file, args[0])
		},
	}
	console.ConfigFlag(cmd.Flags(), &file)
	return cmd
}

// disabledKey returns the key by which a socket is disabled.
func disabledKey(socket string) config.Key { return config.Key{"sockets", socket, "disabled"} }

// disconnect is the command disconnect; which is a session or a socket.
func disconnect(cmd *cobra.Command, proc *cmdenv.Process, file, which string) error {
	path, err := cmdenv.ConfigPath(file, proc.Getenv)
	if err != nil {
		return err
	}
	cfg, refused := config.Load(path) // a session can be ended in any case
	if _, socket := cfg.Sockets[which]; socket && refused == nil {
		return closeSocket(cmd, proc, path, which)
	}
	status, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, control.StatusParams{})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(status.Sessions, func(s control.Session) bool { return s.ID == which }) {
		if refused != nil {
			return refused
		}
		return cmdenv.WithHint(fmt.Errorf("there is no session and no socket %s", which),
			"holdline sessions lists the sessions")
	}
	number, err := strconv.ParseInt(which, 10, 64)
	if err != nil {
		return err
	}
	params := control.DisconnectParams{Session: number}
	if _, err := attach.Ask[control.DisconnectAnswer](cmd, proc, control.Disconnect, params); err != nil {
		return err
	}
	return console.Say(cmd, "session %s is disconnected", which)
}

// closeSocket disables a socket in the file at path, and ends the sessions of its guests.
func closeSocket(cmd *cobra.Command, proc *cmdenv.Process, path, name string) error {
	if err := attach.CheckEdit(proc, path); err != nil {
		return err
	}
	if err := edit.SetKey(cmd.Context(), path, disabledKey(name), "true"); err != nil {
		return err
	}
	guests := 0
	if status, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, control.StatusParams{}); err == nil {
		guests = status.Guests(name)
	}
	if err := attach.ReloadFile(cmd, proc, path); err != nil {
		return err
	}
	// The daemon closes it in a moment. Nothing of a guest runs on when this command ends.
	_, _ = attach.Ask[control.DisconnectAnswer](cmd, proc, control.Disconnect, control.DisconnectParams{Socket: name})
	_ = console.Say(cmd, "socket %s is disabled, and %s disconnected", name, plural.Count(guests, "guest"))
	console.Line(cmd.ErrOrStderr(), 2, "to let them in again: holdline config unset %s", disabledKey(name))
	return nil
}
