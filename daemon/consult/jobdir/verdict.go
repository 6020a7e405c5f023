package jobdir

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/supervisor/finding"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Facts are what a daemon that starts finds in the directory of a job. Boot means that
// the job was asked for under this boot of the machine.
type Facts struct {
	finding.Facts
	Job    bool // there is a whole job.json
	Answer bool // there is a whole answer.json
	Panel  bool // the job is a panel: it has members, and no worker

	Torn    bool // there is an answer.json that is not whole
	Damaged bool // there is a job.json that is not whole, or it is not known which files a worker has
}

// Verdict says what became of a job of an earlier daemon.
type Verdict int

// The verdicts.
const (
	Unknown    Verdict = iota + 1 // no client knows its id
	Ended                         // it has its answer
	GoesOn                        // its worker lives, or has left something to be read
	Waits                         // it has not begun, and is queued
	NeverBegan                    // it has not begun, and its client ended with the machine
	Lost                          // it is not known what became of it
	Torn                          // it has ended, and its answer is to be made again from what else is there
)

// Look returns the facts of a job's directory and its record, and decodes answer.json
// into answer, and its version into version, its id into id. With patient set an error that may pass is
// returned: see [ownfile.Passes]. Otherwise a file that cannot be read is damaged, as is one that
// bears the id of another job. If job.json is not whole, the record is that of [Recover].
//
// A file of a version that this program does not know is always an error, which wraps
// [ErrVersion]: what another program wrote is neither used nor changed. The exception are
// files of a worker that lives: the supervisor ends it if it is not known here, since
// no other part would.
func Look(dir string, answer any, version *int, id *string, patient bool) (Facts, Record, error) {
	var f Facts
	// fails reports whether err ends the look; other errors but that of a missing file are damage.
	fails := func(err error, damaged *bool) bool {
		if errors.Is(err, ErrVersion) || patient && ownfile.Passes(err) {
			return true
		}
		*damaged = *damaged || err != nil && !errors.Is(err, os.ErrNotExist)
		return false
	}
	_, err := process.ReadSpec(dir)
	if patient && ownfile.Passes(err) {
		return f, Record{}, err
	}
	if _, err := os.Stat(dir); err != nil {
		return f, Record{}, err
	}
	if f.Facts, err = finding.Look(dir); fails(err, &f.Damaged) {
		return f, Record{}, err
	}
	if err = Read(dir, FileAnswer, answer, version, Version); err == nil {
		err = CheckID(dir, FileAnswer, *id)
	}
	if f.Answer = err == nil; fails(err, &f.Torn) {
		return f, Record{}, err
	}
	rec, err := ReadRecord(dir)
	if f.Job = err == nil; fails(err, &f.Damaged) {
		return f, rec, err
	}
	if !f.Job {
		rec = Recover(dir)
	}
	if !f.Alive && !f.Answer {
		if err := checkRun(dir); err != nil {
			return f, rec, err
		}
	}
	f.Boot, f.Panel = rec.IsOfThisBoot(), rec.Members != nil
	return f, rec, nil
}

// checkRun returns an error that wraps [ErrVersion] if a dead worker or its engine process
// has left files of a version that this program does not know. Whether they can be read at
// all is found out when they are used.
func checkRun(dir string) error {
	if spec, err := process.ReadSpec(dir); err == nil {
		if err := process.CheckVersion(spec.Version); err != nil {
			return unknownVersion(filepath.Join(dir, process.FileSpec), err)
		}
	}
	var out struct {
		Version int `json:"version"`
	}
	if err := Read(dir, engine.FileOutcome, &out, &out.Version, engine.Version); errors.Is(err, ErrVersion) {
		return err
	}
	return nil
}

// Decide says what became of a job. It depends on nothing but the facts, so that each of
// its cases can be named and tested. The first row that matches decides:
//
//	an answer               Ended
//	a torn answer           Torn, unless it is a panel's, or its worker lives and has it still
//	damaged                 Lost: it may have run
//	no job.json, a spec, a state, or alive   Lost, too: the job is written before all of these
//	no job.json             Unknown: it is written before the call is answered or queued
//	a panel                 GoesOn, whatever became of its members
//	alive, with a spec      GoesOn
//	a state, with a spec    GoesOn: what the worker left says more than nothing
//	a state, no spec        Lost: the spec was removed since the start failed
//	nothing, other boot     NeverBegan
//	nothing                 Waits: a worker has a state before its child runs
func Decide(f Facts) Verdict {
	switch {
	case f.Answer:
		return Ended
	case f.Torn && !f.Panel && (!f.Job || !f.Spec || !f.Alive):
		return Torn
	case f.Damaged, !f.Job && (f.Spec || f.State || f.Alive):
		return Lost
	case !f.Job:
		return Unknown
	case f.Panel, f.Spec && (f.Alive || f.State):
		return GoesOn
	case f.State:
		return Lost
	case !f.Boot:
		return NeverBegan
	}
	return Waits
}

// LastSign returns when a dead worker last wrote to its directory. That is the best
// guess at when the run ended. It is zero if the worker has left no file.
func LastSign(dir string) (last time.Time) {
	for _, name := range []string{process.FileLock, process.FileState, process.FileSpool, calls.File} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
