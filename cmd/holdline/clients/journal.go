package clients

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
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// journalVersion is that of the form of journals.
const journalVersion = 1

// journal is what one import did, or was about to do when it ended.
type journal struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	Dirs    []string  `json:"dirs"` // made for the journal itself
	Edits   []*edit   `json:"edits"`

	dir string
}

// edit is that of one file.
type edit struct {
	Client string       `json:"client"` // "" for holdline's own file
	Path   string       `json:"path"`
	Made   bool         `json:"made"`
	Dirs   []string     `json:"dirs"`   // made for it
	Backup string       `json:"backup"` // file in the journal's directory; "" if it was made
	Before string       `json:"before"` // SHA-256
	After  string       `json:"after"`
	Keys   []*keyChange `json:"keys"`
	// Mode is that which the file had if it is another since; 0 if it is not.
	Mode fs.FileMode `json:"mode,omitempty"`
}

// keyChange is that of one entry: its text before and after, nil where it was
// not there.
type keyChange struct {
	Path []string `json:"path"`
	Old  *string  `json:"old"`
	New  *string  `json:"new"`
	// Left is why an undo has left it; "" if none has come to it.
	Left string `json:"left,omitempty"`
}

// name is what people call the key.
func (k *keyChange) name() string { return k.Path[len(k.Path)-1] }

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// journals is where they are.
func journals(state string) string { return filepath.Join(state, "import") }

// newJournal makes a directory for one, named by the time.
func newJournal(state string, now time.Time) (*journal, error) {
	j := &journal{Version: journalVersion, Time: now.UTC()}
	root := journals(state)
	j.Dirs = missing(filepath.Join(root, "x"))
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("making the journal: %w", err)
	}
	if err := statedir.MakeDir(root); err != nil {
		return nil, fmt.Errorf("making the journal: %w", err)
	}
	stamp := now.UTC().Format("20060102T150405.000000000Z")
	j.dir = filepath.Join(root, stamp)
	if err := os.Mkdir(j.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the journal: %w", err)
	}
	return j, nil
}

// write keeps the journal: what stands in it is on the disk before anything is
// done.
func (j *journal) write() error {
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	if err := statedir.WriteFile(filepath.Join(j.dir, "journal.json"), append(text, '\n')); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return synced(j.dir)
}

// keep copies a file as it was.
func (j *journal) keep(name string, data []byte) error {
	if err := statedir.WriteFile(filepath.Join(j.dir, name), data); err != nil {
		return fmt.Errorf("keeping a copy: %w", err)
	}
	return synced(filepath.Join(j.dir, name))
}

func synced(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// readJournals are those that there are, the newest first.
func readJournals(state string) ([]*journal, error) {
	list, err := os.ReadDir(journals(state))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journals: %w", err)
	}
	slices.Reverse(list)
	var out []*journal
	for _, d := range list {
		if !d.IsDir() {
			continue
		}
		j := &journal{dir: filepath.Join(journals(state), d.Name())}
		text, err := ownfile.Read(filepath.Join(j.dir, "journal.json"), ownfile.MaxDocument)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the journals: %w", err)
		}
		if err == nil && json.Unmarshal(text, j) != nil || j.Version > journalVersion {
			return nil, fmt.Errorf("%s is no journal that this version knows", filepath.Join(j.dir, "journal.json"))
		}
		out = append(out, j) // one without a file had not begun
	}
	return out, nil
}

// Pending tells what imports did and no undo has taken back: whether there is
// anything that an undo can still take back, and the clients' entries that undos
// have left, since somebody else has changed them.
func Pending(state string) (more bool, left []Left, err error) {
	list, err := readJournals(state)
	if err != nil {
		return false, nil, err
	}
	for _, j := range list {
		more = more || len(j.Edits) == 0 // it had not begun
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

// remove takes the journal away, and the directories that were made for it.
func (j *journal) remove() error {
	if err := os.RemoveAll(j.dir); err != nil {
		return fmt.Errorf("removing the journal: %w", err)
	}
	_ = os.Remove(filepath.Dir(j.dir)) // unless there are others
	prune(j.Dirs)
	return nil
}
