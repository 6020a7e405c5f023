package configfile

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"holdline/daemon/config"
	"holdline/daemon/jsonedit"
	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// Copies of good files, in the state directory.
const (
	maxCopies = 8                       // of different files; the oldest go
	maxCopy   = config.MaxFile + 64<<10 // bytes: a configuration file and its first line
)

// CopyPath returns the path of the copy of the last good state of the configuration
// file at path. The copy may hold secrets, as the file may.
func CopyPath(stateDir, path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(statedir.In(stateDir).Config, hex.EncodeToString(sum[:6])+".json")
}

// firstLine returns the line with which the copy of the file at path begins, whose bytes
// are data.
func firstLine(path string, data []byte) []byte {
	sum := sha256.Sum256(data)
	return fmt.Appendf(nil, "// The last good state of %q, kept by holdline. Edit that file, not this one. (%x)\n",
		path, sum[:8])
}

// Copy returns the last good state of the file at path, of which a daemon has kept a copy.
// The error wraps [fs.ErrNotExist] if there is none. A copy that is damaged, or is that of
// another file, is an error that names the copy.
func Copy(stateDir, path string) ([]byte, error) {
	name := CopyPath(stateDir, path)
	b, err := ownfile.Read(name, maxCopy)
	if err != nil {
		return nil, err
	}
	line, data, _ := bytes.Cut(b, []byte("\n"))
	if !bytes.Equal(append(line, '\n'), firstLine(path, data)) {
		return nil, fmt.Errorf("%s is damaged", name)
	}
	return data, nil
}

// readCopy returns the configuration of the copy of the file at path. The error is that of
// [Copy], or says why this program does not accept the copy.
func readCopy(stateDir, path string) (config.Config, error) {
	data, err := Copy(stateDir, path)
	if err != nil {
		return config.Config{}, err
	}
	return config.ParseForUse(CopyPath(stateDir, path), data)
}

// DropCopy removes the copy of the file at path, so that the next daemon takes a file that
// says nothing for what the user means.
func DropCopy(stateDir, path string) error {
	if err := os.Remove(CopyPath(stateDir, path)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// CheckNothing returns an [ErrNothing] if the file at path says nothing, or is not there,
// although a copy of its last good state is kept, which says something. It is for commands:
// an edit would put a file into force that has lost all other settings.
func CheckNothing(stateDir, path string) error {
	data, err := config.Read(path)
	if err != nil || !jsonedit.SaysNothing(data) {
		return nil //nolint:nilerr // that is another mistake, which the caller finds
	}
	switch kept, err := readCopy(stateDir, path); {
	case errors.Is(err, fs.ErrNotExist), err == nil && isDefault(&kept, ""):
		return nil
	}
	return errNothing(path, data)
}

// writeCopy keeps data, which is a good state of the file at path. An error is
// logged: the daemon serves without a copy, too.
func (f *File) writeCopy(ctx context.Context, path string, data []byte) {
	name := CopyPath(f.o.StateDir, path)
	if have, err := Copy(f.o.StateDir, path); err == nil && bytes.Equal(have, data) {
		return
	}
	err := statedir.MakeDir(filepath.Dir(name))
	if err == nil {
		// On the disk: what empties the file may be a loss of power, too.
		err = statedir.WriteDurable(name, append(firstLine(path, data), data...)) // of mode 0600
	}
	if err != nil {
		f.o.Log.WarnContext(ctx, "no copy of the configuration was kept: a daemon cannot start beside a bad edit of it",
			"err", err)
		return
	}
	removeOldCopies(filepath.Dir(name))
}

// removeOldCopies removes all but the newest maxCopies files of dir.
func removeOldCopies(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= maxCopies {
		return
	}
	written := func(e os.DirEntry) int64 {
		info, err := e.Info()
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(written(b), written(a)) })
	for _, e := range entries[maxCopies:] {
		_ = os.Remove(filepath.Join(dir, e.Name()))
	}
}
