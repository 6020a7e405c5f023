package leaf

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
	"strings"
	"sync"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/lockcheck"
	"holdline/protocol/ownfile"
)

const (
	recordVersion = 1
	maxRecord     = 1 << 20 // bytes
	maxRecords    = 512     // of all servers; the oldest go first
)

// record is what is known of one launch, as it is on disk.
type record struct {
	Version int       `json:"version"`
	Sum     string    `json:"sum"` // of the record without it
	Key     string    `json:"key"`
	Server  string    `json:"server"`
	Dir     string    `json:"dir"` // in which it is started
	At      time.Time `json:"at"`  // when the launcher ran last
	// NotBefore is when the launcher, which could not start the server, is to try that again.
	NotBefore time.Time `json:"not_before,omitzero"`

	Why string `json:"why,omitempty"` // why the server is started as its entry says; "" if it need not be

	Exe   string            `json:"exe,omitempty"`
	Args  []string          `json:"args,omitempty"`  // those that the launcher has put in front of the entry's
	Given int               `json:"given,omitempty"` // how many of the entry's last arguments follow
	Set   map[string]string `json:"set,omitempty"`   // variables that the launcher has set
	Path  string            `json:"path,omitempty"`  // what it has put in front of PATH, with the colon
	Files []file            `json:"files,omitempty"`

	Said      string `json:"said,omitempty"` // by the server behind its launcher; see [Launch.Said]
	Confirmed bool   `json:"confirmed,omitempty"`
	Saves     int64  `json:"saves,omitempty"`  // bytes of memory that the launcher took
	Spares    int    `json:"spares,omitempty"` // processes that it was

	Took time.Duration `json:"took,omitempty"` // until the server served behind its launcher
}

// sum returns the checksum of a record.
func (r *record) sum() string {
	plain := *r
	plain.Sum = ""
	b, err := json.Marshal(plain)
	if err != nil { // strings and numbers always encode
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// isSame reports whether two records have the same leaf.
func (r *record) isSame(other *record) bool {
	return r.Exe == other.Exe && slices.Equal(r.Args, other.Args) && r.Given == other.Given &&
		slices.Equal(r.Files, other.Files)
}

// holds reports whether the files on which the record depends are what they were.
func (r *record) holds() bool {
	for _, f := range r.Files {
		if !f.holds() {
			return false
		}
	}
	return true
}

// A Store keeps records in a directory, each in a file of its own. Other processes of this program may use it, too.
type Store struct {
	dir string

	mu   sync.Mutex // held while a record is changed
	held *sync.Map  // records by their keys that are not on disk yet; nil if all go there at once
}

// Open returns the store in a directory, which is made with the first record.
func Open(dir string) *Store { return &Store{dir: dir} }

// Hold returns the store in a directory to which nothing is written before [Store.Keep].
func Hold(dir string) *Store { return &Store{dir: dir, held: new(sync.Map)} }

// Keep writes the records of a store that holds them.
func (s *Store) Keep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	s.held.Range(func(_, r any) bool {
		err = s.put(r.(*record)) //nolint:forcetypeassert // no other is stored
		return err == nil
	})
	return err
}

// path returns where the record with that key is.
func (s *Store) path(key string) string { return filepath.Join(s.dir, key+".json") }

// read returns the record with that key, or nil. One that is damaged, or of another version, is none: the server is
// started as its entry says, and recorded again.
func (s *Store) read(key string) *record {
	if s.held != nil {
		if held, ok := s.held.Load(key); ok {
			r := *held.(*record) //nolint:forcetypeassert // no other is stored
			return &r
		}
	}
	b, err := ownfile.Read(s.path(key), maxRecord)
	var r record
	if err != nil || json.Unmarshal(b, &r) != nil || r.Version != recordVersion || r.Key != key || r.Sum != r.sum() {
		return nil
	}
	return &r
}

// write puts a record into its file, or holds it.
func (s *Store) write(r *record) error {
	if s.held == nil {
		return s.put(r)
	}
	held := *r
	s.held.Store(r.Key, &held)
	return nil
}

// put puts a record into its file.
func (s *Store) put(r *record) error {
	err := statedir.MakeRoot(filepath.Dir(s.dir)) // no daemon may have run yet
	if err == nil {
		err = statedir.MakeDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("record of a launch: %w", err)
	}
	r.Version = recordVersion
	r.Sum = r.sum()
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("record of a launch: %w", err)
	}
	err = statedir.WriteFile(s.path(r.Key), append(b, '\n'))
	s.prune()
	return err
}

// change changes the record with that key, if it is still there.
func (s *Store) change(key string, change func(r *record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.read(key)
	if r == nil {
		return nil
	}
	change(r)
	return s.write(r)
}

// Known is what a record says, for people.
type Known struct {
	Dir     string    `json:"dir"`                       // in which the server is started
	Program []string  `json:"program,omitempty"`         // without the arguments of the entry; none with Why
	Why     string    `json:"why,omitempty"`             // why the server is started as its entry says
	At      time.Time `json:"at"`                        // when the launcher ran last
	Saves   int64     `json:"saves_bytes,omitempty"`     // memory that the launcher took
	Spares  int       `json:"saves_processes,omitempty"` // processes that it was
}

// Known returns what is known of the launches of the servers with these names that records still hold for, the
// latest of each directory, by the names.
func (s *Store) Known(servers ...string) map[string][]Known {
	lockcheck.Blocking("read the records of launches")
	all := map[string][]Known{}
	for _, r := range s.all() {
		if !slices.Contains(servers, r.Server) || !r.holds() {
			continue
		}
		k := Known{Dir: r.Dir, Why: r.Why, At: r.At, Saves: r.Saves, Spares: r.Spares}
		if r.Why == "" {
			k.Program = append([]string{r.Exe}, r.Args...)
		}
		if slices.ContainsFunc(all[r.Server], func(k Known) bool { return k.Dir == r.Dir }) {
			continue
		}
		all[r.Server] = append(all[r.Server], k)
	}
	return all
}

// Forget removes all records of a server: its launcher looks again. remember puts back those of which there is no
// other one by then.
func (s *Store) Forget(server string) (remember func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []*record
	remember = func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		var errs []error
		for _, r := range gone {
			if s.read(r.Key) == nil {
				errs = append(errs, s.write(r))
			}
		}
		return errors.Join(errs...)
	}
	for _, r := range s.all() {
		if r.Server != server {
			continue
		}
		if err := os.Remove(s.path(r.Key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return remember, fmt.Errorf("record of a launch: %w", err)
		}
		gone = append(gone, r)
	}
	return remember, nil
}

// all returns the records that are not damaged, the latest first.
func (s *Store) all() (records []*record) {
	entries, err := os.ReadDir(s.dir)
	if err != nil { // most likely there is none yet
		return nil
	}
	for _, e := range entries {
		if key, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			if r := s.read(key); r != nil {
				records = append(records, r)
			}
		}
	}
	slices.SortFunc(records, func(a, b *record) int { return b.At.Compare(a.At) })
	return records
}

// prune removes the oldest records if there are too many, and what killed processes have left.
func (s *Store) prune() {
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) <= maxRecords {
		return
	}
	statedir.Sweep(s.dir, true)
	age := func(e os.DirEntry) time.Time {
		info, err := e.Info()
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return age(a).Compare(age(b)) })
	for _, e := range entries[:max(0, len(entries)-maxRecords)] {
		_ = os.Remove(filepath.Join(s.dir, e.Name()))
	}
}
