package statedir

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"holdline/protocol/rawio"
)

// ErrLocked is returned by [TryLock] when another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// Lock is an exclusive flock on a file. It is held until [Lock.Unlock] or the
// end of the process, whatever that end is, and is not inherited by programs
// that the process starts.
type Lock struct {
	f      *os.File
	mine   os.FileInfo
	memory bool        // it lies in memory
	gone   atomic.Bool // it was given up
}

// TryLock opens path, makes it if need be, and takes the lock on it without
// waiting. The lock is only returned if it is on the file that path names
// once it is held.
func TryLock(path string) (*Lock, error) {
	for range 10 {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600) // the os package adds O_CLOEXEC
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		l, err := FromFile(f)
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		if l.Still(path) {
			return l, nil
		}
		// Whoever held it has removed the file before we got the lock.
		_ = l.Unlock()
	}
	return nil, fmt.Errorf("lock %s: %w", path, ErrLocked)
}

// FromFile takes the lock on an open file, which the lock owns afterwards. On
// a file that came with the lock on it (inherited at an upgrade) it succeeds.
func FromFile(f *os.File) (*Lock, error) {
	if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, err
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return &Lock{f: f, mine: mine, memory: rawio.InMemory(f)}, nil
}

// flock does what how says (flock(2)). The error wraps [ErrLocked] if that would
// have to wait.
func flock(f *os.File, how int) error {
	conn, err := f.SyscallConn() // Fd would make the file blocking
	var ferr error
	if err == nil {
		err = conn.Control(func(fd uintptr) {
			for ferr = syscall.EINTR; errors.Is(ferr, syscall.EINTR); {
				ferr = syscall.Flock(int(fd), how)
			}
		})
	}
	if errors.Is(ferr, syscall.EWOULDBLOCK) {
		ferr = ErrLocked
	}
	if err = errors.Join(err, ferr); err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

// Write makes the lock's file say who holds it: "pid starttime\n", and in
// further lines what else others may want to know.
func (l *Lock) Write(pid int, start uint64, more ...string) error {
	b := fmt.Appendf(nil, "%d %d\n", pid, start)
	for _, line := range more {
		b = append(append(b, line...), '\n')
	}
	if err := l.f.Truncate(0); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	if _, err := l.f.WriteAt(b, 0); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	return nil
}

// Clear makes the lock's file name nobody.
func (l *Lock) Clear() error {
	if err := l.f.Truncate(0); err != nil {
		return fmt.Errorf("clear lock: %w", err)
	}
	return nil
}

// Still tells whether path names the file that is locked.
func (l *Lock) Still(path string) bool {
	return rawio.Still(path, l.mine, l.memory) && !l.gone.Load()
}

// Unlock gives the lock up, at once: a program that is being started right now
// has a copy of the descriptor until its exec, and to close ours alone would
// leave the lock held that long (flock(2)).
func (l *Lock) Unlock() error {
	l.gone.Store(true)
	return errors.Join(flock(l.f, syscall.LOCK_UN), l.f.Close())
}

// Held tells whether somebody holds the lock on the file at path, which must be
// there. Any number may ask at once: none takes another one for a holder.
func Held(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false, fmt.Errorf("look at lock: %w", err)
	}
	defer func() { _ = f.Close() }()
	err = flock(f, syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, ErrLocked) {
		return true, nil
	}
	return false, errors.Join(err, flock(f, syscall.LOCK_UN))
}

// Holder reads who says to hold the lock at path. Whether it still does, only
// [TryLock] and [Held] know.
func Holder(path string) (pid int, start uint64, err error) {
	pid, start, _, err = HolderOf(path)
	return pid, start, err
}

// HolderOf is [Holder] with what else the holder says: the second line, "" if
// there is none.
func HolderOf(path string) (pid int, start uint64, says string, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, "", fmt.Errorf("read lock: %w", err)
	}
	first, rest, _ := strings.Cut(string(b), "\n")
	says, _, _ = strings.Cut(rest, "\n")
	f := strings.Fields(first)
	if len(f) != 2 {
		return 0, 0, "", fmt.Errorf("read lock %s: it names nobody", path)
	}
	if pid, err = strconv.Atoi(f[0]); err == nil {
		start, err = strconv.ParseUint(f[1], 10, 64)
	}
	if err != nil || pid < 1 {
		return 0, 0, "", fmt.Errorf("read lock %s: it names nobody", path)
	}
	return pid, start, says, nil
}

// File is the locked file, for handing the lock over to a successor. The lock
// goes on owning it.
func (l *Lock) File() *os.File { return l.f }
