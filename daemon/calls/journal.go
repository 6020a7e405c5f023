package calls

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
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
	file sync.Mutex // serialises I/O; guards f, path, size, from, due, bad, buf

	f    file
	path string
	size int64
	from int64  // bytes: CompactJournal, or less in tests
	due  int64  // bytes: a longer file is compacted by the next append
	bad  error  // not nil once a torn line could not be cut off, or after Close
	buf  []byte // of the latest line, used again by the next

	mu        sync.Mutex // guards all below; lines, deadlines and detached change only while file is held, too
	lines     []span     // of the records in the file that count, in the order of their writes
	deadlines []span     // of the lines that move the deadline of a call
	detached  []span     // of the lines that detach a call
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

// OpenJournal opens or creates the file at path, and reads its records. It cuts off a last line
// without a newline: its write was not begun. It removes the file that a crash left of a
// compaction. It returns an error, and no journal, for a line that is no record.
func OpenJournal(path string) (*Journal, error) {
	f, err := ownfile.OpenFile(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxJournal+1))
	if err == nil && len(b) > MaxJournal {
		err = fmt.Errorf("%s: more than %d bytes", path, MaxJournal)
	}
	var records []placed
	var deadlines, detached []span
	whole := 0
	if err == nil {
		whole = bytes.LastIndexByte(b, '\n') + 1
		records, deadlines, detached, err = parse(b[:whole])
	}
	if err == nil && whole < len(b) {
		err = f.Truncate(int64(whole))
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
	j := &Journal{f: rawio.NewFile(f), path: path, size: int64(whole), from: CompactJournal, due: CompactJournal}
	for i := range records {
		j.noteLocked(records[i].at)
	}
	j.deadlines, j.detached = deadlines, detached
	return j, nil
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
	b, at := j.buf[:0], make([]span, len(rs))
	for i := range rs {
		before := len(b)
		var err error
		if b, err = rs[i].line(b); err != nil {
			return err
		}
		at[i] = span{rs[i].Write, int32(before), int32(len(b) - before)}
	}
	if cap(b) <= maxBuffer {
		j.buf = b
	}
	var err error
	if j.bad == nil {
		err = j.compactIfDue(rs[0].Write, int64(len(b)))
	}
	start := int32(j.size)
	if werr := j.writeLine(b); werr != nil {
		return errors.Join(werr, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range at {
		a.off += start
		j.noteLocked(a)
	}
	return nil
}

// writeLine appends b, which ends with a newline, to the file. It does not sync. If the
// write fails, writeLine cuts off what was written of the line; if that fails too, the
// journal takes no line any more, and each later call returns that error. The caller must
// hold the mutex j.file.
func (j *Journal) writeLine(b []byte) error {
	switch {
	case j.bad != nil:
		return j.bad
	case j.size+int64(len(b)) > MaxJournal:
		return fmt.Errorf("%w: the file is full", ErrJournal)
	}
	n, err := j.f.WriteAt(b, j.size)
	if err == nil && n == len(b) {
		j.size += int64(n)
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
			err = j.writeLine(b)
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
	return j.note(&Record{Kind: KindDeadline, Call: call, DeadlineBootMS: bootMS}, &j.deadlines)
}

// Detach appends a line to the file: the job store owns the call with the write id call, for whose
// answer line n of the session waits. The caller must not tell the client before Detach has
// returned. After an error, which Detach returns, the call is not detached. It takes j.file and
// j.mu, and blocks on the disk.
func (j *Journal) Detach(call int64, session string, n int64) error {
	return j.note(&Record{Kind: KindDetach, Call: call, Session: session, N: n}, &j.detached)
}

// note appends the line of r, which says something of the call r.Call, to the file, and the place
// of that line to list, a field of j. After an error, which it returns, both are what they were.
// It takes j.file and j.mu.
func (j *Journal) note(r *Record, list *[]span) error {
	b, err := r.line(nil)
	if err != nil {
		return err
	}
	j.file.Lock()
	defer j.file.Unlock()
	at := span{r.Call, int32(j.size), int32(len(b))}
	if err := j.writeLine(b); err != nil {
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
	j.deadlines, j.detached = slices.DeleteFunc(j.deadlines, void), slices.DeleteFunc(j.detached, void)
	delete(j.forgotten, at.write)
	j.lines = append(j.lines[:n], at)
}

// Close closes the file. Later appends return an error that wraps [ErrJournal] and [os.ErrClosed].
// It takes j.file, so it waits for an append that is under way.
func (j *Journal) Close() error {
	j.file.Lock()
	defer j.file.Unlock()
	j.bad = fmt.Errorf("%w: %w", ErrJournal, os.ErrClosed)
	return j.f.Close()
}
