package statedir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"holdline/protocol/ownfile"
	"holdline/protocol/process"
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
	memory bool        // the file is on a file system in memory
	gone   atomic.Bool // set by Unlock
}

// TryLock opens the file at path, creates it if need be, and takes the lock on it
// without waiting. The error wraps [ErrLocked] if another process holds the lock.
// TryLock returns a lock only if path still names the locked file once the lock is
// held: the previous holder may have removed the file in between.
func TryLock(path string) (*Lock, error) {
	for range 10 {
		f, err := ownfile.OpenFile(path, os.O_RDWR|os.O_CREATE)
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
		// The last holder removed the file before we got the lock.
		_ = l.Unlock()
	}
	return nil, fmt.Errorf("lock %s: %w", path, ErrLocked)
}

// grace is how long a lock may be held by a process that only looks at it, or reaps what its holder has
// left, before [Seize] replaces the lock's file. namingTime is how long a process that has taken a lock may
// take to write its name into the file.
const (
	grace      = 100 * time.Millisecond
	namingTime = 2 * time.Second
	seizePause = 5 * time.Millisecond
)

// Seize is [TryLock], and also takes a lock that is held by a process whose name is not in the file. Any
// program that can read the file can lock it, and may do so for ever. If the process that the file names
// has ended, Seize replaces the file, after a moment. Whoever holds the lock on the file from before holds
// nothing then: see [Lock.Still]. The error wraps [ErrLocked] if the process in the file may live, or
// the file names none: see [SeizeUnnamed].
func Seize(path string) (*Lock, error) { return seize(path, grace, HolderEnded) }

// SeizeUnnamed is [Seize], and also replaces a file that names no process for so long that its holder is
// none that would write its name.
func SeizeUnnamed(path string) (*Lock, error) {
	lock, err := Seize(path)
	if !errors.Is(err, ErrLocked) || !namesNobody(path) {
		return lock, err
	}
	return seize(path, namingTime, func(path string) bool { return namesNobody(path) || HolderEnded(path) })
}

// seize is [TryLock] again and again, for so long as mayReplace says that the holder is none that
// counts; after limit it replaces the file.
func seize(path string, limit time.Duration, mayReplace func(path string) bool) (*Lock, error) {
	for begin := time.Now(); ; {
		lock, err := TryLock(path)
		if !errors.Is(err, ErrLocked) || !mayReplace(path) {
			return lock, err
		}
		if time.Since(begin) >= limit {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, fmt.Errorf("replace lock: %w", err)
			}
			return TryLock(path)
		}
		<-time.After(seizePause)
	}
}

// HolderEnded reports whether the file at path names a process as the holder of its lock, and that has
// certainly ended.
func HolderEnded(path string) bool {
	name, err := readName(path)
	return err == nil && name.space != "" && name.space == process.Space() && process.HasEnded(name.pid, name.start)
}

// namesNobody reports whether the file at path can be read and names no process.
func namesNobody(path string) bool {
	_, err := readName(path)
	return errors.Is(err, errNobody)
}

// WhoHolds returns for people which processes hold the lock at path, as far as that can be known. The
// process in the file is only named if it lives: another one may have its pid by now.
func WhoHolds(path string) string {
	var names []string
	for _, p := range process.LockHolders(path) {
		names = append(names, describe(p.PID))
	}
	if len(names) == 0 {
		if pid, start, err := Holder(path); err == nil && process.IsAlive(pid, start) {
			names = append(names, describe(pid))
		}
	}
	if len(names) == 0 {
		return "a process that cannot be seen from here"
	}
	return strings.Join(names, " and ")
}

// describe returns a process by its pid and its name.
func describe(pid int) string {
	if name := process.Name(pid); name != "" {
		return fmt.Sprintf("process %d (%s)", pid, name)
	}
	return fmt.Sprintf("process %d", pid)
}

// FromFile takes the lock on an open file, which the lock then owns. It also succeeds
// on a file that came with the lock on it, as at a hand-over to a newer program. If it
// fails, the caller still owns the file.
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

// flock calls flock(2) with the operation how. The error wraps [ErrLocked] if the call
// would have to wait.
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

