// Package statedir is the daemon's files: where they lie, how one is written
// so that no reader ever sees half of it, and the lock by which one process says
// that it is alive.
//
// It starts no goroutine. What stands in the files is the business of those
// who write them.
package statedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"holdline/protocol/faultpoint"
	"holdline/protocol/lockcheck"
	"holdline/protocol/ownfile"
)

// ErrForeign is wrapped by errors about a directory that is not safe to use:
// not a directory, not ours, or open to others.
var ErrForeign = errors.New("directory cannot be trusted")

// Dirs is the layout of the state directory.
type Dirs struct {
	Root      string
	Telemetry string // telemetry.jsonl
	Logs      string
	Consults  string // one directory for each consult
	Catalog   string
	Config    string // copies of good configuration files
	Servers   string // what is held against hosted servers
}

// In returns where things lie in the state directory at root.
func In(root string) Dirs {
	return Dirs{
		Root:      root,
		Telemetry: filepath.Join(root, "telemetry.jsonl"),
		Logs:      filepath.Join(root, "logs"),
		Consults:  filepath.Join(root, "consults"),
		Catalog:   filepath.Join(root, "catalog"),
		Config:    filepath.Join(root, "config"),
		Servers:   filepath.Join(root, "servers"),
	}
}

// Open makes what is missing of the state directory at root, every part of it
// closed to others, and says where things lie.
func Open(root string) (Dirs, error) {
	d := In(root)
	if err := MakeRoot(root); err != nil {
		return Dirs{}, err
	}
	for _, dir := range []string{d.Logs, d.Consults, d.Catalog} {
		if err := MakeDir(dir); err != nil {
			return Dirs{}, err
		}
	}
	return d, nil
}

// MakeRoot makes the state directory at root, with its parents, as [MakeDir] does.
func MakeRoot(root string) error {
	if err := os.MkdirAll(filepath.Dir(root), 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	return MakeDir(root)
}

// MakeDir makes path a directory of mode 0700 if nothing is there. What is
// there must be a real directory of this user that others cannot write to; it
// is never repaired. The error then wraps [ErrForeign].
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

// Overwrite puts data, which always has the same length, into path. It writes in
// place, which succeeds on a full file system, too. If nothing that it can
// write lies there it makes the file as [WriteFile] does.
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
	pattern := fmt.Sprintf(".%s.%d-*", filepath.Base(path), os.Getpid())
	err := ownfile.Replace(path, pattern, data, 0o600, false, func() { faultpoint.At("file.half") })
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}
