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

// compactIfDue rewrites the journal without the records that are not needed, if that is
// due before a record is appended. id is the write that the record belongs to, and n its
// size in bytes. It is due if records of the write id or of later ones are in the file,
// which the new record voids, or if records were forgotten and the file has doubled since
// it was last rewritten or would exceed [MaxJournal].
//
// After an error the file is what it was, and the caller may append all the same: of two
// records with one write id the later one counts, and forgotten records only cost space.
// The caller must hold the mutex j.file, and must not hold j.mu. compactIfDue blocks for
// the file.
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

// needed is the compaction rule. It parses old, the content of a journal file, and returns
// the records that the compacted file keeps. It returns an error if old cannot be parsed.
//
// A record is dropped in three cases only. Its write has the number next or a higher one:
// the worker has not taken that write, and the daemon is about to give the number out
// again. Or a later record of the same write replaces it. Or its write is in forgotten: no
// client can ask for its answer any more. Callers never forget calls that their client has
// not confirmed, standing subscriptions and the log level. If a call has several records
// of its deadline, the kept record has the latest one.
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
