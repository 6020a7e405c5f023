package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
	RecordPrompt      = "prompt"
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
	Progress       json.RawMessage `json:"progress,omitempty"` // the client's token
	DeadlineUnixMS int64           `json:"deadline,omitempty"`
	Identity       string          `json:"identity,omitempty"`
	UnixMS         int64           `json:"at"` // when it was written
}

// MaxJournal bounds [FileCalls], in bytes.
const MaxJournal = 16 << 20

// ErrJournal is wrapped by every error of [Journal.Append]: the write must not
// be made.
var ErrJournal = errors.New("call record not written")

// Journal appends to [FileCalls]. It is for one goroutine at a time.
type Journal struct {
	f    file
	size int64
	bad  error // set when a torn line could not be cut off
}

// file is what a journal needs of *os.File.
type file interface {
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}

// OpenJournal opens or makes the file at path, cuts off a torn last line (its
// write was never made) and returns the records before it.
func OpenJournal(path string) (*Journal, []Record, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
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
	if err != nil {
		_ = f.Close()
		return nil, nil, fmt.Errorf("open call records: %w", err)
	}
	return &Journal{f: f, size: int64(whole)}, records, nil
}

// ParseRecords reads the lines of [FileCalls]; a torn last line is left out.
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
	return records, nil
}

// Append writes r as one line in one write. If that fails or is short, the
// file is as it was before and the error wraps [ErrJournal].
func (j *Journal) Append(r Record) error {
	if j.bad != nil {
		return j.bad
	}
	b, err := json.Marshal(r)
	if err != nil { // a raw field that is not JSON
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}
	b = append(b, '\n')
	if j.size+int64(len(b)) > MaxJournal {
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
		// What follows would be appended behind half a line.
		j.bad = fmt.Errorf("%w, and what was written could not be cut off: %w", err, terr)
	}
	return err
}

// Close closes the file.
func (j *Journal) Close() error { return j.f.Close() }
