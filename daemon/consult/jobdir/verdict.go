package jobdir

import (
	"cmp"
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

// Look returns the facts of a job's directory, for [calls.DecideJob], and its record, and decodes answer.json
// into answer, and its version into version, its id into id. With patient set an error that may pass is
// returned: see [ownfile.Passes]. Otherwise a file that cannot be read is damaged, as is one that
// bears the id of another job. If job.json is not whole, the record is that of [Recover].
//
// A file of a version that this program does not know is always an error, which wraps
// [ErrVersion]: what another program wrote is neither used nor changed. The exception are
// files of a worker that lives: the supervisor ends it if it is not known here, since
// no other part would.
func Look(dir string, answer any, version *int, id *string, patient bool) (calls.JobFacts, Record, error) {
	var f calls.JobFacts
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
	files, err := finding.Look(dir)
	if f.Alive, f.Spec, f.State = files.Alive, files.Spec, files.State; fails(err, &f.Damaged) {
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
	if !f.Alive && !f.Answer { // of one that is answered nothing more is asked
		var lerr error
		f.Told, err = Told(dir)
		f.Left, lerr = hasLeft(dir)
		if err = cmp.Or(err, lerr); fails(err, &f.Told) {
			return f, rec, err
		}
	}
	f.Boot, f.Group = rec.IsOfThisBoot(), rec.Members != nil
	f.Damaged = f.Damaged || f.Job && rec.Damaged // an earlier daemon has written what is known of it
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

// Told reports whether the process of a dead worker may have been told of the job. It was certainly not if the
// worker has taken no write, or never had its lock, and the process has made no transcript, which it does
// before it starts its program. What cannot be read for good counts as told. The error is one that passes.
func Told(dir string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, engine.FileTranscript))
	switch {
	case err == nil:
		return true, nil
	case ownfile.Passes(err):
		return false, err
	case !errors.Is(err, os.ErrNotExist):
		return true, nil
	}
	taken, err := process.ReadTaken(dir)
	if errors.Is(err, os.ErrNotExist) { // a worker makes it before its state
		_, err = os.Lstat(filepath.Join(dir, process.FileState))
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return true, passing(err)
	}
	return err != nil || taken > 0, passing(err)
}

// passing returns err if it passes, else nil.
func passing(err error) error {
	if ownfile.Passes(err) {
		return err
	}
	return nil
}

// hasLeft reports whether the dead worker of a directory has left in order, as its state says. The error is one
// that passes.
func hasLeft(dir string) (bool, error) {
	st, err := process.ReadState(dir)
	return err == nil && st.Phase == process.PhaseExited, passing(err)
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
