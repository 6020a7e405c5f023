package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"holdline/protocol/ownfile"
	"holdline/protocol/rawio"
)

// Kinds of a [Record].
const (
	RecordInitialize  = "initialize"
	RecordInitialized = "initialized"
	RecordDiscover    = "discover"
	RecordCall        = "call"
	RecordCancel      = "cancel"
	RecordRespond     = "respond"
	RecordSetLevel    = "set_level"
	RecordSubscribe   = "subscribe"
	RecordUnsubscribe = "unsubscribe"
	RecordListen      = "listen"
	RecordList        = "list"
	RecordPrompt      = "prompt"
	RecordProbe       = "probe" // whether the child gives a sign of life
	RecordNote        = "note"  // of a client, which wants no answer
	RecordDone        = "done"  // no write: it only carries Done
)

// Record is one line of [FileCalls]: a write to the child, noted before its
// bytes go out. Session and N are its key, never ID: clients reuse ids. If two
// records bear one write id the later one counts.
type Record struct {
	N              int64           `json:"n"`       // number of the client's line; 0 for the daemon's own
	Session        string          `json:"session"` // hash
	ID             json.RawMessage `json:"id,omitempty"`
	Kind           string          `json:"kind"`
	Name           string          `json:"name,omitempty"`
	Write          int64           `json:"write"` // also the upstream id and progress token
	Contract       string          `json:"contract,omitempty"`
	Generation     int64           `json:"generation"`
	Progress       json.RawMessage `json:"progress,omitempty"`         // the client's token
	DeadlineBootMS int64           `json:"deadline_boot_ms,omitempty"` // reading of the boot clock
	Identity       string          `json:"identity,omitempty"`
	UnixMS         int64           `json:"at"` // when it was written
	// Round is how often line N was taken to the child before because that
	// had asked for something first.
	Round int `json:"round,omitempty"`
	// Call is the write of the call that line N goes on with; 0 if it goes on
	// with none.
	Call int64 `json:"call,omitempty"`
	// Done are writes whose records before this one are not needed any more,
	// as far as was known.
	Done []int64 `json:"done,omitempty"`
}

// maxDone bounds [Record.Done].
const maxDone = 256

// MaxJournal bounds [FileCalls], in bytes. From CompactJournal on an append
// rewrites it, so that it holds what is still needed and little more.
const (
	MaxJournal     = 16 << 20
	CompactJournal = 1 << 20
)

// ErrJournal is wrapped by every error of [Journal.Append]: the write must not
// be made.
var ErrJournal = errors.New("call record not written")

// Journal appends to [FileCalls]. [Journal.Append] is for one goroutine at a
// time; the other methods may be called from any.
type Journal struct {
	file sync.Mutex // held while the file is written; guards what precedes mu

	f    file
	path string
	size int64
	from int64 // CompactJournal, or less in tests
	due  int64 // above this size an append rewrites the file first
	bad  error // set when a torn line could not be cut off

	mu        sync.Mutex // guards what follows
	low, high int64      // lowest and highest write id in the file; 0 and 0 if it is empty
	forgotten map[int64]struct{}
	fresh     []int64 // those of them that no line of the file says are done
}

// file is what a journal needs of *os.File.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}

// OpenJournal opens or makes the file at path, cuts off a torn last line (its
// write was never made) and removes what a crash left of a rewriting.
func OpenJournal(path string) (*Journal, error) {
	f, err := ownfile.OpenFile(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxJournal+1))
	if err == nil && len(b) > MaxJournal {
		err = fmt.Errorf("%s: more than %d bytes", path, MaxJournal)
	}
	var records []Record
	whole := 0
	if err == nil {
		whole = bytes.LastIndexByte(b, '\n') + 1
		records, err = ParseRecords(b[:whole])
	}
	if err == nil && whole < len(b) {
		err = f.Truncate(int64(whole))
	}
	if err == nil {
		if err = os.Remove(path + rewritten); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open call records: %w", err)
	}
	j := &Journal{f: rawio.NewFile(f), path: path, size: int64(whole), from: CompactJournal, due: CompactJournal}
	for _, r := range records {
		j.noteLocked(r.Write)
	}
	return j, nil
}

