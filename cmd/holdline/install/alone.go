package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Times of waiting for another installation.
const (
	aloneWait  = time.Minute
	alonePause = 50 * time.Millisecond
)

// alone waits until no other process installs or uninstalls for this user, and
// keeps others from it until release is called. Two at once would each write a
// manifest that does not know of the other's files. The lock lies on the home
// directory itself: a file for it would be one more that has to go.
func (o *Options) alone(ctx context.Context) (release func(), err error) {
	if o.DryRun {
		return func() {}, nil
	}
	f, err := os.Open(o.Home)
	if err != nil {
		return func() {}, nil //nolint:nilerr // what needs the directory says so
	}
	for end := time.Now().Add(aloneWait); ; {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil, errors.Is(err, syscall.EBADF), errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.EOPNOTSUPP):
			// Some network file systems lock no directory.
			return func() { _ = f.Close() }, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", o.Home, err)
		case time.Now().After(end):
			_ = f.Close()
			return nil, errors.New("another holdline install or uninstall is at work: wait until it has ended, then do this again")
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(alonePause):
		}
	}
}
