package consultcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/commands"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/steps"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// lookEvery is the time between two looks at how a consult stands that read its files whole.
const lookEvery = time.Second

// live shows what one consult does, from its files. No daemon need run, and the end of one
// changes nothing.
type live struct {
	cmd  *cobra.Command
	proc *cmdenv.Process
	id   string
	dir  string

	views []*view
	panel bool // it has members, and no transcript of its own
	text  *console.Stream
	said  bool      // the model has said something since it used a tool
	note  string    // the last one about the queue
	soon  time.Time // when to look again
}

// showLive shows what a consult has done and does, until it has ended, and then how it ended. An
// interrupt ends the view and not the consult.
func showLive(cmd *cobra.Command, proc *cmdenv.Process, id string) error {
	root, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return err
	}
	dir := filepath.Join(statedir.In(root).Consults, id)
	l := &live{
		cmd: cmd, proc: proc, id: id, dir: dir, text: console.NewStream(cmd.OutOrStdout()),
		views: []*view{{steps: steps.Follow(dir)}},
	}
	if rec, err := jobdir.ReadRecord(dir); err == nil && rec.Members != nil {
		l.showMembers(rec.Members)
	}
	for {
		// Look first: what is then read has all that was written before the end.
		over, err := l.over()
		if err == nil {
			err = l.show()
		}
		switch {
		case err != nil:
			return err
		case over:
			return l.finish()
		}
		select {
		case <-cmd.Context().Done():
			return l.interrupted()
		case <-time.After(steps.Poll):
		}
	}
}

// interrupted returns the error of a view whose user has ended it.
func (l *live) interrupted() error {
	l.text.End()
	l.flushMembers()
	return cmdenv.WithHint(fmt.Errorf("interrupted: consult %s goes on", l.id),
		"watch it again with: holdline consult show -f "+l.id)
}

// over reports whether the consult has ended, by its files. It says what a queued one waits for.
func (l *live) over() (bool, error) {
	for _, name := range []string{jobdir.FileAnswer, engine.FileOutcome} { // a panel has no outcome
		if _, err := os.Lstat(filepath.Join(l.dir, name)); err == nil {
			return true, nil
		}
	}
	if time.Now().Before(l.soon) {
		return false, nil
	}
	l.soon = time.Now().Add(lookEvery)
	var a answer.Answer
	facts, _, err := jobdir.Look(l.dir, &a, &a.Version, &a.ID, true)
	if errors.Is(err, fs.ErrNotExist) {
		return false, l.unknown()
	}
	if err != nil {
		return false, fmt.Errorf("reading the files of consult %s: %w", l.id, err)
	}
	switch calls.DecideJob(facts) {
	case calls.JobUnknown:
		return false, l.unknown()
	case calls.JobWaits:
		l.sayWaiting()
		return false, nil
	case calls.JobGoesOn:
		return !facts.Alive && !facts.Group, nil
	case calls.JobEnded, calls.JobNeverBegan, calls.JobLost, calls.JobTorn:
	}
	return true, nil
}

// unknown returns the error about a consult that has no files. If the daemon knows it all the
// same, its files are elsewhere.
func (l *live) unknown() error {
	if _, err := askAbout(l.cmd, l.proc, control.ConsultShow, l.id); err == nil {
		return cmdenv.WithHint(
			fmt.Errorf("the daemon has consult %s, but its files are not in %s", l.id, filepath.Dir(l.dir)),
			"set XDG_STATE_HOME as it was where the daemon started; or, without the steps: holdline consult wait "+l.id)
	}
	return noConsult(l.id)
}

// sayWaiting says what a queued consult waits for, when that has changed. The files do not have
// its position: only the daemon, which starts it, knows that.
func (l *live) sayWaiting() {
	note := ""
	list, err := attach.Ask[control.ConsultListAnswer](l.cmd, l.proc, control.ConsultList, nil)
	if errors.Is(err, socket.ErrNoDaemon) {
		note = "queued; Holdline is not running, and starts it when it runs: holdline start"
	}
	for i := range list.Consults {
		if one := &list.Consults[i]; one.ID == l.id && one.State == string(answer.Queued) {
			note = one.Note
		}
	}
	if note != "" && note != l.note && !console.IsJSON(l.cmd) {
		l.note = note
		l.print(&steps.Step{At: time.Now(), Words: note})
	}
}

