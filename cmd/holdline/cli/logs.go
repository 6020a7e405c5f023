package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"holdline/contrib"
	"holdline/daemon/service"
	"holdline/protocol/control"
	"holdline/protocol/ownfile"
)

// logPoll is how often a followed log is looked at.
const logPoll = 200 * time.Millisecond

func newLogsCommand(w *world) *cobra.Command {
	var follow bool
	lines := 200
	cmd := &cobra.Command{
		Use:   "logs [NAME]",
		Short: "Show the daemon's log, or what a server wrote to stderr",
		Long: `Show the end of the daemon's log: the journal's where systemd runs it, the file in
~/Library/Logs where launchd does, else the file that a daemon started on demand
writes. With NAME, what the processes of that MCP server wrote to stderr; values that
its env and headers configure, and secrets in its args and url, are shown as ***.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lines < 0 {
				return fmt.Errorf("%w: --lines %d is negative, 0 is none", errUsage, lines)
			}
			if len(args) == 1 {
				return serverLogs(cmd, w, args[0], lines, follow)
			}
			c, err := connect(cmd, w)
			if errors.Is(err, errNoDaemon) && service.FindUnits(w.getenv).Enabled() {
				return journal(cmd, follow, lines)
			}
			if err == nil {
				managed := c.Daemon.Managed
				var status control.StatusAnswer
				err := c.Call(cmd.Context(), control.Status, nil, &status, nil)
				c.Close()
				if managed == service.Systemd {
					return journal(cmd, follow, lines)
				}
				if err == nil && status.Daemon.StartedBy == service.Launchd {
					return tail(cmd.Context(), cmd.OutOrStdout(), filepath.Join(w.getenv("HOME"), contrib.LaunchLog), lines, follow)
				}
				if err == nil && status.Daemon.StartedBy == "shell" {
					fmt.Fprintf(cmd.ErrOrStderr(), "holdline: daemon %d was started by hand and logs to its own terminal; this is the log of those started on demand\n", status.Daemon.PID)
				}
			}
			dir, err := stateDir(w.getenv)
			if err != nil {
				return err
			}
			return tail(cmd.Context(), cmd.OutOrStdout(), filepath.Join(dir, daemonLog), lines, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as the log grows")
	cmd.Flags().IntVarP(&lines, "lines", "n", lines, "how many lines to begin with")
	return cmd
}

func journal(cmd *cobra.Command, follow bool, lines int) error {
	// Not --user, which looks into journals of the user's own alone: there is
	// none where the journal is not kept over a reboot.
	args := []string{"--user-unit", contrib.SystemdService, "-n", fmt.Sprint(lines), "--no-pager"}
	if follow {
		args = append(args, "-f")
	}
	c := exec.CommandContext(cmd.Context(), "journalctl", args...)
	c.Stdout, c.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := c.Run(); err != nil && cmd.Context().Err() == nil {
		return fmt.Errorf("journalctl: %w", err)
	}
	return nil
}

// maxTail is how much of a log's end is looked through.
const maxTail = 1 << 20

// tail prints the last lines of a file, and goes on if follow.
func tail(ctx context.Context, w io.Writer, path string, lines int, follow bool) error {
	f, err := ownfile.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return &hinted{fmt.Errorf("there is no log at %s", path), "no daemon was started on demand yet"}
	} else if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer func() { f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	at := max(0, info.Size()-maxTail)
	end := make([]byte, info.Size()-at)
	n, err := f.ReadAt(end, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("log: %w", err)
	}
	if _, err := w.Write(endOf(end[:n], lines)); err != nil {
		return err
	}
	at += int64(n)
	for follow {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(logPoll):
		}
		if now, err := os.Stat(path); err == nil && !os.SameFile(now, info) || err == nil && now.Size() < at {
			// Another file took its place, or it was cut: begin again, behind
			// the last of what was put aside.
			next, err := ownfile.Open(path)
			if err != nil {
				continue
			}
			if _, err := io.Copy(w, io.NewSectionReader(f, at, 1<<40)); err != nil {
				next.Close()
				return err
			}
			f.Close()
			f, info, at = next, now, 0
		}
		n, err := io.Copy(w, io.NewSectionReader(f, at, 1<<40))
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

// endOf is the end of b with that many lines.
func endOf(b []byte, lines int) []byte {
	if lines <= 0 {
		return nil
	}
	for i := len(b) - 1; i > 0; i-- {
		if b[i-1] == '\n' {
			lines--
			if lines <= 0 {
				return b[i:]
			}
		}
	}
	return b
}
