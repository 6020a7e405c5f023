package serverscmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/screen"
	"holdline/daemon/hosted/files"
	"holdline/daemon/hosted/serverlog"
	"holdline/daemon/spelling"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// logsCommand returns the command servers logs, which is the same as logs with a name or --all.
func (s *serversCommand) logsCommand() *cobra.Command {
	var how LogOptions
	cmd := &cobra.Command{
		Use: "logs [NAME]", Short: "Show what a server wrote to stderr, or all of them", Args: cobra.MaximumNArgs(1),
		Long: `Show what the processes of a server wrote to stderr. Of a server without a process it
shows the last one. Without NAME it shows all servers together, by time, and each line
begins with the server's name.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return PrintLogs(cmd, s.proc, strings.Join(args, ""), how)
		},
	}
	how.AddFlags(cmd)
	return cmd
}

// LogOptions says how to print logs.
type LogOptions struct {
	lines  uint // how many of each process to begin with
	Follow bool // go on as it grows
	raw    bool // also characters that control a terminal, unless the output is one
	Since  console.Since
}

// AddFlags adds the flags of a command that prints logs of servers.
func (o *LogOptions) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on as the log grows")
	f.UintVarP(&o.lines, "lines", "n", 200, "how many lines of each log to begin with (with --since: all)")
	f.Var(&o.Since, "since", "only what was written since `TIME`: 10m ago, or 15:04, 2006-01-02 15:04, or RFC 3339")
	f.BoolVar(&o.raw, "raw", false,
		"into a pipe or a file: with the escape sequences of the server, which otherwise show as ?")
}

// Lines returns how many lines of a log the user wants to begin with.
func (o *LogOptions) Lines(cmd *cobra.Command) uint {
	if !o.Since.IsZero() && !cmd.Flags().Changed("lines") {
		return math.MaxUint
	}
	return o.lines
}

// PrintLogs prints what the processes of a server have written to stderr: the last lines of each. If
// name is "" it prints those of all servers. With follow it goes on as they write, also when the
// daemon is replaced, until the user ends it, which is no error. It asks again every
// [console.LogPoll].
func PrintLogs(cmd *cobra.Command, proc *cmdenv.Process, name string, how LogOptions) error {
	// The printer outlives connections, so that nothing is printed twice.
	p := &logPrinter{
		out: cmd.OutOrStdout(), lines: how.Lines(cmd), raw: how.raw, all: name == "", after: map[string]int64{},
	}
	params := control.ServerLogsParams{
		Name: name, After: p.after, Follow: how.Follow, SinceMS: how.Since.UnixMS(), Ended: true,
	}
	// look prints the logs of one daemon. It may be called again for the next one: p.after
	// says how far each log was printed, by worker, and workers outlive daemons.
	look := func(ctx context.Context, c *control.Client) error {
		for {
			var answer control.ServerLogsAnswer
			err := c.Call(ctx, control.ServerLogs, params, &answer, nil)
			switch {
			case how.Follow && errors.Is(err, context.Canceled): // the user ends a followed log so
				return nil
			case err != nil:
				return err
			}
			if params.Ended {
				sayEnded(cmd, name, &answer, how)
			}
			params.Ended = false
			if err := p.printNew(answer.Logs); err != nil || !how.Follow {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(console.LogPoll):
			}
		}
	}
	if !how.Follow {
		err := attach.WithDaemon(cmd, proc, look)
		if errors.Is(err, socket.ErrNoDaemon) {
			return printKept(cmd, proc, name, how, p, err)
		}
		return err
	}
	c, err := attach.Connect(cmd.Context(), cmd, proc)
	if err != nil {
		return err
	}
	// The user may also end the log while no daemon runs.
	if err = attach.Outlast(cmd, proc, c, look); errors.Is(err, attach.ErrAbsent) {
		return nil
	}
	return err
}

// printKept prints the logs that the last daemon has kept of processes that have ended, since none runs
// now. It returns absent, which says that, if there is no such log.
func printKept(
	cmd *cobra.Command, proc *cmdenv.Process, name string, how LogOptions, p *logPrinter, absent error,
) error {
	s := serversCommand{proc: proc}
	_, cfg, err := s.loadConfig()
	if err != nil {
		return absent
	}
	root, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return absent
	}
	var answer control.ServerLogsAnswer
	for _, server := range spelling.Sorted(maps.Keys(cfg.Servers)) {
		if name != "" && name != server {
			continue
		}
		l, err := serverlog.Last(files.LogIn(statedir.In(root).Servers, server), how.Since.UnixMS())
		if err == nil && l != nil {
			answer.Logs = append(answer.Logs, *l)
		}
	}
	if len(answer.Logs) == 0 {
		return absent
	}
	console.Warn(cmd, "no daemon runs; this is what the last processes of servers wrote")
	return p.printNew(answer.Logs)
}

// sayEnded prints to stderr what is known of a server that has no process: its last fault, and when
// the process ended whose log follows. Without a log it prints to stdout the last lines of
// stderr that the fault has.
func sayEnded(cmd *cobra.Command, name string, answer *control.ServerLogsAnswer, how LogOptions) {
	switch {
	case name == "" && len(answer.Logs) == 0:
		console.Warn(cmd, "no server has a log yet; to start one: holdline servers start NAME")
		return
	case name == "" || len(answer.Logs) > 0 && answer.Logs[0].EndedMS == 0:
		return
	}
	way := "start"
	if answer.Disabled {
		way = "enable"
	}
	console.Warn(cmd, "no process of server %s runs; to start one: holdline servers %s %[1]s", name, way)
	ended := ""
	if len(answer.Logs) > 0 {
		at := time.UnixMilli(answer.Logs[0].EndedMS)
		ended = "ended " + at.Format(time.DateTime)
		if answer.Logs[0].Text == "" {
			ended += ", and wrote nothing to stderr"
			if !how.Since.IsZero() {
				ended += " since then"
			}
		}
	}
	if f := answer.Last; f != nil {
		ended = strings.Join(slices.DeleteFunc(
			[]string{ended, strings.Map(console.Printable, f.Fault.Detail)}, func(s string) bool { return s == "" }), ": ")
		if f.Cause != nil && len(answer.Logs) == 0 {
			defer printTail(cmd.OutOrStdout(), f)
		}
	}
	if ended != "" {
		console.Warn(cmd, "the last one: %s", ended)
	}
}

// printTail prints the last lines of stderr that a fault has.
func printTail(w io.Writer, f *fault.Record) {
	for _, line := range f.Cause.StderrTail {
		fmt.Fprintln(w, strings.Map(console.Printable, line))
	}
}

// logPrinter prints logs of processes, each byte once. One goroutine uses it.
type logPrinter struct {
	out       io.Writer
	lines     uint             // how many of each process to begin with
	raw       bool             // also characters that control a terminal
	all       bool             // of all servers: each line begins with the server's name
	width     int              // of the longest name so far, if all
	filter    screen.Filter    // unless raw
	after     map[string]int64 // by worker: how far its log was printed
	last, end string           // worker whose log was printed last, and the line end that this part lacks
}

// printNew prints the new part of each log. When the process changes it prints a heading first,
// unless there is only one process. The error is that of a write.
func (p *logPrinter) printNew(logs []control.ServerLog) error {
	if p.all {
		return p.printTogether(logs)
	}
	for _, l := range logs {
		text := p.fresh(&l)
		if len(text) == 0 {
			continue
		}
		if p.last != l.Worker && (p.last != "" || len(logs) > 1) {
			fmt.Fprintf(p.out, "%s==> process %d %s\n", p.end, l.PID, l.Root)
		}
		p.last, p.end = l.Worker, strings.TrimPrefix("\n", string(text[len(text)-1:]))
		if !p.raw {
			text = p.filter.Legible(text)
		}
		if err := console.WriteLog(p.out, text); err != nil {
			return err
		}
	}
	return nil
}

// fresh returns what of a log was not printed yet, and counts it as printed.
func (p *logPrinter) fresh(l *control.ServerLog) []byte {
	text := []byte(l.Text)
	// Only the end of a log that is new here is printed; later parts are printed whole.
	if _, known := p.after[l.Worker]; !known {
		text = console.EndOf(text, p.lines)
	}
	p.after[l.Worker] = l.Next
	return text
}

// printTogether prints the new lines of all logs by the time when they were written, each behind
// the name of its server. A line whose time is not known follows the one before it.
func (p *logPrinter) printTogether(logs []control.ServerLog) error {
	type line struct {
		name, text string
		unixMS     int64
	}
	many := map[string]int{}
	for _, l := range logs {
		many[l.Server]++
	}
	var lines []line
	for _, l := range logs {
		name := l.Server
		if many[l.Server] > 1 {
			name = fmt.Sprintf("%s %d", name, l.PID)
		}
		whole := strings.Count(l.Text, "\n")
		text := string(p.fresh(&l))
		p.width = max(p.width, len(name)) // also of those that have written nothing yet
		var at int64
		number, times := whole-strings.Count(text, "\n"), l.Times
		for one := range strings.Lines(text) {
			for len(times) > 0 && times[0].Line <= number {
				at, times = times[0].UnixMS, times[1:]
			}
			if one = strings.TrimSuffix(one, "\n"); !p.raw {
				one = string(new(screen.Filter).Legible([]byte(one)))
			}
			lines = append(lines, line{name: name, text: one, unixMS: at})
			number++
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return int(a.unixMS - b.unixMS) })
	for _, l := range lines {
		if console.Columns(p.out) > 0 {
			console.Line(p.out, p.width+3, "%-*s | %s", p.width, l.name, l.text)
		} else if _, err := fmt.Fprintf(p.out, "%-*s | %s\n", p.width, l.name, l.text); err != nil {
			return err
		}
	}
	return nil
}
