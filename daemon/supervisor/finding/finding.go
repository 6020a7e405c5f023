// Package finding decides what a daemon that starts does about the directory of a worker.
package finding

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Alive reports whether the worker of dir lives: whether its lock is held. It leaves nothing in dir, which
// may be about to be removed. A worker on another machine counts as alive until it is known to be dead:
// see [Far]. So does one whose lock's file was removed or replaced: see [process.WorkerIn].
func Alive(dir string) (bool, error) {
	alive, err := statedir.Held(filepath.Join(dir, process.FileLock))
	if errors.Is(err, os.ErrNotExist) {
		_, err = os.Lstat(dir)
	}
	if err == nil && !alive {
		_, alive = process.WorkerIn(dir)
	}
	return alive || err == nil && Far(dir) != nil, err
}

// Far returns where the worker of dir runs, if that is another machine and the worker is not
// known to be dead. Otherwise it returns nil.
func Far(dir string) *process.Far {
	spec, err := process.ReadSpec(dir)
	if err != nil || spec.Far == nil {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, process.FileState)); err == nil {
		return nil
	}
	return spec.Far
}

// Facts are what a daemon that starts finds in a directory in which a worker
// runs, ran or was to run.
type Facts struct {
	Alive bool // the lock is held, whatever any pid says
	Spec  bool // what it runs is known
	State bool // the worker had its lock and its socket
	Boot  bool // it ran under this boot of the machine

	Server      bool // its handshake is done
	Unconfirmed bool // a client may still ask for what became of a call
	Damaged     bool // records of calls may be missing
}

// Verdict is what a daemon must do about a directory.
type Verdict int

// The verdicts.
const (
	Leave  Verdict = iota + 1 // nothing: the worker will find no spec.json, and end
	Remove                    // remove it: no client knows of it, or none asks any more
	Adopt                     // attach: the worker lives, or has left something to be read
	End                       // the worker lives, and no daemon can use it: end it, then remove the directory
)

// Look finds the facts that the files of a consult's directory tell: all but Boot, Unconfirmed and
// Damaged.
func Look(dir string) (Facts, error) {
	var f Facts
	var err error
	if f.Alive, err = Alive(dir); err != nil {
		return f, err
	}
	switch _, err := process.ReadSpec(dir); {
	case err == nil:
		f.Spec = true
	case errors.Is(err, ownfile.ErrRefused): // there may have been one
		return f, err
	}
	for name, there := range map[string]*bool{process.FileState: &f.State, process.FileServer: &f.Server} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			*there = true
		} else if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return f, nil
}

// Decide says what to do about the directory of a server's worker. It depends on nothing
// but the facts, so that each of its cases can be named and tested. The first row that
// matches decides:
//
//	alive, no spec   Leave
//	alive            Adopt if its handshake is done, else End
//	dead             Adopt if it ran under this boot and a call is unconfirmed or may be, else Remove
func Decide(f Facts) Verdict {
	switch {
	case f.Alive && !f.Spec:
		return Leave
	case f.Alive && !f.Server: // nothing was called on it, and no handshake is made twice
		return End
	case f.Alive:
		return Adopt
	case f.Spec && f.State && f.Boot && (f.Unconfirmed || f.Damaged):
		return Adopt
	}
	return Remove
}
