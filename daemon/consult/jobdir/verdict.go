package jobdir

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/supervisor/finding"
	"holdline/protocol/process"
)

// Facts are what a daemon that starts finds in the directory of a job. Boot means that
// the job was asked for under this boot of the machine.
type Facts struct {
	finding.Facts
	Job    bool // there is a job.json
	Answer bool // there is an answer.json
	Panel  bool // the job is a panel: it has members, and no worker
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
)

// Look returns the facts of a job's directory and its record, and decodes answer.json
// into answer, and its version into version. A file that is there but cannot be read is an
// error, but job.json does not matter if there is an answer.
//
// A file of a version that this program does not know is always an error, which wraps
// [ErrVersion]: what another program wrote is neither used nor changed. The exception are
// files of a worker that lives: the supervisor ends it if it is not known here, since
// no other part would.
func Look(dir string, answer any, version *int) (Facts, Record, error) {
	var f Facts
	var err error
	if f.Facts, err = finding.Look(dir); err != nil {
		return f, Record{}, err
	}
	err = Read(dir, FileAnswer, answer, version, Version)
	if f.Answer = err == nil; err != nil && !errors.Is(err, os.ErrNotExist) {
		return f, Record{}, err
	}
	rec, err := ReadRecord(dir)
	if f.Job = err == nil; errors.Is(err, ErrVersion) ||
		err != nil && !errors.Is(err, os.ErrNotExist) && !f.Answer {
		return f, rec, err
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
