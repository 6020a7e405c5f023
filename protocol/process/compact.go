package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"holdline/protocol/ownfile"
	"holdline/protocol/rawio"
)

// rewritten is behind the name of a file that is to take the place of another.
const rewritten = ".new"

// Forget says that the records of these writes are not needed any more: the
// next record, or [Journal.Settle], puts that down, and they go at the next
// rewriting. Ids of writes that no record stands for are passed over, so what is
// kept in memory is bounded by the file.
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

// tidy rewrites the file if it must be before n bytes of a record of write id
// are appended, or if that pays. If it fails the file is what it was, which
// does for as long as there is room: of two records with one write id the
// later one counts, and what is forgotten only costs space.
func (j *Journal) tidy(id, n int64) error {
	j.mu.Lock()
	void := id <= j.high
	forgotten := j.forgotten
	pays := len(forgotten) > 0 && (j.size > j.due || j.size+n > MaxJournal)
	if void || pays {
		j.forgotten = nil // what is forgotten from now on is for the next time
	}
	j.mu.Unlock()
	if !void && !pays {
		return nil
	}
	err := j.rewrite(id, forgotten)
	j.due = max(j.from, 2*j.size) // what is needed is not copied again and again
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

// rewrite puts a file in the place of the journal's that holds the records of
// the writes below next that are not forgotten.
func (j *Journal) rewrite(next int64, forgotten map[int64]struct{}) error {
	old := make([]byte, j.size)
	if _, err := io.ReadFull(io.NewSectionReader(j.f, 0, j.size), old); err != nil {
		return fmt.Errorf("read call records: %w", err)
	}
	kept, low, high, err := needed(old, next, forgotten)
	if err != nil {
		return err
	}
	f, err := ownfile.Create(j.path + rewritten)
	if err != nil {
		return fmt.Errorf("rewrite call records: %w", err)
	}
	_, err = f.Write(kept)
	if err == nil {
		err = os.Rename(j.path+rewritten, j.path)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(j.path + rewritten)
		return fmt.Errorf("rewrite call records: %w", err)
	}
	_ = j.f.Close()
	j.f, j.size = rawio.NewFile(f), int64(len(kept))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.low, j.high = low, high
	return nil
}

// needed is the lines of old that a rewriting keeps, as they are, and the
// lowest and the highest write id in them.
func needed(old []byte, next int64, forgotten map[int64]struct{}) (kept []byte, low, high int64, err error) {
	type line struct {
		id   int64
		text []byte
		done []int64
	}
	var lines []line
	last := make(map[int64]int) // where the line that counts stands
	for text := range bytes.Lines(old) {
		var r struct {
			Write int64   `json:"write"`
			Done  []int64 `json:"done"`
		}
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, 0, 0, fmt.Errorf("call record %d: %w", len(lines)+1, err)
		}
		if r.Write > 0 && r.Write < next {
			last[r.Write] = len(lines)
		}
		lines = append(lines, line{r.Write, text, r.Done})
	}
	gone := make(map[int]struct{}) // lines that a later one says are done
	said := make(map[int64]struct{})
	for i := len(lines) - 1; i >= 0; i-- {
		if _, ok := said[lines[i].id]; ok {
			gone[i] = struct{}{}
		}
		for _, id := range lines[i].done {
			said[id] = struct{}{}
		}
	}
	for i, l := range lines {
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
	}
	return kept, low, high, nil
}
