package calls

import (
	"fmt"
	"io"
	"os"
	"slices"

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
	records, err := needed(old, next, forgotten)
	if err != nil {
		return err
	}
	var kept []byte
	var low, high int64
	for i := range records {
		line, err := records[i].line()
		if err != nil {
			return err
		}
		kept = append(kept, line...)
	}
	if n := len(records); n > 0 { // in the order of their ids
		low, high = records[0].Write, records[n-1].Write
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

// needed is the compaction rule. It returns the records of old that are kept.
//
// A record is dropped only if its write is at or above next (the worker has not taken it,
// and its number is about to be given out again), if a later one voids it, or if the write
// was forgotten: no client can ask for its answer any more. Records of unconfirmed calls, of
// standing subscriptions and of the log level are never forgotten, so they survive. The
// latest deadline of a call becomes that of its record.
func needed(old []byte, next int64, forgotten map[int64]struct{}) ([]Record, error) {
	records, err := ParseRecords(old)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(latest(records), func(r Record) bool {
		_, drop := forgotten[r.Write]
		return drop || r.Write >= next
	}), nil
}
