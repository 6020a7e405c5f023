package consultcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/plural"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// newListCommands returns the commands below consult, which act on the consults of all
// identities. list and show also work without a daemon. wait starts one and survives its end;
// the others need one that runs.
func newListCommands(proc *cmdenv.Process) []*cobra.Command {
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls", "ps"}, Short: "List the consults, running and kept, the latest first",
		Long: `List the consults, running and kept, the latest first. Without a daemon those are
listed whose files are there.

With --json, a list of objects: id, state (queued, running, done, failed,
cancelled), identity, engine, cwd, model, created_unix_ms, took_ms, cost_usd, code,
question (the beginning of the prompt), note (what it does, if it has not ended).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := listConsults(cmd, proc)
			if err != nil {
				return err
			}
			return console.Print(cmd, all, func(out io.Writer) { printConsults(out, all) })
		},
	}
	// wait blocks for long, so unlike the others it must survive the end of the daemon.
	wait := &cobra.Command{
		Use: "wait ID", Short: "Wait for a consult and print its answer", Args: oneID,
		Long: `Wait for a consult and print its answer. The command starts a daemon if none runs,
and goes on with the next one if it ends.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := pickConsult(cmd, proc, args[0])
			if err != nil {
				return err
			}
			answer, err := waitConsult(cmd, proc, id)
			if err != nil {
				return err
			}
			return printConsult(cmd, answer)
		},
	}
	cancel := &cobra.Command{
		Use: "cancel ID", Short: "End a running or queued consult; what it has is kept", Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := pickConsult(cmd, proc, args[0])
			if err != nil {
				return err
			}
			all, err := listConsults(cmd, proc)
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(all, func(c control.Consult) bool { return c.ID == id }); i >= 0 {
				if state := all[i].State; state != "queued" && state != "running" {
					fmt.Fprintf(cmd.ErrOrStderr(), "consult %s had already ended (%s); this is what it has:\n", id, state)
				}
			}
			answer, err := askAbout(cmd, proc, control.ConsultCancel, id)
			if err != nil {
				return err
			}
			return printConsult(cmd, answer)
		},
	}
	return []*cobra.Command{list, newShowCommand(proc), wait, newSayCommand(proc), cancel, newRemoveCommand(proc)}
}

