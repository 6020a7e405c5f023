package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// journalVersion is the version of the journal's format.
const journalVersion = 1

// journal records what one import did, or was about to do when it was interrupted. It
// lies in a directory of its own, with the files as they were.
type journal struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	Dirs    []string  `json:"dirs"` // created for the journal itself
	Edits   []*edit   `json:"edits"`
	Sum     string    `json:"sum"` // of all the rest, set by writeFile

	dir string
}

// unbegun begins the name of a directory that has no journal yet, or that is being removed.
const unbegun = "."

// sum returns a sum of the journal: an undo must not go by one that is damaged.
func (j *journal) sum() string {
	rest := *j
	rest.Sum = ""
	b, _ := json.Marshal(rest) // texts, numbers and times
	return hash(b)
}

// edit is the edit of one file.
type edit struct {
	Client string       `json:"client"` // "" for holdline's own file
	Path   string       `json:"path"`
	Made   bool         `json:"made"`   // the import creates the file
	Dirs   []string     `json:"dirs"`   // created for it
	Backup string       `json:"backup"` // file in the journal's directory; "" if Made
	Before string       `json:"before"` // SHA-256
	After  string       `json:"after"`
	Keys   []*keyChange `json:"keys"`
	// Mode is the mode that the file had, if the import changes it; else 0.
	Mode fs.FileMode `json:"mode,omitempty"`
}

// keyChange is the change of one entry: its text before and after, nil where it does
// not exist.
type keyChange struct {
	Path []string `json:"path"`
	Old  *string  `json:"old"`
	New  *string  `json:"new"`
	// Left is why an undo has left it; "" if no undo has.
	Left string `json:"left,omitempty"`
}

// name returns the key of the entry.
func (k *keyChange) name() string { return k.Path[len(k.Path)-1] }

// hash returns the SHA-256 of a file, in hexadecimal.
func hash(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// journalsDir returns where the journals of a state directory are.
func journalsDir(state string) string { return filepath.Join(state, "import") }

// newJournal creates the directory of a journal, which has the time as its name, so
// that a later journal sorts behind it. It has that name only once a journal is in it, without
// edits: a directory that has lost its journal is not one that has yet to get it.
func newJournal(state string, now time.Time) (*journal, error) {
	j := &journal{Version: journalVersion, Time: now.UTC()}
	root := journalsDir(state)
	j.Dirs = ownfile.MissingDirs(root)
	name := now.UTC().Format("20060102T150405.000000000Z")
	j.dir = filepath.Join(root, unbegun+name)
	err := statedir.MakeRoot(root)
	if err == nil {
		err = os.Mkdir(j.dir, 0o700)
	}
	if err == nil {
		err = j.writeFile()
	}
	if err == nil {
		err = os.Rename(j.dir, filepath.Join(root, name))
	}
	if err == nil {
		j.dir = filepath.Join(root, name)
		err = syncDir(root)
	}
	if err != nil {
		return nil, fmt.Errorf("making the journal: %w", err)
	}
	return j, nil
}

// writeFile stores the journal. It is on the disk before an edit that it records is made.
func (j *journal) writeFile() error {
	j.Sum = j.sum()
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	return j.store("journal.json", append(text, '\n'))
}

// store writes a file of the journal's directory. When it returns, the file and its
// name are on the disk.
func (j *journal) store(name string, data []byte) error {
	err := ownfile.Replace(filepath.Join(j.dir, name), "."+name+"-*", data, 0o600, true, nil)
	if err == nil {
		err = syncDir(j.dir)
	}
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return nil
}

// syncDir writes the names in a directory to the disk. Without it a file that was
// created and synced can still be gone after a crash of the machine.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// update records in e the plan for a file as it is now, and keeps a copy of the file
// under the number of the edit. The journal itself is not written.
func (j *journal) update(e *edit, f *File) (err error) {
	e.Before, e.After = hash(f.before), hash(f.after)
	if e.Keys, err = f.changes(); err != nil || e.Made {
		return err
	}
	e.Backup = strconv.Itoa(1 + slices.Index(j.Edits, e))
	return j.store(e.Backup, f.before)
}

// backup returns the file of an edit as it was before; nil if it did not exist.
func (j *journal) backup(e *edit) ([]byte, error) {
	if e.Backup == "" {
		return nil, nil
	}
	return ownfile.Read(filepath.Join(j.dir, e.Backup), ownfile.MaxDocument)
}

// readJournals returns the journals of a state directory, the newest first. An import that had not
// begun has no edits. A journal of a newer version is an error, since this program does not know its
// format; so is one that is damaged or gone, since nothing else says what was edited.
func readJournals(state string) ([]*journal, error) {
	list, err := os.ReadDir(journalsDir(state))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journals: %w", err)
	}
	var out []*journal
	for _, d := range slices.Backward(list) {
		if !d.IsDir() {
			continue
		}
		j := &journal{dir: filepath.Join(journalsDir(state), d.Name())}
		if !strings.HasPrefix(d.Name(), unbegun) {
			if err := j.read(); err != nil {
				return nil, err
			}
		}
		out = append(out, j)
	}
	return out, nil
}

// read reads the journal in its directory. Nothing was changed by a failure.
func (j *journal) read() error {
	path := filepath.Join(j.dir, "journal.json")
	text, err := ownfile.Read(path, ownfile.MaxDocument)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is gone: what that import edited is not known, so nothing is reverted; the copies of the "+
			"files as they were before lie beside it; once you need none of them, remove %s", path, j.dir)
	case err != nil:
		return fmt.Errorf("reading the journals: %w", err)
	case json.Unmarshal(text, j) == nil && j.Version > journalVersion:
		return fmt.Errorf("%s is no journal that this version knows", path)
	case j.Version != journalVersion || j.Sum != j.sum():
		return fmt.Errorf("%s is damaged: what that import edited is not known, so nothing is reverted; the copies of "+
			"the files as they were before lie beside it; once you need none of them, remove %s", path, j.dir)
	}
	return nil
}

// Pending reports whether an undo could still revert anything, and returns the
// clients' entries that undos have left because they were changed after the import.
func Pending(state string) (more bool, left []Left, err error) {
	list, err := readJournals(state)
	if err != nil {
		return false, nil, err
	}
	for _, j := range list {
		more = more || len(j.Edits) == 0
		for _, e := range j.Edits {
			for _, k := range e.Keys {
				switch {
				case k.Left == "":
					more = true
				case e.Client != "": // holdline's own file is not a client's
					left = append(left, Left{Path: e.Path, Key: k.name(), Why: k.Left})
				}
			}
		}
	}
	return more, left, nil
}

// remove removes the journal with its copies, and the directories that were created
// for it. Call it once nothing is left to revert.
func (j *journal) remove() error {
	dir := filepath.Join(filepath.Dir(j.dir), unbegun+strings.TrimPrefix(filepath.Base(j.dir), unbegun))
	err := os.Rename(j.dir, dir) // if that is its name already, nothing happens
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("removing the journal: %w", err)
	}
	_ = os.Remove(filepath.Dir(j.dir)) // unless there are other journals
	ownfile.RemoveEmptyDirs(j.Dirs)
	return nil
}
