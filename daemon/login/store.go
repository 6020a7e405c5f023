package login

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"holdline/daemon/filewatch"
	"holdline/daemon/redact"
	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Secret is a token, a code, a key or another value that no way of printing shows.
type Secret = redact.Secret

// version is that of the files. A file of a higher one is refused.
const version = 1

// maxFile bounds a file of the store, in bytes.
const maxFile = 1 << 20

// Errors of the store. One about a file that is not there wraps [fs.ErrNotExist].
var (
	ErrNewer  = errors.New("written by a newer holdline")
	ErrOpen   = errors.New("can be read or written by other users")
	ErrBroken = errors.New("cannot be read")
)

// Store is the directory of logins. Any number of processes use it at the same time. Make
// it with [Open]. It is safe for concurrent use.
type Store struct {
	dir string
	key *Key
}

// Open returns the store in dir, which need not exist before the first [Store.Update].
// key seals the files; nil leaves them in clear text.
func Open(dir string, key *Key) *Store { return &Store{dir: dir, key: key} }

// Dir returns the directory of the store.
func (s *Store) Dir() string { return s.dir }

// Record is the content of a file: a [*Target], [*Login], [*Registration] or
// [*Credentials].
type Record interface {
	dir() string // below the store's directory
	head() *Head
	hidden() map[string]*Secret // secret fields by their keys
}

// Head is what all files begin with. It keeps the keys that this version does not know,
// so that a newer version does not lose them.
type Head struct {
	Version int                        `json:"version"`
	ID      string                     `json:"id"` // of the record: the name of its file
	unknown map[string]json.RawMessage // keys of the file that the record has no field for
}

func (h *Head) head() *Head { return h }

