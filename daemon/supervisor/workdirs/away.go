package workdirs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/statedir"
	"holdline/daemon/supervisor/far"
	"holdline/daemon/supervisor/finding"
	"holdline/protocol/bulk"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// dirAway is the directory, in the state directory, with a [note] of each worker that may run on another machine. A
// note is made before the worker is started, and removed once that machine has said that nothing of the worker is
// left there. So a worker has an owner though its directory here is damaged or gone, and though the daemon that was
// about to end it was ended first.
const dirAway = "away"

// A note says where a worker may run. The time of its file is that of the last contact.
type note struct {
	ID       string `json:"id"`
	Origin   string `json:"origin"` // see [Dirs.origin]
	Host     string `json:"host"`
	Node     string `json:"node,omitempty"` // what that machine called itself
	WindowMS int64  `json:"window_ms"`      // how long the worker lives without a daemon
}

// noteFile returns the path of the note of a worker.
func (d *Dirs) noteFile(id string) string { return filepath.Join(d.o.StateDir, dirAway, id) }

// noteAway makes the note of a worker that is about to be started elsewhere.
func (d *Dirs) noteAway(spec *process.Spec) error {
	path := d.noteFile(spec.ID)
	n := note{ID: spec.ID, Host: spec.Far.Host, Node: spec.Far.Node, WindowMS: spec.Orphan.AfterMS}
	var err error
	if n.Origin, err = d.origin(); err == nil {
		err = statedir.MakeDir(filepath.Dir(path))
	}
	if err == nil {
		err = statedir.WriteFile(path, bulk.Seal(n.ID, jsonrpc.Encode(n)))
	}
	if err != nil {
		return fmt.Errorf("note of a worker elsewhere: %w", err)
	}
	return nil
}

// back removes the note of a worker of which nothing is left elsewhere.
func (d *Dirs) back(id string) { _ = os.Remove(d.noteFile(id)) }

// away returns the notes of the workers that may run elsewhere, and the paths of those that cannot be read. It
// removes the notes of workers that have ended by themselves for sure.
func (d *Dirs) away() (notes []note, unread []string) {
	dir := filepath.Join(d.o.StateDir, dirAway)
	entries, _ := os.ReadDir(dir) // without it there is no such worker
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !process.ValidID(e.Name()) {
			continue
		}
		n, err := d.readNote(e.Name())
		info, serr := os.Lstat(path)
		switch {
		case os.IsNotExist(serr):
		case err != nil || serr != nil:
			unread = append(unread, path)
		case time.Since(info.ModTime()) > time.Duration(n.WindowMS)*time.Millisecond+aloneMargin:
			d.back(n.ID)
		default:
			notes = append(notes, n)
		}
	}
	return notes, unread
}

// readNote returns the note of a worker. What is damaged is taken from the worker's spec.
func (d *Dirs) readNote(id string) (n note, err error) {
	if n, err = parseNote(d.noteFile(id)); err == nil {
		return n, nil
	}
	for _, read := range []func(string) (process.Spec, error){process.ReadSpec, d.registered} {
		if spec, serr := read(d.Dir(id)); serr == nil && spec.Far != nil {
			return note{ID: id, Host: spec.Far.Host, Node: spec.Far.Node, WindowMS: spec.Orphan.AfterMS}, nil
		}
	}
	return n, err
}

// parseNote reads the note in the file at path. It returns an error unless the note is as it was written there.
func parseNote(path string) (n note, err error) {
	b, err := ownfile.Read(path, ownfile.MaxNumber)
	if err != nil {
		return n, err
	}
	if !bulk.IsSealed(filepath.Base(path), b) || json.Unmarshal(b, &n) != nil || n.Host == "" || n.WindowMS <= 0 {
		return n, fmt.Errorf("%s is damaged", path)
	}
	return n, nil
}

// DamagedNotes returns the errors of those notes in a state directory that cannot be read: it is not known by them
// where a worker may run.
func DamagedNotes(state string) (errs []error) {
	dir := filepath.Join(state, dirAway)
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		errs = append(errs, err)
	}
	for _, e := range entries {
		if !process.ValidID(e.Name()) {
			continue
		}
		if _, err := parseNote(filepath.Join(dir, e.Name())); err != nil && !os.IsNotExist(err) {
			errs = append(errs, err)
		}
	}
	return errs
}

// notedOrigin returns the origin that a note names; "" if there is none.
func (d *Dirs) notedOrigin() string {
	notes, _ := d.away()
	for i := range notes {
		if process.ValidID(notes[i].Origin) {
			return notes[i].Origin
		}
	}
	return ""
}

// mayRun returns where the worker of a directory may run, if that is elsewhere as its note says; nil if it has none.
func (d *Dirs) mayRun(dir string) *process.Far {
	id := filepath.Base(dir)
	if _, err := os.Lstat(d.noteFile(id)); err != nil {
		return nil
	}
	n, err := d.readNote(id)
	if err != nil {
		return nil
	}
	return &process.Far{Host: n.Host, Node: n.Node}
}

// farOf returns where the worker of a directory runs, like [finding.Far], also if its spec is damaged.
func (d *Dirs) farOf(dir string) *process.Far {
	if at := finding.Far(dir); at != nil {
		return at
	}
	if _, err := os.Lstat(filepath.Join(dir, process.FileState)); err == nil {
		return nil
	}
	return d.mayRun(dir)
}

// SweepAway has the workers elsewhere ended that a daemon of before has given up, as soon as their hosts answer. It
// does not block. A daemon calls it when it starts.
func (d *Dirs) SweepAway() {
	notes, _ := d.away()
	for i := range notes {
		if d.isOver(notes[i].ID) {
			d.sweepSoon(notes[i].Host)
		}
	}
}

// Contact records that the worker of a directory was heard from.
func (d *Dirs) Contact(dir string) {
	path, now := filepath.Join(dir, process.FileContact), time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		_ = statedir.WriteFile(path, nil)
	}
	_ = os.Chtimes(d.noteFile(filepath.Base(dir)), now, now) // without a note the directory alone tells
}

// settleNotes removes the notes of workers that are not among those that a host has listed, and are over here.
func (d *Dirs) settleNotes(session *far.Session, listed []string) {
	notes, _ := d.away()
	for i := range notes {
		n := &notes[i]
		if n.isThere(session) && !slices.Contains(listed, n.ID) && d.isOver(n.ID) {
			d.back(n.ID)
		}
	}
}

// isThere reports whether the worker runs on the machine that a session has reached.
func (n *note) isThere(session *far.Session) bool {
	return n.Host == session.Host && (n.Node == "" || n.Node == session.Node || !far.Moves(n.Host))
}
