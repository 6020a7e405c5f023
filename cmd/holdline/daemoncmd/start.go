package daemoncmd

import (
	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/service"
)

// NewStartCommand returns the command start. It succeeds if a daemon runs already, so that
// scripts can call it at any time.
func NewStartCommand(proc *cmdenv.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "start",
		Short: "Start the daemon, also after holdline stop, and wait for it",
		Long: `Start the daemon as the first agent does, and wait until it answers. After "holdline
stop" this is how agents get it back; systemd listens for it again then, if it did.
Where systemd or launchd is set up to start it (holdline install), that does. Otherwise
it is a process of its own, which ends after 30 minutes without an agent; the next
agent starts it again.

If the daemon runs already, there is nothing to do and the command succeeds.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return startDaemon(cmd, proc) },
	}
}

// startDaemon starts the daemon unless one runs, waits until it answers, and prints which one
// that is.
func startDaemon(cmd *cobra.Command, proc *cmdenv.Process) error {
	paths, err := attach.PathsOf(cmd, proc)
	if err != nil {
		return err
	}
	// Where systemd listens, a connection starts the daemon.
	if !onCall(proc, paths) {
		if c, err := attach.Connect(cmd.Context(), cmd, proc); err == nil {
			defer c.Close()
			return console.Say(cmd, "Holdline is running already (daemon %d)", c.Daemon.PID)
		}
	}
	c, err := attach.Start(cmd, proc)
	if err != nil {
		return err
	}
	defer c.Close()
	by := ""
	if c.Daemon.Managed != service.Nobody {
		by = ", started by " + c.Daemon.Managed
	}
	return console.Say(cmd, "Holdline is running (daemon %d%s)", c.Daemon.PID, by)
}
