// Package statedir has the daemon's files: where they are, how one is written so that
// no reader ever sees half of it, and the lock by which a process shows that it is alive.
//
// It starts no goroutine, and does not know what the files contain.
package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"holdline/protocol/faultpoint"
	"holdline/protocol/lockcheck"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// ErrForeign is wrapped by errors about a directory that is not safe to use:
// not a directory, not ours, or open to others.
var ErrForeign = errors.New("directory cannot be trusted")

// DaemonLog is the log of daemons that are started on demand, in the state directory.
const DaemonLog = "logs/daemon.log"

// Dirs is the layout of the state directory.
type Dirs struct {
	Root      string
	Telemetry string // telemetry.jsonl
	Logs      string
	Consults  string // one directory for each consult
	Catalog   string
	Config    string // copies of good configuration files
	Servers   string // what is held against hosted servers
	Logins    string // logins of remote servers
	Tasks     string // tasks of calls of hosted servers
	Launches  string // how servers are started without their launchers
}

// In returns the paths of the parts of the state directory at root. It touches no
// file.
func In(root string) Dirs {
	return Dirs{
		Root:      root,
		Telemetry: filepath.Join(root, "telemetry.jsonl"),
		Logs:      filepath.Join(root, "logs"),
		Consults:  filepath.Join(root, "consults"),
		Catalog:   filepath.Join(root, "catalog"),
		Config:    filepath.Join(root, "config"),
		Servers:   filepath.Join(root, "servers"),
		Logins:    filepath.Join(root, "logins"),
		Tasks:     filepath.Join(root, "tasks"),
		Launches:  filepath.Join(root, "launches"),
	}
}

// Open creates what is missing of the state directory at root, with mode 0700, and
// returns the paths of its parts. The error wraps [ErrForeign] if a part cannot be
// trusted. Logs alone may be missing after that, since no log is needed to serve: who writes
// one says what is wrong.
func Open(root string) (Dirs, error) {
	d := In(root)
	if err := MakeRoot(root); err != nil {
		return Dirs{}, err
	}
	for _, dir := range []string{d.Logs, d.Consults, d.Catalog} {
		err := MakeDir(dir)
		if _, unusable := errors.AsType[*fs.PathError](err); unusable && dir == d.Logs {
			continue // no directory, or one that cannot be read, made or entered; one of others is an error
		}
		if err != nil {
			return Dirs{}, err
		}
	}
	return d, nil
}

// MakeRoot creates the state directory at root as [MakeDir] does, with its parents.
func MakeRoot(root string) error {
	if err := os.MkdirAll(filepath.Dir(root), 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	return MakeDir(root)
}

// MakeDir creates a directory of mode 0700 at path if nothing is there. What is there
// must be a real directory of this user that others cannot write to; otherwise the
// error wraps [ErrForeign]. MakeDir never changes its mode or owner.
func MakeDir(path string) error {
	lockcheck.Blocking("make directory")
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to uid %d", ErrForeign, path, st.Uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: %s can be written by others (mode %#o)", ErrForeign, path, info.Mode().Perm())
	}
	return nil
}

// Overwrite puts data, which must always have the same length, into the file at path.
// It writes in place, which succeeds on a full file system, too. If there is no file
// that it can write, it creates one as [WriteFile] does.
func Overwrite(path string, data []byte) error {
	f, err := ownfile.OpenFile(path, os.O_WRONLY)
	if err != nil {
		return WriteFile(path, data)
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Truncate(int64(len(data))) // it may hold something else
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("overwrite file: %w", err)
	}
	return nil
}

// WriteFile puts data into path as a whole: a reader sees the old content or
// the new. The file has mode 0600. A process that is killed meanwhile leaves a file that
// [Sweep] removes.
func WriteFile(path string, data []byte) error {
	return replace(path, data, false, func() { faultpoint.At("file.half") })
}

// WriteDurable is [WriteFile], and returns only once the content and its name are on the
// disk: a power cut right after it loses neither. It costs two syncs.
func WriteDurable(path string, data []byte) error {
	if err := replace(path, data, true, func() { faultpoint.At("file.durable.half") }); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// syncDir puts the names in a directory on the disk. It is no error if the file system does not sync
// directories: the rename is done then, and a caller that fails would do it again and again.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close())
	}
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}

// replace puts data into path by a rename; see [ownfile.Replace].
func replace(path string, data []byte, sync bool, half func()) error {
	if err := ownfile.Replace(path, patternFor(path), data, 0o600, sync, half); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// CreateTemp makes a file beside path that is to get that name once it is complete. A process
// that is killed meanwhile leaves a file that [Sweep] removes.
func CreateTemp(path string) (*os.File, error) {
	lockcheck.Blocking("create")
	return os.CreateTemp(filepath.Dir(path), patternFor(path))
}

// patternFor returns the pattern of the temporary files of this process for path.
func patternFor(path string) string {
	me := self()
	return fmt.Sprintf(tempPattern, filepath.Base(path), me.PID, me.Start)
}

// tempPattern makes the pattern of a temporary file of the path's last element and of its
// writer: see [writerOf].
const tempPattern = ".%s.%d.%d-*"

// self returns this process, which is looked up once.
var self = sync.OnceValue(process.Self)
