package calls

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"holdline/protocol/ownfile"
	"holdline/protocol/rawio"
)

// compacted is the suffix of the file that is to replace the journal.
const compacted = ".new"

// Forget records that the records of these writes are no longer needed. The next
// record, or [Journal.Settle], writes that to the file; the next compaction drops
// them. Ids without a record are ignored, so the file bounds what is kept in
// memory. Forget does no I/O.
func (j *Journal) Forget(writes ...int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range writes {
		if id < j.low || id > j.high {
			continue
		}
		if j.forgotten == nil {
			j.forgotten = make(map[int64]struct{})
		}
		if _, known := j.forgotten[id]; !known {
			j.forgotten[id] = struct{}{}
			j.fresh = append(j.fresh, id)
		}
	}
}

// compactIfDue compacts the file before n bytes of a record of write id are
// appended, if that id voids records or if enough was forgotten. If it fails the
// file is what it was, and stays correct: of two records with one write id the
// later one counts, and forgotten records only cost space. The caller must hold
// j.file.
func (j *Journal) compactIfDue(id, n int64) error {
	j.mu.Lock()
	void := id <= j.high
	forgotten := j.forgotten
	pays := (len(forgotten) > 0 || j.outdated) && (j.size > j.due || j.size+n > MaxJournal)
	if void || pays {
		j.forgotten, j.outdated = nil, false // what is forgotten from now on is for the next compaction
	}
	j.mu.Unlock()
	if !void && !pays {
		return nil
	}
	err := j.compact(id, forgotten)
	j.due = max(j.from, 2*j.size) // or a file full of needed records would be copied with each append
	j.mu.Lock()
	defer j.mu.Unlock()
	for again := range forgotten {
		if again >= j.low && again <= j.high && err != nil {
			if j.forgotten == nil {
				j.forgotten = make(map[int64]struct{})
			}
			j.forgotten[again] = struct{}{}
		}
	}
	return err
}

// compact replaces the file by one that holds only the records that [needed]
// keeps. The rename is atomic: a crash leaves the old file or the new one.
func (j *Journal) compact(next int64, forgotten map[int64]struct{}) error {
	old := make([]byte, j.size)
	if _, err := io.ReadFull(io.NewSectionReader(j.f, 0, j.size), old); err != nil {
		return fmt.Errorf("read call records: %w", err)
	}
	kept, low, high, err := needed(old, next, forgotten)
	if err != nil {
		return err
	}
	f, err := ownfile.Create(j.path + compacted)
	if err != nil {
		return fmt.Errorf("compact call records: %w", err)
	}
	_, err = f.Write(kept)
	if err == nil {
		err = os.Rename(j.path+compacted, j.path)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(j.path + compacted)
		return fmt.Errorf("compact call records: %w", err)
	}
	_ = j.f.Close()
	j.f, j.size = rawio.NewFile(f), int64(len(kept))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.low, j.high = low, high
	return nil
}

// needed is the compaction rule. It returns the lines of old that are kept,
// unchanged, with the lowest and the highest write id in them.
//
// A line is dropped only if its write is at or above next (the worker has not
// taken it, and its number is about to be given out again), if a later line has
// the same write id, or if the write was forgotten: no client can ask for its
// answer any more. The latest deadline of a call stays with its record. Records of
// unconfirmed calls, of standing subscriptions and of the log level are never
// forgotten, so they survive.
func needed(old []byte, next int64, forgotten map[int64]struct{}) (kept []byte, low, high int64, err error) {
	type line struct {
		id   int64
		text []byte
		done []int64
		call int64 // write of the call whose deadline this line moves; 0 for all others
	}
	var lines []line
	last := make(map[int64]int)      // by write id, the index of the line that counts
	deadlines := make(map[int64]int) // the same of the latest deadline of a call
	for text := range bytes.Lines(old) {
		var r struct {
			Write int64   `json:"write"`
			Done  []int64 `json:"done"`
			Kind  string  `json:"kind"`
			Call  int64   `json:"call"`
		}
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, 0, 0, fmt.Errorf("call record %d: %w", len(lines)+1, err)
		}
		if r.Write > 0 && r.Write < next {
			last[r.Write] = len(lines)
		}
		l := line{id: r.Write, text: text, done: r.Done}
		if r.Kind == KindDeadline {
			l.call = r.Call
			deadlines[r.Call] = len(lines)
		}
		lines = append(lines, l)
	}
	gone := make(map[int]struct{}) // indexes of lines that a later one lists as done
	said := make(map[int64]struct{})
	for i := len(lines) - 1; i >= 0; i-- {
		if _, ok := said[lines[i].id]; ok {
			gone[i] = struct{}{}
		}
		for _, id := range lines[i].done {
			said[id] = struct{}{}
		}
	}
	calls := make(map[int64]struct{}) // writes whose records are kept so far
	for i, l := range lines {
		if l.call > 0 {
			if _, ok := calls[l.call]; ok && deadlines[l.call] == i {
				kept = append(kept, l.text...)
			}
			continue
		}
		_, drop := forgotten[l.id]
		if _, ok := gone[i]; ok {
			drop = true
		}
		if at, ok := last[l.id]; !ok || at != i || drop {
			continue
		}
		if len(kept) == 0 || l.id < low {
			low = l.id
		}
		high = max(high, l.id)
		kept = append(kept, l.text...)
		calls[l.id] = struct{}{}
	}
	return kept, low, high, nil
}
