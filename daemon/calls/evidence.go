package calls

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Evidence is what the files of a worker's directory show about its journal. "No record" and "the
// record cannot be read" must not look the same: a call without a record is made.
type Evidence struct {
	Empty     bool  // there is no journal, or not one line in it
	Named     bool  // its first line is whole, and names this directory
	Intact    bool  // no line is damaged or missing
	Covers    int64 // the highest write that it knows: of its last record, or dropped by a compaction
	Taken     int64 // the last write that the worker is known to have taken
	TakenLost bool  // the worker is dead, and which write was its last cannot be read
	Handshake bool  // its handshake is done, or calls were made
}

// Soundness says whether a journal can be believed.
type Soundness int8

// Whole, absent and damaged journals.
const (
	Whole   Soundness = iota // a write that the worker has taken is on record
	Absent                   // nothing was written to the child yet
	Damaged                  // writes may be missing in it
)

// Verdict is the law of journals: it says whether one can be believed, from nothing but the
// evidence. Records of writes that the worker has not taken are void, not damage: a record is
// appended before its write.
//
// The rows, first match first; "–" is any:
//
//	empty  named  intact  handshake  taken      taken lost  verdict
//	yes    –      –       no         0          –           Absent
//	yes    –      –       –          –          –           Damaged
//	no     no     –       –          –          –           Damaged
//	no     –      no      –          –          –           Damaged
//	no     –      –       –          –          yes         Damaged
//	no     yes    yes     –          > covers   –           Damaged
//	no     yes    yes     –          ≤ covers   no          Whole
func (e Evidence) Verdict() Soundness {
	switch {
	case e.Empty && !e.Handshake && e.Taken == 0:
		return Absent
	case e.Empty, !e.Named, !e.Intact, e.TakenLost, e.Taken > e.Covers:
		return Damaged
	}
	return Whole
}

// hidesAll reports whether lines may be missing behind all records that can be read.
func (e Evidence) hidesAll() bool { return e.TakenLost || e.Taken > e.Covers }

// fault returns why the journal cannot be believed, as an error that wraps [ErrDamaged]; nil if it can.
func (e Evidence) fault() error {
	switch {
	case e.Verdict() != Damaged:
		return nil
	case e.Empty:
		return fmt.Errorf("%w: it is empty or missing, and writes were made", ErrDamaged)
	case !e.Named:
		return fmt.Errorf("%w: its first line is not that of this directory", ErrDamaged)
	case e.TakenLost:
		return fmt.Errorf("%w: how many writes the worker has taken cannot be read from the file %s", ErrDamaged,
			process.FileTaken)
	case e.Taken > e.Covers:
		return fmt.Errorf("%w: it ends with write %d, and the worker has taken %d", ErrDamaged, e.Covers, e.Taken)
	}
	return fmt.Errorf("%w: lines are damaged or missing", ErrDamaged)
}

// evidence gathers what is known of a journal: c is what it says.
func evidence(dir string, c *content) Evidence {
	e := Evidence{
		Empty: c.lines == 0, Named: c.named, Intact: c.harm == nil, Covers: max(c.last, c.dropped), Handshake: HasServed(dir),
	}
	e.Taken, _ = process.ReadTaken(dir) // 0 after an error
	return e
}

// HasServed reports whether the handshake with the child of a worker's directory is done.
func HasServed(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, process.FileServer))
	return err == nil
}

// Journaled is what the journal of a worker's directory holds.
type Journaled struct {
	// Records are those that are still needed, and that no later one voids, in the order of their
	// write ids: see [ParseRecords]. Those of a dead worker may be void; that is not believed, since the
	// file that says so may be an old copy.
	Records []Record
	// Damage is why the journal cannot be believed, with the path of the file. It is nil if it can.
	Damage error
}

// Load reads the journal in the worker directory dir. alive says whether the worker lives: of a dead
// one it is known which writes it has taken, or the journal is damaged. Load returns an error only
// if a file cannot be read now and may be read later: see [ownfile.Passes].
func Load(dir string, alive bool) (Journaled, error) {
	path := filepath.Join(dir, File)
	b, err := ownfile.Read(path, MaxJournal)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case ownfile.Passes(err):
		return Journaled{}, err
	case err != nil:
		return Journaled{Damage: fmt.Errorf("%w: %w", ErrDamaged, err)}, nil
	}
	taken, terr := process.ReadTaken(dir)
	if ownfile.Passes(terr) {
		return Journaled{}, terr
	}
	c := parse(filepath.Base(dir), b)
	e := evidence(dir, &c)
	e.Taken, e.TakenLost = taken, !alive && terr != nil
	all := make([]Record, len(c.records))
	for i := range c.records {
		all[i] = c.records[i].Record
		all[i].Doubtful = all[i].Doubtful || e.hidesAll()
	}
	j := Journaled{Records: latest(all)}
	if err := e.fault(); err != nil {
		if e.Named && c.harm != nil {
			err = c.harm // which names the line
		}
		j.Damage = fmt.Errorf("%s is %w", path, err)
	}
	return j, nil
}
