package consultcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/calls"
	"holdline/daemon/commands"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// keptConsults returns the consults that the state directory has, the latest first. It is for
// when no daemon runs. It changes nothing: what the next daemon makes of a consult without an
// answer is said in advance, by the same rules.
func keptConsults(proc *cmdenv.Process) ([]control.Consult, error) {
	root, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return nil, err
	}
	dir := statedir.In(root).Consults
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the kept consults: %w", err)
	}
	list := []control.Consult{}
	for _, e := range entries {
		if !jobdir.IsID(e.Name()) {
			continue
		}
		if info := keptRow(filepath.Join(dir, e.Name())); info != nil {
			list = append(list, commands.ConsultRow(*info))
		}
	}
	slices.SortFunc(list, func(a, b control.Consult) int { return cmp.Compare(b.CreatedMS, a.CreatedMS) })
	return list, nil
}

// keptRow returns the row of the consult in a directory; nil if there is none that can be read.
func keptRow(dir string) *answer.Info {
	var a answer.Answer
	facts, rec, err := jobdir.Look(dir, &a, &a.Version, &a.ID, true)
	if err != nil {
		return nil
	}
	sinceBegin := max(0, time.Since(time.UnixMilli(rec.CreatedUnixMS)).Milliseconds())
	info := answer.New(&rec, answer.Failed).Info()
	info.TookMS = 0 // when one without an answer ended is not known
	switch calls.DecideJob(facts) {
	case calls.JobUnknown:
		return nil
	case calls.JobEnded:
		info = a.Info()
	case calls.JobGoesOn:
		info.State, info.TookMS = answer.Running, sinceBegin
	case calls.JobWaits:
		info.State, info.TookMS = answer.Queued, sinceBegin
	case calls.JobNeverBegan:
		info.Code = string(fault.ProcessFailure)
	case calls.JobLost, calls.JobTorn:
		info.Code = string(fault.OutcomeUnknown)
	}
	return &info
}

// keptAnswer returns the answer of a consult from its file. It is for when no daemon runs.
func keptAnswer(proc *cmdenv.Process, id string) (control.ConsultAnswer, error) {
	root, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return control.ConsultAnswer{}, err
	}
	dir := filepath.Join(statedir.In(root).Consults, id)
	a, err := answer.Read(dir)
	switch {
	case err == nil:
		return commands.EncodeAnswer(a)
	case !errors.Is(err, fs.ErrNotExist):
		return control.ConsultAnswer{}, fmt.Errorf("the kept answer cannot be read: %w", err)
	case keptRow(dir) == nil:
		return control.ConsultAnswer{}, noConsult(id)
	}
	return control.ConsultAnswer{}, cmdenv.WithHint(
		fmt.Errorf("consult %s has no answer yet, and Holdline is not running", id), "holdline consult wait "+id)
}

// Kept returns the consults that the state directory has, as far as it can be read, for
// completion in the user's shell.
func Kept(proc *cmdenv.Process) []control.Consult {
	all, _ := keptConsults(proc)
	return all
}