// hashID returns the name of a file: the first 16 hexadecimal digits of the SHA-256 of a
// JSON array.
func hashID(parts ...string) string {
	b, err := json.Marshal(parts)
	if err != nil { // strings always encode
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// path returns where the record of that id is.
func (s *Store) path(id string, r Record) string { return filepath.Join(s.dir, r.dir(), id+".json") }

// Stamp returns the identity of a record's file, which differs after each write. It is
// the zero one if there is no such file.
func (s *Store) Stamp(id string, r Record) filewatch.Stamp {
	stamp, _ := filewatch.Stat(s.path(id, r))
	return stamp
}

// IDs returns the ids of all records of the same type as r, sorted.
func (s *Store) IDs(r Record) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, r.dir()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok && !strings.HasPrefix(id, ".") && !e.IsDir() {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// Sweep removes what killed processes have left of files that they were writing. Call it before
// this process writes any.
func (s *Store) Sweep() {
	for _, r := range []Record{new(Target), new(Login), new(Registration), new(Credentials)} {
		statedir.Sweep(filepath.Join(s.dir, r.dir()), true)
	}
}

// Read reads the record of that id into r, which is empty with an error. It takes no lock: a file is always whole. The
// error wraps [fs.ErrNotExist], [ErrNewer], [ErrOpen], [ErrBroken], [ErrNoKey] or
// [ownfile.ErrRefused].
func (s *Store) Read(id string, r Record) error {
	return ownfile.Again(func() error { return s.read(id, r) })
}

// read is [Store.Read] without another try.
func (s *Store) read(id string, r Record) error {
	reflect.ValueOf(r).Elem().SetZero() // decoding keeps what the file does not have
	path := s.path(id, r)
	f, err := ownfile.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s %w. Fix: chmod 600 %s", path, ErrOpen, path)
	}
	b, err := ownfile.ReadBounded(f, maxFile)
	if err == nil {
		b, err = s.key.unseal(filepath.Join(r.dir(), id+".json"), b)
	}
	if err == nil {
		err = decode(b, r)
	}
	// A file that bears another id was put there from elsewhere: one server's token must not reach another.
	if err == nil && r.head().ID != id {
		err = ErrBroken
	}
	if err != nil {
		reflect.ValueOf(r).Elem().SetZero()
		return fmt.Errorf("%s %w", path, err)
	}
	return nil
}

// IsDamaged reports whether an error of [Store.Read] is about a file of which nothing is left to keep: it is
// no record, or another one's, or it cannot be opened. A login or a logout replaces it.
func IsDamaged(err error) bool {
	return errors.Is(err, ErrBroken) || errors.Is(err, ownfile.ErrRefused) || errors.Is(err, fs.ErrPermission)
}

// ReadWhole is [Store.ReadIfThere], and leaves r empty without an error also if the file is damaged.
func (s *Store) ReadWhole(id string, r Record) error {
	if err := s.ReadIfThere(id, r); err != nil && !IsDamaged(err) {
		return err
	}
	return nil
}

// ReadIfThere is [Store.Read], and leaves r empty without an error if there is no file.
func (s *Store) ReadIfThere(id string, r Record) error {
	if err := s.Read(id, r); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// decode reads the text of a file into r. Its error shows nothing of the text.
func decode(b []byte, r Record) error {
	var head Head
	if json.Unmarshal(b, &head) != nil {
		return ErrBroken
	}
	if head.Version > version {
		return ErrNewer
	}
	all := map[string]json.RawMessage{}
	if json.Unmarshal(b, r) != nil || json.Unmarshal(b, &all) != nil {
		return ErrBroken
	}
	known, err := encode(r)
	if err != nil {
		return err
	}
	for key := range known {
		delete(all, key)
	}
	r.head().unknown = all
	return nil
}

// encode returns the keys and values of a file.
func encode(r Record) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(r) // which hides the secrets
	if err != nil {
		return nil, err
	}
	out := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, err
	}
	for key, secret := range r.hidden() {
		if *secret == "" {
			continue // which has no key
		}
		if out[key], err = json.Marshal(secret.Reveal()); err != nil {
			return nil, err
		}
	}
	for key, value := range r.head().unknown {
		if _, known := out[key]; !known {
			out[key] = value
		}
	}
	return out, nil
}

// errUnchanged lets a change of [Store.Update] leave the file as it is.
var errUnchanged = errors.New("unchanged")

// Update changes the record of that id under its lock: it reads the file into r, calls
// change, and writes r durably. A record that is not there is empty. If change returns an
// error, the file stays, and Update returns that error.
//
// Update waits for the lock until ctx is done, at most a minute. A caller that changes
// several records holds no lock meanwhile; [Store.Lock] is for those that must.
func (s *Store) Update(ctx context.Context, id string, r Record, change func() error) error {
	return s.update(ctx, id, r, s.ReadIfThere, change)
}

// Renew is [Store.Update] for a login, which replaces a damaged record, too: that is empty for change.
func (s *Store) Renew(ctx context.Context, id string, r Record, change func() error) error {
	read := func(id string, r Record) error {
		if err := moveDirectory(s.path(id, r)); err != nil {
			return err
		}
		return s.ReadWhole(id, r)
	}
	return s.update(ctx, id, r, read, change)
}

// update is [Store.Update], and reads the record by read.
func (s *Store) update(
	ctx context.Context, id string, r Record, read func(id string, r Record) error, change func() error,
) error {
	held, err := s.Lock(ctx, id, r)
	if err != nil {
		return err
	}
	defer held.Unlock()
	if err := read(id, r); err != nil {
		return err
	}
	if err := change(); err != nil {
		if errors.Is(err, errUnchanged) {
			return nil
		}
		return err
	}
	return held.Write(r)
}

// Remove deletes the record of that id under its lock. It is no error if there is none.
func (s *Store) Remove(ctx context.Context, id string, r Record) error {
	return s.removeIf(ctx, id, r, func() bool { return true })
}

// removeIf is [Store.Remove] if is reports true once r is read; r is empty if it cannot be.
func (s *Store) removeIf(ctx context.Context, id string, r Record, is func() bool) error {
	held, err := s.Lock(ctx, id, r)
	if err != nil {
		return err
	}
	defer held.Unlock()
	if _ = s.Read(id, r); !is() {
		return nil
	}
	return held.Remove(r)
}

// Held is the lock of one record. Locks are taken in the order target, login,
// registration.
type Held struct {
	s    *Store
	id   string
	lock *statedir.Lock
}

// BusyError reports that another process holds the lock of a record for too long.
type BusyError struct{ Holder string }

// Error names the process.
func (e *BusyError) Error() string {
	return e.Holder + " holds the login's lock for more than a minute"
}

// Limits of the wait for a lock.
const (
	lockLimit = time.Minute
	// foreignLimit is how long the lock may be held while the process that the file names has ended,
	// before its holder counts for another program.
	foreignLimit = 10 * time.Second

	firstTry = 25 * time.Millisecond
	lastTry  = 250 * time.Millisecond
)

// Lock takes the lock of the record of that id, and waits for it until ctx is done, at
// most a minute: then the error is a [*BusyError]. It makes the store's directories. The
// lock ends with [Held.Unlock] or with the process.
func (s *Store) Lock(ctx context.Context, id string, r Record) (*Held, error) {
	return s.lockUnless(ctx, id, r, func() bool { return false })
}

// lockUnless is [Store.Lock], and gives up with nil as soon as another process has done what
// the lock is for.
func (s *Store) lockUnless(ctx context.Context, id string, r Record, done func() bool) (*Held, error) {
	if err := s.makeDirs(r.dir()); err != nil {
		return nil, err
	}
	path := strings.TrimSuffix(s.path(id, r), ".json") + ".lock"
	for begin, pause := time.Now(), firstTry; ; pause = min(2*pause, lastTry) {
		lock, err := statedir.TryLock(path)
		// Whoever takes it writes its name at once.
		if errors.Is(err, statedir.ErrLocked) && time.Since(begin) > foreignLimit && statedir.HolderEnded(path) {
			lock, err = statedir.Seize(path)
		}
		if err == nil {
			me := process.Self()
			_ = lock.Write(me.PID, me.Start) // for doctor only: a full disk must not stop a login
			return &Held{s, id, lock}, nil
		}
		if !errors.Is(err, statedir.ErrLocked) {
			return nil, err
		}
		if done() {
			return nil, nil //nolint:nilnil // documented
		}
		if time.Since(begin) > lockLimit {
			return nil, &BusyError{statedir.WhoHolds(path)}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// makeDirs creates what is missing of the store's directories.
func (s *Store) makeDirs(sub string) error {
	if err := statedir.MakeRoot(filepath.Dir(s.dir)); err != nil {
		return err
	}
	for _, dir := range []string{s.dir, filepath.Join(s.dir, sub)} {
		if err := statedir.MakeDir(dir); err != nil {
			return err
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm()&0o077 != 0 {
			return cmp.Or(err, fmt.Errorf("%s %w. Fix: chmod 700 %s", dir, ErrOpen, dir))
		}
	}
	return nil
}

// Write puts r durably into the file whose lock is held.
func (h *Held) Write(r Record) error {
	r.head().Version, r.head().ID = version, h.id
	fields, err := encode(r)
	if err != nil {
		return err
	}
	b, err := json.Marshal(fields)
	if err == nil {
		b, err = h.s.key.seal(filepath.Join(r.dir(), h.id+".json"), b)
	}
	if err != nil {
		return err
	}
	return statedir.WriteDurable(h.s.path(h.id, r), append(b, '\n'))
}

// moveDirectory moves a directory at path away, which nothing can take the place of.
func moveDirectory(path string) error {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return nil //nolint:nilerr // what is wrong with the path is found out when it is used
	}
	return os.Rename(path, path+".damaged-"+time.Now().Format("20060102T150405.000000"))
}

// Remove deletes the file whose lock is held. It is no error if there is none.
func (h *Held) Remove(r Record) error {
	if err := moveDirectory(h.s.path(h.id, r)); err != nil {
		return err
	}
	if err := os.Remove(h.s.path(h.id, r)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Unlock releases the lock, and leaves its file: one that comes and goes could be locked
// twice.
func (h *Held) Unlock() {
	_ = h.lock.Clear()
	_ = h.lock.Unlock()
}
