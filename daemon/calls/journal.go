package calls

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"holdline/protocol/ownfile"
	"holdline/protocol/rawio"
)

// maxDone bounds [Record.Done].
const maxDone = 256

// MaxJournal bounds a worker's calls.jsonl, in bytes. When it passes
// CompactJournal an append compacts it first.
const (
	MaxJournal     = 16 << 20
	CompactJournal = 256 << 10
)

// ErrJournal is wrapped by every error of [Journal.Append]. It means that the
// write must not be made.
var ErrJournal = errors.New("call record not written")

// Journal is the write-ahead file of one worker, calls.jsonl: each write to the
// child is appended before it is sent, and marked as done when no client can ask
// for it any more.
//
// Its methods are safe for concurrent use, but appends must come in the order of
// their writes. Locks are taken in the order file, mu. mu is never held during
// I/O, so that [Journal.Forget] never blocks on the disk; file belongs to this
// worker alone, so a slow disk delays no other server.
type Journal struct {
	file sync.Mutex // serialises I/O; guards all up to buf

	f       file
	path    string
	dir     string // name of the directory
	size    int64
	number  int64  // of the next line
	dropped int64  // the highest write whose record compaction has dropped
	latest  int64  // the write of the last record in the file
	from    int64  // bytes: CompactJournal, or less in tests
	due     int64  // bytes: a longer file is compacted by the next append
	bad     error  // not nil if the file is damaged, once a torn line could not be cut off, or after Close
	buf     []byte // of the latest line, used again by the next

	mu        sync.Mutex // guards all below; lines, latestOf and detached change only while file is held, too
	lines     []span     // of the records in the file that count, in the order of their writes
	latestOf  []span     // of the lines of which only the last one of a write counts: its deadline, or what has changed
	detached  []span     // of the lines that detach a call, or say that its answer is in a file
	forgotten map[int64]struct{}
	fresh     []int64 // forgotten writes that no line of the file lists as done
}

// maxBuffer is up to which size a buffer is used again, in bytes.
const maxBuffer = 4 << 10

// span says where a line is in the file.
type span struct {
	write     int64 // of its record, or of the call that it says something of
	off, size int32 // bytes
}

// file is the part of *os.File that a journal uses.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}

// OpenJournal opens or creates the journal of the worker directory dir. It cuts off a last line that
// is torn: its write was not begun. It removes the file that a crash left of a compaction.
//
// A journal that is damaged (see [Load]) is opened as it is, and nothing is appended to it: each
// append returns an error that wraps [ErrDamaged], as [Journal.Damage] does.
func OpenJournal(dir string) (*Journal, error) {
	path := filepath.Join(dir, File)
	f, err := ownfile.OpenFile(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		if _, there := os.Lstat(path); there == nil && !ownfile.Passes(err) {
			return &Journal{bad: fmt.Errorf("%w: %w: %w", ErrJournal, ErrDamaged, err)}, nil
		}
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxJournal+1))
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open call records: %w", err)
	}
	j := &Journal{f: rawio.NewFile(f), path: path, dir: filepath.Base(dir), from: CompactJournal, due: CompactJournal}
	c := parse(j.dir, b)
	j.read(&c)
	e := evidence(dir, &c)
	e.Intact = e.Intact && len(b) <= MaxJournal
	if err := e.fault(); err != nil {
		j.bad = fmt.Errorf("%w: %s is %w", ErrJournal, path, err)
		return j, nil
	}
	switch {
	case !c.named:
		err = j.begin()
	case c.unended:
		_, err = f.WriteAt([]byte("\n"), j.size)
		j.size++
	case c.size < len(b):
		err = f.Truncate(j.size)
	}
	if err == nil {
		if err = os.Remove(path + compacted); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open call records: %w", err)
	}
	return j, nil
}

// read makes j what the file says. The caller is building j.
func (j *Journal) read(c *content) {
	for i := range c.records {
		j.noteLocked(c.records[i].at)
	}
	j.latestOf, j.detached = c.moved, c.detached
	j.size, j.number, j.dropped, j.latest = int64(c.size), c.lines, c.dropped, c.last
}

// begin writes the first line of a file that has nothing else. The caller is building j.
func (j *Journal) begin() error {
	b := header(nil, j.dir, 0, 1)
	err := j.f.Truncate(0)
	if err == nil {
		_, err = j.f.WriteAt(b, 0)
	}
	j.size, j.number = int64(len(b)), 1
	return err
}

// Covers returns up to which write the file knows all: the highest of the last write in it and those
// that compaction has dropped. If the worker has taken more, lines are missing. It takes j.file.
func (j *Journal) Covers() int64 {
	j.file.Lock()
	defer j.file.Unlock()
	return max(j.latest, j.dropped)
}

