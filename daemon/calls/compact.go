package calls

import (
	"fmt"
	"io"
	"os"
	"slices"

	"holdline/protocol/ownfile"
	"holdline/protocol/rawio"
)

// nearlyFull is how many bytes of room a journal has at most when it is compacted although it has
// not doubled: more than the lines of one append take.
const nearlyFull = 1 << 20

// compacted is the suffix of the file that is to replace the journal.
const compacted = ".new"

// Forget records in memory that the records of these writes are no longer needed. The next record,
// or [Journal.Settle], writes that to the file; the next compaction drops them. Ids below the
// lowest and above the highest one of the file are ignored, so the file bounds what is kept in
// memory. Forget takes j.mu, and does no I/O.
func (j *Journal) Forget(writes ...int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	low, high := j.rangeLocked()
	for _, id := range writes {
		if id < low || id > high {
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

// compactIfDue rewrites the file without the lines that are not needed, if that is due before a
// record is appended. id is the write id of that record. Compaction is due if the file has records of id or later writes, which the new record voids. It
// is also due if records were forgotten or lines of latestOf added, and the file has doubled since it was
// last rewritten or would exceed [MaxJournal]. If it is not due, compactIfDue returns nil.
//
// After an error the file is what it was, and the caller may append all the same: of two records
// with one write id the later one counts, and forgotten records only cost space. The caller must
// hold j.file, and must not hold j.mu, which compactIfDue takes. It blocks on the disk.
func (j *Journal) compactIfDue(id int64) error {
	j.mu.Lock()
	_, high := j.rangeLocked()
	void := id <= high
	forgotten := j.forgotten
	pays := (len(forgotten) > 0 || len(j.latestOf) > 0) && (j.size > j.due || j.size > MaxJournal-nearlyFull)
	if void || pays {
		j.forgotten = nil // what is forgotten from now on is for the next compaction
	}
	j.mu.Unlock()
	if !void && !pays {
		return nil
	}
	err := j.compact(id, forgotten)
	j.due = max(j.from, 2*j.size) // or a file full of needed records would be copied with each append
	j.mu.Lock()
	defer j.mu.Unlock()
	low, high := j.rangeLocked()
	for again := range forgotten {
		if again >= low && again <= high && err != nil {
			if j.forgotten == nil {
				j.forgotten = make(map[int64]struct{})
			}
			j.forgotten[again] = struct{}{}
		}
	}
	return err
}

// compact replaces the file by one that holds only the lines that [needed] keeps, and sets j.f,
// j.size and the places of the lines to those of the new file. The rename is atomic: a crash
// leaves the old file or the new one. After an error, which it returns, j and the file are what
// they were. The caller must hold j.file, and must not hold j.mu, which compact takes.
func (j *Journal) compact(next int64, forgotten map[int64]struct{}) error {
	old := make([]byte, j.size)
	if _, err := io.ReadFull(io.NewSectionReader(j.f, 0, j.size), old); err != nil {
		return fmt.Errorf("read call records: %w", err)
	}
	lines, latestOf, detached := needed(j.lines, j.latestOf, j.detached, next, forgotten)
	// All writes before next up to the last one are on record. The highest that is not kept is dropped.
	dropped, top := j.dropped, min(j.latest, next-1)
	if len(lines) == 0 || lines[len(lines)-1].write < top {
		dropped = max(dropped, top)
	}
	number := int64(1)
	kept := header(nil, j.dir, dropped, number+int64(len(lines)+len(latestOf)+len(detached)))
	for _, list := range [][]span{lines, latestOf, detached} { // these stand behind the record of their call
		for i := range list {
			at := &list[i]
			from := len(kept)
			kept = append(kept, unsealed(old[at.off:at.off+at.size])...)
			kept = seal(kept, from, j.dir, number)
			at.off, at.size = int32(from), int32(len(kept)-from)
			number++
		}
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
	j.f, j.size, j.number, j.dropped, j.latest = rawio.NewFile(f), int64(len(kept)), number, dropped, 0
	if len(lines) > 0 {
		j.latest = lines[len(lines)-1].write
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines, j.latestOf, j.detached = lines, latestOf, detached
	return nil
}

// needed is the compaction rule. Of the three lists of lines it returns those that the compacted
// file keeps: records, the latest line of those that count alone for each write that stays, and the
// lines that detach calls that stay.
//
// A record is dropped in two cases only. Its write id is next or higher: the worker has not taken
// that write, and the daemon is about to give the number out again. Or its write is in forgotten:
// no client can ask for its answer any more. Callers never forget calls that their client has not
// confirmed, standing subscriptions and the log level.
func needed(
	lines, latestOf, detached []span, next int64, forgotten map[int64]struct{},
) (records, latest, stored []span) {
	stays := map[int64]bool{}
	for _, at := range lines {
		if _, drop := forgotten[at.write]; !drop && at.write < next {
			records = append(records, at)
			stays[at.write] = true
		}
	}
	for _, at := range detached {
		if stays[at.write] {
			stored = append(stored, at)
		}
	}
	for _, at := range slices.Backward(latestOf) {
		if stays[at.write] {
			latest = append(latest, at)
			stays[at.write] = false
		}
	}
	return records, latest, stored
}
