package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// ErrChanged is returned by [Swap] for a file that is not what it was.
var ErrChanged = errors.New("the file was changed meanwhile")

// editWait is how long an edit waits for another one.
const editWait = 5 * time.Second

// Swap replaces the bytes of the configuration file at path, which must be before, by
// after: at once or not at all, and only by a valid file. If after is nil it removes the
// file. A file that does not exist is an empty one; it is created with mode 0600.
func Swap(ctx context.Context, path string, before, after []byte) error {
	return replaceFile(ctx, path, func(data []byte) ([]byte, error) {
		if !bytes.Equal(data, before) {
			return nil, fmt.Errorf("%s: %w", path, ErrChanged)
		}
		return after, nil
	})
}

// replaceFile replaces the file to which path leads by what change returns for its
// bytes, or removes it if that is nil. It does so once no other edit is under way
// there, and only by a valid file, which is on the disk when replaceFile returns. If
// change returns the same bytes, nothing is written.
//
// change gets nil for a file that does not exist. It is called with the lock of the
// file's directory held.
func replaceFile(ctx context.Context, path string, change func(data []byte) (after []byte, err error)) error {
	path, err := target(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("editing the configuration: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, editWait, errors.New("another program keeps its directory for too long"))
	defer cancel()
	unlock, err := statedir.LockDir(ctx, dir)
	if err != nil {
		return fmt.Errorf("editing the configuration: %w", err)
	}
	defer unlock()
	data, mode, err := config.ReadSafe(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		mode = 0o600
	case err != nil:
		return fmt.Errorf("editing the configuration: %w", err)
	case len(data) > config.MaxFile: // the rest of it was not read, and would be lost
		return fmt.Errorf("%s has more than %d bytes", path, config.MaxFile)
	case mode&0o200 == 0:
		return fmt.Errorf("%s is read-only (mode %04o); whatever made it has to change it", path, mode)
	}
	after, err := change(data)
	switch {
	case err != nil:
		return err
	case after == nil:
		return os.Remove(path)
	case bytes.Equal(after, data):
		return nil
	}
	if err := config.CheckEdit(path, data, after); err != nil {
		return fmt.Errorf("the file would not be valid any more, and was left as it is: %w", err)
	}
	if err := ownfile.Replace(path, "."+filepath.Base(path)+".*", after, mode, true, nil); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return nil
}

// target returns where path leads, links followed; it need not exist.
func target(path string) (string, error) {
	file, err := filepath.EvalSymlinks(path)
	switch {
	case err == nil:
		return file, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("editing the configuration: %w", err)
	}
	if _, lerr := os.Readlink(path); lerr == nil {
		return "", fmt.Errorf("%s is a link that leads nowhere: %w", path, err)
	}
	return path, nil
}