// newShowCommand returns the command consult show.
func newShowCommand(proc *cmdenv.Process) *cobra.Command {
	var follow bool
	show := &cobra.Command{
		Use: "show ID", Short: "Print a consult's answer, or show live what it does", Args: oneID,
		Long: `Print a consult's answer, or what there is of it.

With -f, show what the consult has done and does, as it happens: what the model says,
the tools that it uses, retries and costs. The view needs no daemon, goes on if the
daemon ends, and ends with the consult, with the exit code of consult wait. Ctrl-C ends
the view alone. With --json too, each step is one line: a JSON object with q (its
number), t (Unix ms), k (its kind) and more.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := pickConsult(cmd, proc, args[0])
			if err != nil {
				return err
			}
			if follow {
				return showLive(cmd, proc, id)
			}
			answer, err := askAbout(cmd, proc, control.ConsultShow, id)
			if errors.Is(err, socket.ErrNoDaemon) {
				answer, err = keptAnswer(proc, id)
			}
			if err != nil {
				return err
			}
			return printConsult(cmd, answer)
		},
	}
	show.Flags().BoolVarP(&follow, "follow", "f", false, "show live what it does, until it ends")
	return show
}

// oneID wants one argument. More are most likely a prompt that begins with the name of a
// command.
func oneID(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cmdenv.WithHint(
			fmt.Errorf("%w: holdline consult %s takes one ID", cmdenv.ErrUsage, cmd.Name()),
			fmt.Sprintf("a prompt that begins with %q goes in quotes, or behind --", cmd.Name()))
	}
	return cobra.ExactArgs(1)(cmd, args)
}

// askAbout makes one request about one consult and returns the answer. The request may be made
// again if the daemon is replaced.
func askAbout(
	cmd *cobra.Command, proc *cmdenv.Process, method, id string,
) (answer control.ConsultAnswer, err error) {
	err = attach.WithDaemon(cmd, proc, func(ctx context.Context, c *control.Client) error {
		progress, done := console.ProgressLine(cmd.ErrOrStderr())
		defer done()
		return c.Call(ctx, method, control.ConsultID{ID: id}, &answer, progress)
	})
	return answer, err
}

// listConsults returns all consults, the latest first: as the running daemon knows them, or
// those whose files are there.
func listConsults(cmd *cobra.Command, proc *cmdenv.Process) ([]control.Consult, error) {
	answer, err := attach.Ask[control.ConsultListAnswer](cmd, proc, control.ConsultList, nil)
	if errors.Is(err, socket.ErrNoDaemon) {
		return keptConsults(proc)
	}
	return answer.Consults, err
}

// pickConsult returns the id of the consult that the user means: by its id, by the beginning of
// the id, or by the word last.
func pickConsult(cmd *cobra.Command, proc *cmdenv.Process, word string) (string, error) {
	if jobdir.IsID(word) {
		return word, nil // without a question; what is done with it says whether there is such a consult
	}
	all, err := listConsults(cmd, proc)
	if err != nil {
		return "", err
	}
	return pick(word, all)
}

// pick returns the id of the consult that word means, of all, which are sorted with the latest
// first.
func pick(word string, all []control.Consult) (string, error) {
	asked := func(c control.Consult) bool { return c.Panel == "" } // and no member of a panel
	if i := slices.IndexFunc(all, asked); word == "last" && i >= 0 {
		return all[i].ID, nil
	}
	var found []string
	for _, one := range all {
		if strings.HasPrefix(one.ID, strings.ToLower(word)) {
			found = append(found, one.ID)
		}
	}
	switch {
	case word == "": // such as a variable of the shell that is not set; every id begins with that
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		slices.Sort(found)
		return "", fmt.Errorf("%q begins the ids of %d consults: %s", word, len(found), strings.Join(found, ", "))
	case word == "last":
		return "", errors.New("there is no consult, running or kept")
	}
	return "", noConsult(word)
}

// noConsult returns the error about a word that means no consult. The daemon's says the same.
func noConsult(word string) error {
	return fmt.Errorf("there is no consult %q; those that there are: holdline consult list", word)
}

// printConsults prints a row for each consult, with the code of its fault if it has failed. The
// cost is empty if it is not known, as with engines that tell none. While one works, the table
// says what each does. The question comes last,
// since only the last cell may be long.
func printConsults(out io.Writer, consults []control.Consult) {
	if len(consults) == 0 {
		fmt.Fprintln(out, "no consult is running or kept")
		return
	}
	head := []string{"CONSULT", "STATE", "AGE", "TOOK", "COST", "MODEL", "IDENTITY", "QUESTION"}
	works := slices.ContainsFunc(consults, func(c control.Consult) bool { return c.Note != "" })
	if works {
		head = slices.Insert(head, len(head)-1, "STEP")
	}
	t := console.NewTable(out, head...)
	t.Optional("STEP", "IDENTITY", "MODEL", "TOOK", "COST")
	now := time.Now().UnixMilli()
	panels := map[string]bool{}
	for _, c := range consults {
		panels[c.ID] = c.Panel == ""
	}
	for _, j := range byPanel(consults) {
		// A cost of 0 is shown, unlike one that is not known.
		cost := console.Right("")
		if j.CostUSD != nil {
			cost = console.Right(plural.Dollars(*j.CostUSD))
		}
		state := j.State
		if j.Code != "" && j.Code != j.State {
			state += ": " + j.Code
		}
		took := console.Right("") // not known
		if j.TookMS > 0 {
			took = console.Right(plural.Age(j.TookMS))
		}
		id := j.ID
		if j.Label != "" {
			id = "  " + id
			if panels[j.Panel] { // which has the question
				j.Question = j.Engine
			}
			j.Question = j.Label + ": " + j.Question
		}
		row := []any{
			id, state, console.Right(plural.Age(max(0, now-j.CreatedMS))), took, cost,
			cmp.Or(j.Model, j.Engine), j.Identity,
		}
		if works {
			row = append(row, fault.Short(j.Note, maxStep))
		}
		t.Row(append(row, fault.Short(j.Question, maxQuestion))...)
	}
	t.Flush()
}

// byPanel returns the consults with the members of each panel behind it, in their order.
func byPanel(consults []control.Consult) []control.Consult {
	members := map[string][]control.Consult{}
	for _, c := range consults {
		members[c.Panel] = append(members[c.Panel], c)
	}
	var rows []control.Consult
	for _, c := range members[""] {
		of := members[c.ID]
		slices.SortFunc(of, func(a, b control.Consult) int { return strings.Compare(a.Label, b.Label) })
		rows = append(append(rows, c), of...)
		delete(members, c.ID)
	}
	delete(members, "")
	for _, id := range slices.Sorted(maps.Keys(members)) { // their panel is not kept any more
		rows = append(rows, members[id]...)
	}
	return rows
}

// What a row shows at most of a question and of what a consult does, in characters.
const (
	maxQuestion = 60
	maxStep     = 40
)

// newRemoveCommand returns the command consult rm. It tries all ids, even if one fails.
func newRemoveCommand(proc *cmdenv.Process) *cobra.Command {
	return &cobra.Command{
		Use: "rm ID…", Aliases: []string{"remove"}, Short: "Remove kept answers", Args: cobra.MinimumNArgs(1),
		Long: `Remove kept answers, with their prompts. One that runs is cancelled first, with
holdline consult cancel; one that its client may still come for stays.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			// An unknown id must not keep the other answers from being removed.
			var errs []error
			for _, word := range args {
				id, err := pickConsult(cmd, proc, word)
				if err == nil {
					err = removeConsult(cmd, proc, id)
				}
				if errors.Is(err, socket.ErrNoDaemon) {
					return err
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
	}
}

// removeConsult asks the daemon to remove a kept answer. If the daemon ends before it has answered,
// the next one is asked; that it has no such consult is no error then.
func removeConsult(cmd *cobra.Command, proc *cmdenv.Process, id string) error {
	again := false
	return attach.WithDaemon(cmd, proc, func(ctx context.Context, c *control.Client) error {
		if again {
			var there control.ConsultListAnswer
			err := c.Call(ctx, control.ConsultList, nil, &there, nil)
			isIt := func(one control.Consult) bool { return one.ID == id }
			if err != nil || !slices.ContainsFunc(there.Consults, isIt) {
				return err
			}
		}
		again = true
		return c.Call(ctx, control.ConsultRemove, control.ConsultID{ID: id}, nil, nil)
	})
}

// waitConsult waits for a consult and returns its answer. It starts a daemon if none runs, and
// goes on with the next one if the daemon ends. An interrupt ends the wait and not the consult.
func waitConsult(cmd *cobra.Command, proc *cmdenv.Process, id string) (answer control.ConsultAnswer, err error) {
	c, err := attach.ConnectOrStart(cmd, proc)
	if err != nil {
		return answer, err
	}
	show, done := console.ProgressLine(cmd.ErrOrStderr())
	err = attach.Outlast(cmd, proc, c, func(ctx context.Context, c *control.Client) error {
		return c.Call(ctx, control.ConsultWait, control.ConsultID{ID: id}, &answer, show)
	})
	done()
	switch {
	case errors.Is(err, context.Canceled):
		return answer, cmdenv.WithHint(fmt.Errorf("interrupted: consult %s goes on", id),
			"wait for it again with: holdline consult wait "+id)
	case errors.Is(err, cmdenv.ErrLost):
		return answer, lostConsult(id, err)
	}
	return answer, err
}
