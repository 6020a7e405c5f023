package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/importer"
	"holdline/cmd/holdline/setupcmd"
	"holdline/daemon/config"
	"holdline/daemon/plural"
	"holdline/daemon/trouble"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// runWelcome is what holdline does without arguments: it prints a short status and the one next
// step. That no daemon runs is no error, unlike in other commands.
func runWelcome(cmd *cobra.Command, proc *cmdenv.Process) error {
	out := cmd.OutOrStdout()
	s, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, control.StatusParams{Memory: true})
	next := ""
	switch {
	case errors.Is(err, socket.ErrNoDaemon):
		next, err = welcomeWithout(out, proc, err)
	case err == nil:
		next = welcomeWith(out, &s)
	}
	if err != nil {
		return err
	}
	if next == runSetup && isConnected(proc) {
		next = "holdline servers add NAME -- COMMAND ARG...; or ask a second opinion: holdline consult QUESTION"
	}
	fmt.Fprintln(out)
	console.Line(out, 6, "Next: %v", console.Bold.Paint(next))
	console.Line(out, 6, "%v", console.Dim.Paint("Help: holdline --help"))
	return nil
}

// runSetup is the next step of a user who has no server.
const runSetup = "holdline setup"

// isConnected reports whether an entry of a client starts holdline already: then setup has nothing to do.
func isConnected(proc *cmdenv.Process) bool {
	plan, err := setupcmd.LookAtClients(proc)
	return err == nil && slices.ContainsFunc(plan.Files, (*importer.File).Connected)
}

// welcomeWithout prints what is the case without a daemon and returns the next step. why is why
// there is none. A configuration file that cannot be read is an error.
func welcomeWithout(out io.Writer, proc *cmdenv.Process, why error) (next string, err error) {
	path, err := cmdenv.ConfigPath("", proc.Getenv)
	if err != nil {
		return "", err
	}
	cfg, err := config.Load(path)
	mark, stopped := errors.AsType[*socket.StoppedError](why)
	switch n := len(cfg.Servers); {
	case err != nil:
		return "", err
	case n == 0:
		console.Line(out, 0, "Holdline is not set up: no MCP server is configured.")
		return runSetup, nil
	case stopped:
		console.Line(out, 0, "%v. %s configured.", mark, plural.Count(n, "server"))
		return "holdline start", nil
	default:
		console.Line(out, 0, "Holdline is not running. %s configured. It starts with your first agent.",
			plural.Count(n, "server"))
		return "start an agent, or: holdline start", nil
	}
}

// welcomeWith prints a short status and returns the next step: the first command that fixes
// something, or else how to see more.
func welcomeWith(out io.Writer, s *control.StatusAnswer) (next string) {
	printHeadline(out, s)
	for _, t := range trouble.All(s) {
		if !t.Bad {
			continue
		}
		if t.Server != "" {
			t.What = t.Server + ": " + t.What
		}
		console.Line(out, 2, "%v", console.Bad.Paint(t.What))
		if next == "" {
			next = t.Fix
		}
	}
	switch {
	case next != "":
		return next
	case len(s.Servers) == 0:
		return runSetup
	case len(s.Sessions) == 0:
		console.Line(out, 0, "No agent is connected.")
		return "start an agent, or: holdline doctor"
	}
	return "holdline top"
}