// Damage returns why the records of the file cannot be believed; nil if they can. It takes j.file.
func (j *Journal) Damage() error {
	j.file.Lock()
	defer j.file.Unlock()
	if errors.Is(j.bad, ErrDamaged) {
		return j.bad
	}
	return nil
}

// Compare compares the file with the last write that the worker has taken. If the worker has taken
// more than is on record, the journal is damaged from then on, and takes no line any more. It takes
// j.file.
func (j *Journal) Compare(taken int64) {
	j.file.Lock()
	defer j.file.Unlock()
	e := Evidence{Named: true, Intact: true, Covers: max(j.latest, j.dropped), Taken: taken}
	if j.bad == nil && e.Verdict() == Damaged {
		j.bad = fmt.Errorf("%w: %s is %w", ErrJournal, j.path, e.fault())
	}
}

// Last returns the highest write id of the records in the file, 0 if there are none. It takes
// j.mu.
func (j *Journal) Last() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, high := j.rangeLocked()
	return high
}

// rangeLocked returns the lowest and the highest write id in the file; 0 and 0 if it is
// empty. The caller must hold j.mu.
func (j *Journal) rangeLocked() (low, high int64) {
	if len(j.lines) == 0 {
		return 0, 0
	}
	return j.lines[0].write, j.lines[len(j.lines)-1].write
}

// Append writes the records rs to the end of the file, a line for each, without a sync. It compacts
// the file before that if that is due, and sets rs[0].Done to writes that were forgotten. If the
// file has records with the write id of rs[0] or a higher one, these void them: the worker takes
// ids in order, so it has not taken those writes.
//
// It returns an error, which wraps [ErrJournal], if the lines could not be written; then none of
// them is in the file, and their writes must not be made. It takes j.file and j.mu, and blocks on
// the disk.
func (j *Journal) Append(rs ...Record) error {
	j.file.Lock()
	defer j.file.Unlock()
	rs[0].Done = j.takeFresh()
	err := j.append(rs)
	if err != nil {
		j.putBack(rs[0].Done)
	}
	return err
}

// append compacts the file if that is due, writes the lines of rs, and records their places. It
// returns an error only if they are not in the file: a compaction that fails alone is no error. The
// caller must hold j.file; append takes j.mu.
func (j *Journal) append(rs []Record) error {
	var cerr error
	if j.bad == nil {
		cerr = j.compactIfDue(rs[0].Write)
	}
	b, at := j.buf[:0], make([]span, len(rs))
	for i := range rs {
		before := len(b)
		var err error
		if b, err = rs[i].line(b); err != nil {
			return err
		}
		b = seal(b, before, j.dir, j.number+int64(i))
		at[i] = span{rs[i].Write, int32(j.size) + int32(before), int32(len(b) - before)}
	}
	if cap(b) <= maxBuffer {
		j.buf = b
	}
	if err := j.writeLines(b, len(rs)); err != nil {
		return errors.Join(err, cerr)
	}
	j.latest = rs[len(rs)-1].Write
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range at {
		j.noteLocked(a)
	}
	return nil
}

// writeLines appends b, which has so many sealed lines, to the file. It does not sync. If the write
// fails, writeLines cuts off what was written; if that fails too, the journal takes no line any
// more, and each later call returns that error. The caller must hold the mutex j.file.
func (j *Journal) writeLines(b []byte, lines int) error {
	switch {
	case j.bad != nil:
		return j.bad
	case j.size+int64(len(b)) > MaxJournal:
		return fmt.Errorf("%w: the file is full", ErrJournal)
	}
	n, err := j.f.WriteAt(b, j.size)
	if err == nil && n == len(b) {
		j.size += int64(n)
		j.number += int64(lines)
		return nil
	}
	if err == nil {
		err = io.ErrShortWrite
	}
	err = fmt.Errorf("%w: %w", ErrJournal, err)
	if terr := j.f.Truncate(j.size); terr != nil {
		// The next line would be appended behind half a line.
		j.bad = fmt.Errorf("%w, and what was written could not be cut off: %w", err, terr)
	}
	return err
}

// Settle writes to the file which writes were forgotten, without waiting for the next record. It
// does nothing if that is written already. After an error, which it returns, the next record or
// the next Settle writes the rest. It takes j.file and j.mu, and blocks on the disk.
func (j *Journal) Settle() error {
	j.file.Lock()
	defer j.file.Unlock()
	for {
		r := Record{Kind: KindDone, Done: j.takeFresh()}
		if len(r.Done) == 0 {
			return nil
		}
		b, err := r.line(nil)
		if err == nil {
			err = j.writeLines(seal(b, 0, j.dir, j.number), 1)
		}
		if err != nil {
			j.putBack(r.Done)
			return err
		}
	}
}