// Write records the holder in the lock's file: "pid starttime space\n", and more, each on a
// line of its own; the space is that of [process.Space]. It needs no room on a full file
// system if the file has held as much before.
func (l *Lock) Write(pid int, start uint64, more ...string) error {
	b := fmt.Appendf(nil, "%d %d %s\n", pid, start, process.Space())
	for _, line := range more {
		b = append(append(b, line...), '\n')
	}
	return l.overwrite(b)
}

// Clear empties the lock's file, so that it names no process.
func (l *Lock) Clear() error { return l.overwrite(nil) }

// overwrite writes b over all that the file holds, in one write, so that a reader
// never sees parts of both. It fills the rest with line breaks: the file keeps the
// space that it has on a full file system.
func (l *Lock) overwrite(b []byte) error {
	info, err := l.f.Stat()
	if err == nil && info.Size() < maxLockFile {
		b = append(b, bytes.Repeat([]byte("\n"), max(0, int(info.Size())-len(b)))...)
	}
	if err == nil {
		_, err = l.f.WriteAt(b, 0)
	}
	if err == nil {
		err = l.f.Truncate(int64(len(b)))
	}
	if err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	return nil
}

// maxLockFile is more than a lock's file holds, in bytes.
const maxLockFile = ownfile.MaxNumber

// Still reports whether path names the file that is locked.
func (l *Lock) Still(path string) bool {
	return rawio.Still(path, l.mine, l.memory) && !l.gone.Load()
}

// Unlock releases the lock and closes the file. It releases the lock explicitly: a
// program that is being started right now has a copy of the descriptor until its exec,
// so closing alone would leave the lock held that long (flock(2)).
func (l *Lock) Unlock() error {
	l.gone.Store(true)
	return errors.Join(flock(l.f, syscall.LOCK_UN), l.f.Close())
}

// Held reports whether a process holds the lock on the file at path, which must exist. It returns false
// if the process that the file names has ended: then whoever holds the lock does not count, see [Seize].
// It takes a shared lock for a moment, so that several processes that ask at the same
// time are not taken for holders.
func Held(path string) (bool, error) {
	f, err := ownfile.Open(path)
	if err != nil {
		return false, fmt.Errorf("look at lock: %w", err)
	}
	defer func() { _ = f.Close() }()
	err = flock(f, syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, ErrLocked) {
		return !HolderEnded(path), nil
	}
	return false, errors.Join(err, flock(f, syscall.LOCK_UN))
}

// Holder returns which process has written that it holds the lock at path, by its id
// and start time. Only [TryLock] and [Held] know whether it still does.
func Holder(path string) (pid int, start uint64, err error) {
	pid, start, _, err = HolderOf(path)
	return pid, start, err
}

// HolderOf returns what [Holder] does, and the second line of the file, by which the
// holder says more; it is "" if there is none.
func HolderOf(path string) (pid int, start uint64, says string, err error) {
	name, err := readName(path)
	return name.pid, name.start, name.says, err
}

// name is what a lock's file says of its holder.
type name struct {
	pid   int
	start uint64
	space string // see [process.Space]; "" if that was not known
	says  string // the second line
}

// errNobody is wrapped by the error about a lock's file that names no process.
var errNobody = errors.New("it names no process")

// readName reads the file of a lock.
func readName(path string) (n name, err error) {
	var b []byte
	f, err := ownfile.Open(path)
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(f, maxLockFile)) // no holder writes more
		_ = f.Close()
	}
	if err != nil {
		return n, fmt.Errorf("read lock: %w", err)
	}
	first, rest, _ := strings.Cut(string(b), "\n")
	pid, left, _ := strings.Cut(first, " ")
	start, space, _ := strings.Cut(left, " ")
	n.pid, err = strconv.Atoi(pid)
	if err == nil {
		n.start, err = strconv.ParseUint(start, 10, 64)
	}
	if err != nil || n.pid < 1 {
		return name{}, fmt.Errorf("read lock %s: %w", path, errNobody)
	}
	n.space = space
	n.says, _, _ = strings.Cut(rest, "\n")
	return n, nil
}

// File returns the locked file, for handing the lock over to a successor. The lock
// still owns it: the caller must not close it.
func (l *Lock) File() *os.File { return l.f }
