package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"holdline/daemon/config"
)

// Times of the lock that Claude Code takes while it writes its file: a
// directory beside it, which it touches while it holds it.
const (
	lockWait  = 10 * time.Second
	lockStale = 15 * time.Second
	lockPoll  = 20 * time.Millisecond
)

// testOnlyBeforeSwap is called before the last look at a file that is replaced.
var testOnlyBeforeSwap = func(path string) {}

// swap replaces the bytes of a client's file, which must be before, by after;
// nil before says that it must not be there. Links are followed, mode and owner
// stay. It is [config.ErrChanged] that the file is another.
func swap(ctx context.Context, c *client, path string, before, after []byte) error {
	if c.name == "claude" && filepath.Base(path) == ".claude.json" {
		unlock, err := lock(ctx, path+".lock")
		if err != nil {
			return err
		}
		defer unlock()
	}
	testOnlyBeforeSwap(path)
	if before == nil {
		return create(path, after)
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return errors.New(reason(err))
	}
	info, err := os.Stat(path)
	if err != nil {
		return errors.New(reason(err))
	}
	temp, err := written(path, after, info)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp) }() // gone already if all went well
	now, err := os.ReadFile(path)
	if err != nil {
		return errors.New(reason(err))
	}
	if !bytes.Equal(now, before) {
		return config.ErrChanged
	}
	return os.Rename(temp, path)
}

// temporary is what the name begins with of a file that is to take path's
// place.
func temporary(path string) string { return "." + filepath.Base(path) + ".holdline-" }

// written is a file beside path with data, ready to take its place.
func written(path string, data []byte, like fs.FileInfo) (temp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), temporary(path)+"*")
	if err != nil {
		return "", errors.New(reason(err))
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = cerr
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	mode := fs.FileMode(0o600)
	if like != nil {
		mode = like.Mode().Perm()
		if st, ok := like.Sys().(*syscall.Stat_t); ok && (int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid()) {
			if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil {
				return "", fmt.Errorf("its owner cannot be kept: %s", reason(err))
			}
		}
	}
	if err := f.Chmod(mode); err != nil {
		return "", errors.New(reason(err))
	}
	if _, err := f.Write(data); err != nil {
		return "", errors.New(reason(err))
	}
	return f.Name(), f.Sync()
}

// create makes a file that is not there.
func create(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return errors.New(reason(err))
	}
	temp, err := written(path, data, nil)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp) }()
	// A link, since it fails if there is a file by now.
	err = os.Link(temp, path)
	if errors.Is(err, fs.ErrExist) {
		return config.ErrChanged
	}
	return err
}

// lock takes a lock of Claude Code's. It belongs to the process: a lock that
// was not touched for a while is that of one which died.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, errors.New("its client has been writing it for too long ("+path+" is there)"))
	defer cancel()
	for {
		err := os.Mkdir(path, 0o700)
		if err == nil {
			return func() { _ = os.Remove(path) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, errors.New(reason(err))
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

// missing are the directories above path that are not there, outermost first.
func missing(path string) []string {
	var out []string
	for dir := filepath.Dir(path); !exists(dir); dir = filepath.Dir(dir) {
		out = append([]string{dir}, out...)
	}
	return out
}

// prune removes directories that were made and are empty, innermost first.
func prune(dirs []string) {
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}