// show prints what the consult has done since the last call. With --json it prints the lines of
// the transcript as they are.
func (l *live) show() error {
	for {
		events, err := l.read()
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			if l.cmd.Context().Err() != nil { // what was recorded may be long
				return l.interrupted()
			}
			switch e.step.Kind {
			case engine.KindText:
				l.said = true
			case engine.KindStart, engine.KindTool, engine.KindCut:
				l.said = false
			}
			switch {
			case console.IsJSON(l.cmd):
				if _, err := fmt.Fprintf(l.cmd.OutOrStdout(), "%s\n", e.of.labelled(e.line)); err != nil {
					return err
				}
			case e.shown && l.panel:
				l.printMember(e.of, &e.step)
			case e.shown:
				l.print(&e.step)
			}
		}
	}
}

// styles are those of the steps that are not plain.
var styles = map[string]console.Style{
	engine.KindNote: console.Odd, engine.KindStderr: console.Odd, engine.KindLadder: console.Odd,
	engine.KindCut: console.Odd, engine.KindStart: console.Dim, engine.KindSession: console.Dim,
	engine.KindTurn: console.Dim, engine.KindEnd: console.Bold,
}

// print prints a step on a line with its time, or the next part of a text.
func (l *live) print(s *steps.Step) {
	if s.Kind == engine.KindText {
		l.text.Add(s.Words)
		return
	}
	l.text.End()
	at := s.At.Format(time.TimeOnly)
	console.Line(l.cmd.OutOrStdout(), len(at)+2, "%v  %v", console.Dim.Paint(at), styles[s.Kind].Paint(s.Words))
}

// finish says how the consult ended, and returns the same error as consult wait. It prints the
// answer if nothing was said since the last step: an answer with a schema, for example, is no
// text of the model.
func (l *live) finish() error {
	l.text.End()
	l.flushMembers()
	a, err := l.answer()
	if l.cmd.Context().Err() != nil {
		return l.interrupted()
	}
	if err != nil {
		return err
	}
	if (!l.said || l.panel) && a.Fault == nil && !console.IsJSON(l.cmd) {
		l.text.Add(a.Text)
		l.text.End()
	}
	return closeConsult(l.cmd, a)
}

// answer returns how the consult ended: from its answer, else from the running daemon, which may
// be about to write it, else from what the engine process has left.
func (l *live) answer() (control.ConsultAnswer, error) {
	a, err := answer.Read(l.dir)
	if err == nil {
		return commands.EncodeAnswer(a)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return control.ConsultAnswer{}, fmt.Errorf("the kept answer cannot be read: %w", err)
	}
	got, err := askAbout(l.cmd, l.proc, control.ConsultWait, l.id)
	if err == nil {
		return got, nil
	}
	if a, err := answer.Read(l.dir); err == nil { // the daemon ended right behind it
		return commands.EncodeAnswer(a)
	}
	rec, bad := jobdir.ReadRecord(l.dir)
	var out engine.Outcome
	if bad == nil {
		bad = jobdir.Read(l.dir, engine.FileOutcome, &out, &out.Version, engine.Version)
	}
	switch {
	case bad == nil:
	case !errors.Is(bad, fs.ErrNotExist):
		return got, bad
	case !errors.Is(err, socket.ErrNoDaemon):
		return got, err
	default:
		return got, cmdenv.WithHint(fmt.Errorf("consult %s has ended without an outcome, and Holdline is not running "+
			"to find out why", l.id), "holdline consult wait "+l.id)
	}
	return commands.EncodeAnswer(answer.FromOutcome(&rec, &out, time.UnixMilli(out.EndedUnixMS), rec.Ending))
}
