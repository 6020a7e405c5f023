package calls

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"

	"holdline/protocol/jsonrpc"
)

// Names in a worker's directory that belong to this package.
const (
	File       = "calls.jsonl" // the journal, one [Record] a line
	DirAnswers = "a"           // answers in files, named by write id
)

// Kinds of a [Record].
const (
	KindInitialize  = "initialize"
	KindInitialized = "initialized"
	KindDiscover    = "discover"
	KindCall        = "call"
	KindCancel      = "cancel"
	KindRespond     = "respond" // an answer to a request of the child
	KindSetLevel    = "set_level"
	KindSubscribe   = "subscribe"
	KindUnsubscribe = "unsubscribe"
	KindListen      = "listen"
	KindList        = "list"
	KindProbe       = "probe"    // asks the child for a sign of life
	KindNote        = "note"     // a client's notification, which has no answer
	KindDone        = "done"     // no write: carries only Done
	KindDeadline    = "deadline" // no write: moves the deadline of Call to DeadlineBootMS
	KindDetach      = "detach"   // no write: Call belongs to the job store from now on
	KindFiled       = "filed"    // no write: the answer to Call is in its file, which has FileSize and FileSum
	KindChanged     = "changed"  // no write: what Call subscribes to has changed last at the place N of the output
)

// RecordVersion is the version of the lines in calls.jsonl.
const RecordVersion = 1

// Record is one line of a worker's calls.jsonl: a write to the child, on disk
// before the child can see its bytes. Session and N are the key of a call, never
// ID: clients reuse ids. If two records bear one write id the later one counts,
// since the worker had not taken the earlier one.
type Record struct {
	N              int64           `json:"n"`       // number of the client's line; 0 for a write of the daemon's own
	Session        string          `json:"session"` // hash of the session's uuid
	ID             json.RawMessage `json:"id,omitempty"`
	Kind           string          `json:"kind"`
	Name           string          `json:"name,omitempty"`
	Write          int64           `json:"write"` // write id; also the child's request id and progress token
	Contract       string          `json:"contract,omitempty"`
	DeadlineBootMS int64           `json:"deadline_boot_ms,omitempty"` // reading of the boot clock, in ms
	Identity       string          `json:"identity,omitempty"`
	// ProxyPID and ProxyStart name the process without which the session of a call cannot
	// come back; 0 if that is not known.
	ProxyPID   int    `json:"proxy_pid,omitempty"`
	ProxyStart uint64 `json:"proxy_start,omitempty"`
	// Round counts the earlier calls that line N has come to: a modern server
	// answers a request with what it wants to know first, and is called again.
	Round int `json:"round,omitempty"`
	// Call is the write of the call that line N continues, whose deadline is
	// moved, or that is detached; 0 if none.
	Call int64 `json:"call,omitempty"`
	// Detached says that the job store owns the call.
	Detached bool `json:"detached,omitempty"`
	// FileSize and FileSum are the bytes and the checksum of the file with the answer, as far as it is
	// the answer; 0 if there is none.
	FileSize int64  `json:"file_size,omitempty"`
	FileSum  uint32 `json:"file_sum,omitempty"`
	// Done lists writes whose records before this one are no longer needed.
	Done []int64 `json:"done,omitempty"`

	// Changed is the place in the child's output at which what a subscription is for has changed last;
	// 0 if that is not known. It is in a line of its own; [Load] sets it.
	Changed int64 `json:"-"`
	// Doubtful says that lines behind this one are damaged or missing: the write may not have been
	// made, and another one may have its number. It is in no file; [Load] sets it.
	Doubtful bool `json:"-"`
}

// line appends the record to b, as the beginning of a line of JSON, which [seal] is to complete. It
// returns an error, which wraps [ErrJournal], only if r.ID is not valid JSON. It does not use
// package json, which takes five times as long: each call has a record.
func (r *Record) line(b []byte) ([]byte, error) {
	if r.ID != nil && !json.Valid(r.ID) {
		return nil, fmt.Errorf("%w: the id is no JSON: %.64q", ErrJournal, r.ID)
	}
	number := func(key string, n int64) {
		b = strconv.AppendInt(append(b, key...), n, 10)
	}
	text := func(key, s string) {
		if s != "" {
			b = jsonrpc.AppendString(append(b, key...), s)
		}
	}
	number(`{"write":`, r.Write)
	number(`,"n":`, r.N)
	text(`,"session":`, r.Session)
	if r.ID != nil {
		b = append(append(b, `,"id":`...), r.ID...)
	}
	text(`,"kind":`, r.Kind)
	text(`,"name":`, r.Name)
	text(`,"contract":`, r.Contract)
	text(`,"identity":`, r.Identity)
	for _, m := range []struct {
		key string
		n   int64
	}{
		{`,"deadline_boot_ms":`, r.DeadlineBootMS},
		{`,"round":`, int64(r.Round)},
		{`,"call":`, r.Call},
		{`,"proxy_pid":`, int64(r.ProxyPID)},
		{`,"file_size":`, r.FileSize},
		{`,"file_sum":`, int64(r.FileSum)},
	} {
		if m.n != 0 {
			number(m.key, m.n)
		}
	}
	if r.ProxyStart != 0 {
		b = strconv.AppendUint(append(b, `,"proxy_start":`...), r.ProxyStart, 10)
	}
	if r.Detached {
		b = append(b, `,"detached":true`...)
	}
	for i, id := range r.Done {
		key := `,`
		if i == 0 {
			key = `,"done":[`
		}
		number(key, id)
	}
	if len(r.Done) > 0 {
		b = append(b, ']')
	}
	return b, nil
}

// latest returns the records that no later one voids, in the order of their write ids. A record
// voids all records before it with the same or a higher write id: the worker takes ids in order,
// so it had taken none of those. latest overwrites the slice records.
func latest(records []Record) []Record {
	kept := records[:0]
	for _, r := range records {
		for len(kept) > 0 && kept[len(kept)-1].Write >= r.Write {
			kept = kept[:len(kept)-1]
		}
		kept = append(kept, r)
	}
	clear(records[len(kept):])
	return kept
}

// ParseRecords parses the lines of the calls.jsonl of the worker directory dir, and returns their
// records in the order of the file. It leaves out a last line that is torn, whose write was not
// begun, and records that a later line lists as done. The record of a call has the latest deadline
// that a later line sets, and says whether a later line detaches the call. With the records that
// can be read it returns an error for a file that is damaged: see [Load].
func ParseRecords(dir string, b []byte) ([]Record, error) {
	c := parse(filepath.Base(dir), b)
	records := make([]Record, len(c.records))
	for i := range c.records {
		records[i] = c.records[i].Record
	}
	return records, c.harm
}