// Last is the highest write id in the file, 0 if it is empty.
func (j *Journal) Last() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.high
}

// ParseRecords reads the lines of [FileCalls], without those that a later one
// says are done; a torn last line is left out.
func ParseRecords(b []byte) ([]Record, error) {
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	var records []Record
	for line := range bytes.Lines(b) {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("call record %d: %w", len(records)+1, err)
		}
		records = append(records, r)
	}
	gone := map[int64]struct{}{}
	for i := len(records) - 1; i >= 0; i-- {
		if _, ok := gone[records[i].Write]; ok {
			records[i].Write = 0
		}
		for _, id := range records[i].Done { // it holds although the record itself is done
			gone[id] = struct{}{}
		}
		records[i].Done = nil
	}
	return slices.DeleteFunc(records, func(r Record) bool { return r.Write == 0 }), nil
}

// Append writes r as one line in one write. If that fails or is short, the
// file is as it was before, or a rewriting of it, and the error wraps
// [ErrJournal]. A write id that stands in the file already voids its record and
// all above it: those writes were not made.
func (j *Journal) Append(r Record) error {
	j.file.Lock()
	defer j.file.Unlock()
	if j.bad != nil {
		return j.bad
	}
	r.Done = j.takeFresh()
	err := j.append(&r)
	if err != nil {
		j.putBack(r.Done)
	}
	return err
}

func (j *Journal) append(r *Record) error {
	b, err := r.line()
	if err != nil {
		return err
	}
	err = j.tidy(r.Write, int64(len(b)))
	if j.size+int64(len(b)) > MaxJournal {
		if err == nil {
			err = errNeeded
		}
		return fmt.Errorf("%w: the file is full: %w", ErrJournal, err)
	}
	if err := j.write(b); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.noteLocked(r.Write)
	return nil
}

// line is the record as it stands in the file.
func (r *Record) line() ([]byte, error) {
	b, simple := appendRecord(make([]byte, 0, 384), r)
	if !simple {
		var err error
		if b, err = json.Marshal(r); err != nil { // a raw field that is not JSON
			return nil, fmt.Errorf("%w: %w", ErrJournal, err)
		}
	}
	return append(b, '\n'), nil
}

// write appends a line. If that fails the file is as it was.
func (j *Journal) write(b []byte) error {
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
		// What follows would be appended behind half a line.
		j.bad = fmt.Errorf("%w, and what was written could not be cut off: %w", err, terr)
	}
	return err
}

// Settle puts on record which writes were forgotten, without waiting for the
// next record to say so. On an error the next record, or the next Settle, does.
func (j *Journal) Settle() error {
	j.file.Lock()
	defer j.file.Unlock()
	for {
		r := Record{Kind: RecordDone, Done: j.takeFresh()}
		if len(r.Done) == 0 {
			return nil
		}
		b, err := r.line()
		if err == nil {
			err = j.bad
		}
		if err == nil && j.size+int64(len(b)) > MaxJournal {
			err = fmt.Errorf("%w: the file is full", ErrJournal)
		}
		if err == nil {
			err = j.write(b)
		}
		if err != nil {
			j.putBack(r.Done)
			return err
		}
	}
}

// takeFresh returns what no line of the file says is done, as much of it as one
// record holds.
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

// putBack undoes takeFresh.
func (j *Journal) putBack(fresh []int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fresh = append(j.fresh, fresh...)
}

// errNeeded is why a rewriting does not help.
var errNeeded = errors.New("all of its records are needed")

// noteLocked takes note that a record of write id stands in the file.
func (j *Journal) noteLocked(id int64) {
	// What was forgotten under that number was a record that is void now.
	delete(j.forgotten, id)
	j.fresh = slices.DeleteFunc(j.fresh, func(old int64) bool { return old == id })
	if j.high == 0 || id < j.low {
		j.low = id
	}
	j.high = max(j.high, id)
}

// Close closes the file.
func (j *Journal) Close() error {
	j.file.Lock()
	defer j.file.Unlock()
	j.bad = fmt.Errorf("%w: %w", ErrJournal, os.ErrClosed)
	return j.f.Close()
}
