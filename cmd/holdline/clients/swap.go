package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"holdline/daemon/config/edit"
	"holdline/protocol/ownfile"
)

// ErrChanged is returned by [Client.Swap] for a file that has not the bytes that
// were read before.
var ErrChanged = edit.ErrChanged

// maxFile bounds a client's file, in bytes.
const maxFile = 64 << 20

// ReadFile reads a regular file of bounded size. A named pipe is refused at once,
// and so is a file that is too large. Errors do not contain the path.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	data, err := ownfile.ReadBounded(f, maxFile)
	return data, withoutPath(err)
}

// withoutPath returns an error of the file system without the path, which messages
// name anyway.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// Swap replaces the bytes of a client's file if they are still before; else it returns
// [ErrChanged]. If before is nil the file must not exist, and if after is nil the file
// is removed. Links are followed; mode and owner stay, and a new file can be read by
// the user alone.
//
// The new bytes are written to a temporary file and synced before the old ones are
// compared, so that little time is left for a client to write the file between the
// comparison and the rename, which is that of [ownfile.Rename]. While Swap edits a file that its
// client locks, which only Claude Code does, it holds that lock.
//
// Holdline's own file is replaced by [edit.Swap], which has a lock of its own.
//
// Swap blocks while another process holds the lock, until ctx is done or lockWait has
// passed.
func (c *Client) Swap(ctx context.Context, path string, before, after []byte) error {
	switch {
	case c == &Holdline:
		return edit.Swap(ctx, path, before, after)
	case c.Locked != "" && filepath.Base(path) == c.Locked:
		if before == nil { // the lock lies beside the file
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return withoutPath(err)
			}
		}
		unlock, err := lockClaude(ctx, path+".lock")
		if err != nil {
			return err
		}
		defer unlock()
	}
	if before == nil {
		return createFile(path, after)
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return withoutPath(err)
	}
	temp := ""
	if after != nil {
		if temp, err = writeBeside(path, after); err != nil {
			return withoutPath(err)
		}
		defer func() { _ = os.Remove(temp) }() // it is gone already if all went well
	}
	switch now, err := ReadFile(path); {
	case err != nil:
		return err
	case !bytes.Equal(now, before):
		return ErrChanged
	case after == nil:
		return os.Remove(path)
	}
	return ownfile.Rename(temp, path, after)
}

// tempPrefix returns how the names of temporary files beside path begin.
func tempPrefix(path string) string { return "." + filepath.Base(path) + ".holdline-" }

// writeBeside writes data into a temporary file beside path, with the mode and the
// owner of the file at path.
func writeBeside(path string, data []byte) (temp string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	temp, err = ownfile.WriteTemp(filepath.Dir(path), tempPrefix(path)+"*", data, info.Mode().Perm(), true)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && (int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid()) {
		if err := os.Chown(temp, int(st.Uid), int(st.Gid)); err != nil {
			_ = os.Remove(temp)
			return "", fmt.Errorf("its owner cannot be kept: %w", withoutPath(err))
		}
	}
	return temp, nil
}

// createFile creates a file at path, with its directory; it returns [ErrChanged] if
// one exists. A reader never sees a part of the file.
func createFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return withoutPath(err)
	}
	temp, err := ownfile.WriteTemp(filepath.Dir(path), tempPrefix(path)+"*", data, 0o600, true)
	if err != nil {
		return withoutPath(err)
	}
	defer func() { _ = os.Remove(temp) }()
	err = os.Link(temp, path) // fails if the file exists by now, as a rename would not
	if errors.Is(err, fs.ErrExist) {
		return ErrChanged
	}
	return err
}

// RemoveTemporary removes the temporary files that an interrupted [Client.Swap] of
// path has left.
func RemoveTemporary(path string) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return
	}
	list, _ := os.ReadDir(filepath.Dir(target))
	for _, d := range list {
		if strings.HasPrefix(d.Name(), tempPrefix(target)) {
			_ = os.Remove(filepath.Join(filepath.Dir(target), d.Name()))
		}
	}
}

// Times of the lock that Claude Code takes while it writes its file: a directory
// beside the file, whose modification time it renews while it holds the lock.
const (
	lockWait  = 10 * time.Second
	lockStale = 15 * time.Second
	lockPoll  = 20 * time.Millisecond
)

// lockClaude takes Claude Code's lock. A lock that was not renewed for lockStale
// belonged to a process that died, and is removed.
func lockClaude(ctx context.Context, path string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait,
		errors.New("its client has been writing it for too long ("+path+" is there)"))
	defer cancel()
	for {
		err := os.Mkdir(path, 0o700)
		if err == nil {
			return func() { _ = os.Remove(path) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, withoutPath(err)
		}
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > lockStale {
			_ = os.Remove(path)
			continue
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockPoll):
		}
	}
}
