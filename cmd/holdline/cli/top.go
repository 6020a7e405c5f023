package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/pair"
)

// newTopCommand returns the command top. What it shows is in package top, which this program
// must not link: all workers would carry it.
func newTopCommand(proc *cmdenv.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Watch agents, servers and consults on the whole terminal, and act",
		Long: `Watch agents, servers, consults and events on the whole terminal, and act on them.

Each agent is one row, however many entries it has. A server shows its state, the memory
of its processes, its calls per second now and recently, the time that half of its calls
stay below (p50), and its errors. A consult shows the question, who asked it, its time
and cost, and what it does right now. Events are crashes, restarts, upgrades, refused
budgets and so on, as they happen.

Keys:
  arrows, tab   move; between the tables
  enter         details
  l             what a server writes to its log
  r, s          restart, stop a server; s cancels a consult. They ask first
  /             show only rows with these words; esc shows all
  m, c, e, n    sort servers by memory, calls, errors, name
  ?, q          show these keys, quit

It starts no daemon; when the daemon ends, it waits for the next one and goes on. It
needs a terminal of 80 columns and 24 lines; NO_COLOR switches colours off. For scripts
there is holdline status --json.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err == nil {
				exe, err = filepath.EvalSymlinks(exe)
			}
			if err != nil {
				return fmt.Errorf("this program cannot be found: %w", err)
			}
			path := filepath.Join(filepath.Dir(exe), pair.Top)
			argv := []string{path}
			if explicit, _ := cmd.Flags().GetString("socket"); explicit != "" {
				argv = append(argv, explicit)
			}
			err = syscall.Exec(path, argv, topEnviron(cmd, proc)) // returns only if it fails
			if errors.Is(err, fs.ErrNotExist) {
				return cmdenv.WithHint(
					fmt.Errorf("%s is not beside this program, in %s", pair.Top, filepath.Dir(exe)),
					"make install, or ./holdline install --bin of a release, installs both; holdline status --watch "+
						"needs no second program")
			}
			return fmt.Errorf("%s cannot be run: %w", path, err)
		},
	}
}

// topEnviron returns the environment of holdline-top, which has no flags.
func topEnviron(cmd *cobra.Command, proc *cmdenv.Process) []string {
	env := proc.Environ()
	if at := attach.Whereabouts(proc); proc.Getenv("HOLDLINE_PROJECT") == "" && at.Project != "" {
		env = append(env, "HOLDLINE_PROJECT="+at.Project) // a server that is restarted may be this project's
	}
	if color, _ := cmd.Flags().GetString("color"); color == "never" {
		env = append(env, "NO_COLOR=1")
	}
	return env
}
