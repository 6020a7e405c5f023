package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/trial"
	"holdline/daemon/adapter/engines"
	"holdline/protocol/control"
)

// runSelftest runs consults that try to write, in a directory of its own, and prints the
// outcome of each attempt. The exit code is 1 if anything was written, or if an attempt was
// not made. It removes the directory in any case.
//
// The self-test needs no daemon: package trial has a supervisor and workers of its own.
func runSelftest(cmd *cobra.Command, proc *cmdenv.Process) (err error) {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "hls") // short: a socket's path has little room
	if err != nil {
		return fmt.Errorf("making a directory for the self-test: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// One line on the terminal names the attempt that is under way.
	show, done := console.ProgressLine(cmd.ErrOrStderr())
	if show == nil { // no terminal
		show = func(control.Progress) {}
	}
	// Test the program that a daemon started from here would run. The configuration names it,
	// unless a variable does.
	consult := consultConfig(proc).Consult
	engines.UseVariables(&consult, proc.Getenv)
	agents := map[string][]string{}
	for name, a := range consult.Agents {
		agents[name] = a.Writable
	}
	r, err := trial.Run(cmd.Context(), trial.Options{
		Exe: exe, Version: cmdenv.Version, Bin: consult.ClaudeBin, Environ: proc.Environ(), Dir: dir,
		Agents: agents, NoWeb: !consult.Web,
		Log:      slog.New(slog.DiscardHandler),
		Progress: func(what string) { show(control.Progress{Message: "trying to write: " + what}) },
	})
	done()
	if err != nil {
		return cmdenv.WithHint(fmt.Errorf("the self-test could not be made: %w", err), "holdline doctor")
	}
	err = console.Print(cmd, r, func(out io.Writer) { printSelftest(out, r) })
	if err == nil && !r.Held() {
		return cmdenv.ExitWith(cmdenv.ExitFailure)
	}
	return err
}

// printSelftest prints what enforces each level, then a table with a row for each attempt and
// a column for each level, then the files that were written elsewhere. The last line says
// whether all is well, as the exit code does.
func printSelftest(out io.Writer, r *trial.Report) {
	const indent = 9
	if r.Program != "" {
		fmt.Fprintf(out, "claude %s at %s\n", r.Version, r.Program)
	}
	for _, c := range r.Columns {
		switch {
		case c.Skipped != "":
			console.Line(out, indent, "%-8v %s: %s", c.Name, c.What, c.Skipped)
		default:
			console.Line(out, indent, "%-8v %s: enforced by %s", c.Name, c.What, c.EnforcedBy)
			for _, note := range c.Notes {
				console.Line(out, indent, "         %s", note)
			}
		}
	}
	fmt.Fprintln(out)
	var heads []string
	for _, c := range r.Columns {
		heads = append(heads, strings.ToUpper(c.Name))
	}
	t := console.NewTable(out, append(heads, "ATTEMPT")...)
	for i, name := range r.Attempts {
		row := make([]any, 0, len(r.Columns)+1)
		// A level that was skipped has no outcomes.
		for _, c := range r.Columns {
			cell := trial.NoMatter
			if i < len(c.Outcomes) {
				cell = c.Outcomes[i]
			}
			row = append(row, cell)
		}
		t.Row(append(row, name)...)
	}
	t.Flush()
	for _, c := range r.Columns {
		for _, path := range c.Elsewhere {
			fmt.Fprintf(out, "%s: WROTE %s\n", c.Name, path)
		}
	}
	if r.Held() {
		fmt.Fprintln(out, "\nnothing was written")
	} else {
		fmt.Fprintln(out, "\nnot all is as it should be: see the lines that do not say refused")
	}
}
