package install

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// content is what a path has, or is to have: nothing, a link or a file.
type content struct {
	exists bool
	link   string // where it leads; "" for a file
	data   []byte // of a file
	mode   os.FileMode
}

// readContent returns what a path has. A directory or a device is an error.
func readContent(path string) (content, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return content{}, nil
	}
	if err != nil {
		return content{}, err
	}
	c := content{exists: true, mode: info.Mode().Perm()}
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		c.link, err = os.Readlink(path)
	case info.Mode().IsRegular():
		c.data, err = os.ReadFile(path)
	default:
		err = fmt.Errorf("%s is in the way: it is not a file", path)
	}
	return c, err
}

// id identifies a content in a manifest.
func (c content) id() string {
	if c.link != "" {
		return "link:" + c.link
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(c.data))
}

// putFile gives the content to path, as a whole: a reader never sees half of a file. If
// the content does not exist, putFile removes what is at path. The directory must exist.
func (c content) putFile(path string) error {
	pattern := fmt.Sprintf(".%s.%d-", filepath.Base(path), os.Getpid())
	switch {
	case !c.exists:
		return removeFile(path)
	case c.link == "":
		return ownfile.Replace(path, pattern+"*", c.data, c.mode, false, nil)
	}
	temp := filepath.Join(filepath.Dir(path), pattern+"0")
	if err := errors.Join(removeFile(temp), os.Symlink(c.link, temp)); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// removeFile removes the file at path, if it exists.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// lockWait is how long an installation waits for another one.
const lockWait = time.Minute

// lockHome waits until no other process installs or uninstalls for this user, and keeps
// others from it until unlock is called. Two at once would each write a manifest that
// lacks the other's files.
func (o *Options) lockHome(ctx context.Context) (unlock func(), err error) {
	if _, err := os.Stat(o.Home); err != nil || o.DryRun {
		return func() {}, nil // a later step says that there is no home
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait,
		errors.New("another holdline install or uninstall is at work: wait until it has ended, then do this again"))
	defer cancel()
	return statedir.LockDir(ctx, o.Home)
}
