package configfile

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"holdline/daemon/config"
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

// firstLine returns the line with which the copy of the file at path begins.
func firstLine(path string) []byte {
	return fmt.Appendf(nil, "// The last good state of %q, kept by holdline. Edit that file, not this one.\n", path)
}

// readCopy returns the configuration of the copy of the file at path. It returns
// an error if there is none that this program accepts.
func readCopy(stateDir, path string) (config.Config, error) {
	b, err := ownfile.Read(CopyPath(stateDir, path), maxCopy)
	if err != nil {
		return config.Config{}, err
	}
	data, ours := bytes.CutPrefix(b, firstLine(path))
	if !ours {
		return config.Config{}, errors.New("the copy is one of another file")
	}
	return config.Parse(CopyPath(stateDir, path), data)
}

// writeCopy keeps data, which is a good state of the file at path. An error is
// logged: the daemon serves without a copy, too.
func (f *File) writeCopy(ctx context.Context, path string, data []byte) {
	name := CopyPath(f.o.StateDir, path)
	want := append(firstLine(path), data...)
	if have, err := ownfile.Read(name, maxCopy); err == nil && bytes.Equal(have, want) {
		return
	}
	err := statedir.MakeDir(filepath.Dir(name))
	if err == nil {
		err = statedir.WriteFile(name, want) // of mode 0600
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