// MoveDeadline appends a line to the file: the call with the write id call has another deadline,
// bootMS, a reading of the boot clock in ms. After an error, which it returns, the earlier
// deadline stands. It takes j.file and j.mu, and blocks on the disk.
func (j *Journal) MoveDeadline(call, bootMS int64) error {
	return j.note(&Record{Kind: KindDeadline, Call: call, DeadlineBootMS: bootMS}, &j.latestOf)
}

// Changed appends a line to the file: what the subscription of that write is for has changed at a
// place of the child's output. The output must not be acknowledged before Changed has returned. After
// an error, which it returns, the earlier place stands. It takes j.file and j.mu, and blocks on the
// disk.
func (j *Journal) Changed(write, place int64) error {
	return j.note(&Record{Kind: KindChanged, Call: write, N: place}, &j.latestOf)
}

// Detach appends a line to the file: the job store owns the call with the write id call, for whose
// answer line n of the session waits. The caller must not tell the client before Detach has
// returned. After an error, which Detach returns, the call is not detached. It takes j.file and
// j.mu, and blocks on the disk.
func (j *Journal) Detach(call int64, session string, n int64) error {
	return j.note(&Record{Kind: KindDetach, Call: call, Session: session, N: n}, &j.detached)
}

// Filed appends a line to the file: the answer to the call with the write id call is in its file, of
// which size and sum tell. The line of the output that has the answer must not be acknowledged before
// Filed has returned. After an error, which Filed returns, it must be kept. It takes j.file and j.mu,
// and blocks on the disk.
func (j *Journal) Filed(call, size int64, sum uint32) error {
	return j.note(&Record{Kind: KindFiled, Call: call, FileSize: size, FileSum: sum}, &j.detached)
}

// note appends the line of r, which says something of the call r.Call, to the file, and the place
// of that line to list, a field of j. Before a change it compacts the file if that is due. After an
// error, which it returns, the file lacks the line, and the list its place. It takes j.file and j.mu.
func (j *Journal) note(r *Record, list *[]span) error {
	b, err := r.line(nil)
	if err != nil {
		return err
	}
	j.file.Lock()
	defer j.file.Unlock()
	if r.Kind == KindChanged && j.bad == nil { // it may come as often as a server likes, without a record between
		_ = j.compactIfDue(max(j.latest, j.dropped) + 1) // if it fails, the file is what it was
	}
	b = seal(b, 0, j.dir, j.number)
	at := span{r.Call, int32(j.size), int32(len(b))}
	if err := j.writeLines(b, 1); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	*list = append(*list, at)
	return nil
}

// takeFresh removes from j.fresh up to maxDone forgotten writes, which no line of the file lists
// as done, and returns them; nil or an empty slice if there are none. The caller must write them
// to the file, or call putBack. takeFresh takes j.mu.
func (j *Journal) takeFresh() []int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := min(len(j.fresh), maxDone)
	fresh := j.fresh[:n:n]
	if j.fresh = j.fresh[n:]; len(j.fresh) == 0 {
		j.fresh = nil
	}
	return fresh
}

// putBack adds to j.fresh again what takeFresh has returned. It takes j.mu.
func (j *Journal) putBack(fresh []int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fresh = append(j.fresh, fresh...)
}

// noteLocked adds the place of a record's line to j.lines. It removes all that j knows of records
// with the same or a higher write id, which the new record voids: their lines, deadlines and
// detachments, and that they were forgotten. It does no I/O. The caller must hold j.mu, and j.file
// unless it is building j.
func (j *Journal) noteLocked(at span) {
	n := len(j.lines)
	for ; n > 0 && j.lines[n-1].write >= at.write; n-- {
		delete(j.forgotten, j.lines[n-1].write)
	}
	// What was said of these writes was said of records that are void now.
	j.fresh = slices.DeleteFunc(j.fresh, func(id int64) bool { return id >= at.write })
	void := func(d span) bool { return d.write >= at.write }
	j.latestOf, j.detached = slices.DeleteFunc(j.latestOf, void), slices.DeleteFunc(j.detached, void)
	delete(j.forgotten, at.write)
	j.lines = append(j.lines[:n], at)
}

// Close closes the file. Later appends return an error that wraps [ErrJournal] and [os.ErrClosed].
// It takes j.file, so it waits for an append that is under way.
func (j *Journal) Close() error {
	j.file.Lock()
	defer j.file.Unlock()
	j.bad = fmt.Errorf("%w: %w", ErrJournal, os.ErrClosed)
	if j.f == nil { // it could not be opened
		return nil
	}
	return j.f.Close()
}
