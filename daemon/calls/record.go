package calls

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
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
	// Done lists writes whose records before this one are no longer needed.
	Done []int64 `json:"done,omitempty"`
}

// line appends the record to b, as one line of JSON with its newline, as the file holds it. It
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
	return append(b, "}\n"...), nil
}

// ReadRecords reads the journal in the worker directory dir. It returns the records that are still
// needed, in the order of their write ids: see [ParseRecords]. It leaves out records that a later
// one with the same or a lower write id voids. Without the file it returns none, and no error. It
// returns an error, and no records, if the file cannot be read or one of its lines is no record.
func ReadRecords(dir string) ([]Record, error) {
	b, err := ownfile.Read(filepath.Join(dir, File), MaxJournal)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	records, err := ParseRecords(b)
	return latest(records), err
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

// ParseRecords parses the lines of calls.jsonl, and returns their records in the order of the
// file. It leaves out a last line without a newline, whose write was not begun, and records that a
// later line lists as done. The record of a call has the latest deadline that a later line sets,
// and says whether a later line detaches the call. An error is returned, with no records, for a
// line that is not a record.
func ParseRecords(b []byte) ([]Record, error) {
	all, _, _, err := parse(b)
	if err != nil {
		return nil, err
	}
	records := make([]Record, len(all))
	for i := range all {
		records[i] = all[i].Record
	}
	return records, nil
}

// placed is a record, and where its line is in the file.
type placed struct {
	Record
	at span
}

// parse does what [ParseRecords] says. It also returns where the lines are that move deadlines,
// only the last one for each call, and those that detach calls, but for lines of void records.
func parse(b []byte) (records []placed, moved, detached []span, err error) {
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	off := 0
	for line := range bytes.Lines(b) {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, nil, nil, fmt.Errorf("call record %d: %w", len(records)+1, err)
		}
		records = append(records, placed{r, span{r.Write, int32(off), int32(len(line))}})
		off += len(line)
	}
	done, deadlines, lines := map[int64]struct{}{}, map[int64]int64{}, map[int64]int64{}
	// The lowest write of the records behind a line: they void what it says of that and of later writes.
	lowest := int64(math.MaxInt64)
	for i := len(records) - 1; i >= 0; i-- {
		r := &records[i]
		switch r.Kind {
		case KindDeadline:
			if _, later := deadlines[r.Call]; !later {
				deadlines[r.Call] = r.DeadlineBootMS
				if r.Call < lowest {
					moved = append(moved, span{r.Call, r.at.off, r.at.size})
				}
			}
		case KindDetach:
			lines[r.Call] = r.N
			if r.Call < lowest {
				detached = append(detached, span{r.Call, r.at.off, r.at.size})
			}
		case KindCall:
			if deadline, ok := deadlines[r.Write]; ok {
				r.DeadlineBootMS = deadline
			}
			if n, ok := lines[r.Write]; ok {
				r.Detached, r.N = true, n // that line may have continued the call
			}
		}
		if r.Write > 0 {
			lowest = min(lowest, r.Write)
		}
		if _, ok := done[r.Write]; ok {
			r.Write = 0
		}
		for _, id := range r.Done { // they count although the record itself is done
			done[id] = struct{}{}
		}
		r.Done = nil
	}
	return slices.DeleteFunc(records, func(r placed) bool { return r.Write == 0 }), moved, detached, nil
}
