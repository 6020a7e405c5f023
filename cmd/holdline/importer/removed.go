package importer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// removed keeps the text of the entries that [TakeAway] removes and that no import has written as they are: nothing
// else has it. An undo does not put them back, since what they start is gone.
type removed struct {
	path string // of the file, which exists once there is an entry
	list []removedEntry
}

// removedEntry is an entry that was removed.
type removedEntry struct {
	File string   `json:"file"`
	Path []string `json:"path"` // of the entry in the file
	Text string   `json:"text"`
}

// newRemoved returns a file of removed entries in a state directory, which is not made yet.
func newRemoved(state string, now time.Time) *removed {
	return &removed{path: filepath.Join(journalsDir(state), "removed-"+now.UTC().Format("20060102T150405.000000000Z")+".json")}
}

// keep writes the text of an entry to the disk, before the entry is removed. A later text of the same entry takes its
// place.
func (r *removed) keep(h *Held, text string) error {
	if n := len(r.list); n > 0 && r.list[n-1].isOf(h) {
		r.list = r.list[:n-1]
	}
	r.list = append(r.list, removedEntry{File: h.Path, Path: h.path, Text: text})
	return r.writeFile()
}

// drop takes the text of an entry out again, which was not removed after all.
func (r *removed) drop(h *Held) error {
	n := len(r.list)
	if n == 0 || !r.list[n-1].isOf(h) {
		return nil
	}
	if r.list = r.list[:n-1]; len(r.list) > 0 {
		return r.writeFile()
	}
	err := os.Remove(r.path)
	_ = os.Remove(filepath.Dir(r.path)) // unless there are journals, or other such files
	return err
}

// isOf reports whether it is the text of that entry.
func (r *removedEntry) isOf(h *Held) bool { return r.File == h.Path && slices.Equal(r.Path, h.path) }

// writeFile stores the list for this user alone.
func (r *removed) writeFile() error {
	text, err := json.MarshalIndent(r.list, "", "  ")
	if err == nil {
		err = statedir.MakeRoot(filepath.Dir(r.path))
	}
	if err == nil {
		err = ownfile.Replace(r.path, "."+filepath.Base(r.path)+"-*", append(text, '\n'), 0o600, true, nil)
	}
	if err == nil {
		err = syncDir(filepath.Dir(r.path))
	}
	if err != nil {
		return fmt.Errorf("keeping the text of an entry: %w", err)
	}
	return nil
}
