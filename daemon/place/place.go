package place

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"holdline/daemon/rollout"
	"holdline/daemon/service"
	"holdline/daemon/statedir"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

// WorkersDir is the directory of the workers, in the runtime directory.
const WorkersDir = "w"

// StartedByProxy is the value of [Options.StartedBy] for a daemon that a proxy
// has started because it found none.
const StartedByProxy = "proxy"

// probeFile is written and removed to see whether the runtime directory has room.
const probeFile = "probe"

// Bounds of a start.
const (
	// lockWait bounds the wait for a lock whose holder neither answers nor ends.
	lockWait = 10 * time.Second
	lockPoll = 20 * time.Millisecond
)

// ErrRunning is returned by [Take] if another daemon serves the same socket and
// answers. The process that started this one can use that daemon.
var ErrRunning = errors.New("a daemon runs already")

// Options say which place a daemon takes, and what it was started with.
type Options struct {
	Log       *slog.Logger
	Version   string // of this program
	PID       int
	Paths     socket.Paths
	Socket    string            // where to listen, unless a socket was handed over
	Handed    *net.UnixListener // from the service manager; nil if there is none
	Handover  *rollout.Handover // from the image before this one; nil if there is none
	Notifier  service.Notifier
	StartedBy string // "systemd", "launchd", "proxy" or "shell"
	// Wanted is the reading of the boot clock when it was decided to start this
	// daemon.
	Wanted   time.Duration
	StateDir string
	// Reclaim removes the directories of dead workers from the runtime directory
	// dir, and returns how many it removed. It is called with the lock held, when
	// the file system is full.
	Reclaim func(dir string) int
}

// stoppedError says that no daemon is to run, since the user has stopped it. It is an [ErrRunning]: this one leaves.
type stoppedError struct{ what string }

func (e *stoppedError) Error() string { return e.what }

func (e *stoppedError) Unwrap() error { return ErrRunning }

// Place is the daemon's hold on its runtime directory and its state directory.
// Its fields do not change after [Take], but for the generation, the ids of the records and what guards them.
type Place struct {
	log        *slog.Logger
	dir        *socket.Dir
	lock       *statedir.Lock // of the runtime directory
	state      *statedir.Lock // of the state directory
	listener   *socket.Listener
	socket     string // path
	stateDir   string
	generation atomic.Int64
	raising    sync.Mutex // orders the writes of the files with the generation
	complaints sync.Mutex // guards complaint
	complaint  []string   // about files that cannot be used, for people
	// managed means that the service manager owns the socket: it listens there
	// also while no daemon runs.
	managed bool

	losing sync.Mutex // held while the records get another id; guards what follows
	store  string     // id of the records
	past   []pastIDs  // earlier ids, the oldest first
}

// Take takes the runtime directory, both locks and the socket. Before it holds
// the lock it touches nothing else in the directory.
//
// It returns [ErrRunning] if another daemon serves the socket, and an
// [*InUseError] if a daemon at another socket uses the state directory. The
// caller must call [Place.Release].
func Take(ctx context.Context, o Options) (*Place, error) {
	p := &Place{log: o.Log, socket: o.Socket, stateDir: o.StateDir}
	ln := o.Handed
	if o.Handover != nil {
		var err error
		if ln, err = p.inherit(o.Handover); err != nil {
			o.Log.WarnContext(ctx, "cannot use what the daemon before handed over, starting afresh", "err", err)
		}
	}
	p.managed = p.managed || o.Handed != nil
	if ln != nil {
		p.socket = ln.Addr().String()
	}
	var err error
	if p.dir, err = socket.OpenDir(p.socket); err == nil {
		err = p.takePlace(ctx, o, ln)
	}
	if err != nil {
		if p.listener == nil && ln != nil {
			_ = ln.Close()
		}
		p.Release()
		return nil, err
	}
	return p, nil
}

// inherit takes the lock and the socket that the image before this one held. It
// returns an error and holds neither if one of the two cannot be used.
func (p *Place) inherit(h *rollout.Handover) (*net.UnixListener, error) {
	ln, file, err := h.Files(socket.LockFile)
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	if p.lock, err = statedir.FromFile(file); err != nil {
		_ = ln.Close()
		_ = file.Close()
		return nil, err
	}
	if dir := filepath.Dir(ln.Addr().String()); !p.lock.Still(filepath.Join(dir, socket.LockFile)) {
		_ = ln.Close()
		_ = p.lock.Unlock()
		p.lock = nil
		return nil, fmt.Errorf("another daemon has taken the lock's place in %s", dir)
	}
	p.managed = h.Managed
	return ln, nil
}

// takePlace takes what the package comment lists, in that order. ln is a socket that was handed
// over, or nil.
func (p *Place) takePlace(ctx context.Context, o Options, ln *net.UnixListener) error {
	err := p.takeLocks(ctx, o)
	for errors.Is(err, errLockLost) {
		err = p.takeLocks(ctx, o) // it waits for the lock's holder, for as long as that may take
	}
	if err != nil {
		return err
	}
	if err := p.takeHome(ctx, o); err != nil {
		return err
	}
	faultpoint.At("start.sole")
	if err := p.retryInRoom(ctx, o, func() error { return p.nextGeneration(ctx) }); err != nil {
		return err
	}
	faultpoint.At("start.counted")
	if err := p.retryInRoom(ctx, o, func() error { return p.readStore(ctx) }); err != nil {
		return err
	}
	if o.StartedBy == StartedByProxy && p.stoppedSince(o.Wanted) {
		return &stoppedError{"Holdline does not start: it was stopped while this one was starting"}
	}
	// launchd starts a daemon that was killed, and one at each login. Who wants it all the same lifts the mark first.
	if mark := socket.ReadStop(p.dir.Path()); mark != nil && o.StartedBy == service.Launchd {
		return &stoppedError{mark.Words() + "; start it again with `holdline start`"}
	}
	if err := socket.LiftStop(p.dir.Path()); err != nil {
		p.complain(fmt.Errorf("%w, so agents will not start the next daemon", err))
	}
	if ln != nil {
		p.listener, err = socket.Adopt(ln, !p.managed)
	} else {
		err = p.retryInRoom(ctx, o, func() (err error) {
			p.listener, err = socket.Listen(p.socket)
			return err
		})
	}
	faultpoint.At("start.listening")
	return err
}

// errLockLost says that another start has replaced the file of the lock: it has taken this one for a holder that does
// not count, since the name in the file was still that of a daemon that has ended. The lock is not held any more.
var errLockLost = errors.New("another daemon has taken the lock")

// takeLocks takes the lock of the runtime directory, unless that was handed over, and then that of the state
// directory.
func (p *Place) takeLocks(ctx context.Context, o Options) error {
	if p.lock == nil {
		if err := p.takeLock(ctx, o); err != nil {
			return err
		}
	}
	faultpoint.At("start.locked")
	// The name comes first: until it is there, another start may take this one for a holder that does not count.
	name := func() error { return p.lock.Write(o.PID, process.Self().Start) }
	err := name()
	if isFull(err) {
		_ = os.Remove(p.File(probeFile))
		statedir.Sweep(p.dir.Path(), true)
		err = p.retryInRoom(ctx, o, name)
	}
	if err != nil {
		return err
	}
	if err := p.checkLock(); err != nil {
		return err
	}
	if err := p.dir.Hold(); err != nil { // another program has locked the directory, which keeps cleaners off, too
		o.Log.WarnContext(ctx, "the runtime directory is not held", "by", statedir.WhoHolds(p.dir.Path()), "err", err)
	}
	statedir.Sweep(p.dir.Path(), true)
	_ = os.Remove(p.File(probeFile))
	if err := p.checkHome(o); err != nil {
		return err
	}
	return p.takeState(ctx, o)
}

// checkLock gives up the lock of the runtime directory, and returns errLockLost, if that is another's by now.
func (p *Place) checkLock() error {
	if p.OwnsLock() {
		return nil
	}
	_ = p.lock.Unlock()
	p.lock = nil
	return errLockLost
}

// retryInRoom calls write, which writes to the runtime directory. If the file
// system is full it removes what dead workers left there and calls write once
// more. Only a daemon may remove that, so a full directory must not keep the
// daemon from starting.
func (p *Place) retryInRoom(ctx context.Context, o Options, write func() error) error {
	err := write()
	if !isFull(err) {
		return err
	}
	n := o.Reclaim(p.dir.Path())
	o.Log.WarnContext(ctx, "the runtime directory is full: removed what dead workers left",
		"path", p.dir.Path(), "workers", n)
	if err = write(); err != nil {
		return fmt.Errorf("the runtime directory is full: free some room in the file system of %s: %w",
			p.dir.Path(), err)
	}
	return nil
}

// CheckRoom returns an error if a daemon that starts now would not find room for
// its small files in the runtime directory.
func (p *Place) CheckRoom() error {
	probe := p.File(probeFile)
	if err := statedir.WriteFile(probe, make([]byte, 4<<10)); err != nil {
		return fmt.Errorf("a daemon could not start: %w", err)
	}
	faultpoint.At("rollout.probed")
	return os.Remove(probe)
}

// takeLock takes the lock of the runtime directory. While another process holds
// it:
//
//   - a daemon that was handed its socket by the service manager asks the holder
//     to stop, since the manager has taken the path away from it already. So
//     does one that launchd manages: launchd would not start it again if it
//     yielded;
//   - any other daemon returns [ErrRunning] as soon as the holder answers.
//
// A holder that neither answers nor ends within lockWait is an error. One that is not the process in the
// lock's file, if that has ended, is no daemon: the file is replaced, see [statedir.SeizeUnnamed].
func (p *Place) takeLock(ctx context.Context, o Options) error {
	path := p.File(socket.LockFile)
	replaces := p.managed || o.Notifier.Managed() == service.Launchd
	limit := time.Now().Add(lockWait)
	for signalled := 0; ; {
		lock, err := statedir.TryLock(path)
		if errors.Is(err, statedir.ErrLocked) && !replaces {
			pid, err := askPID(ctx, p.socket, o)
			if err == nil {
				return fmt.Errorf("%w: pid %d", ErrRunning, pid)
			}
			if refusal, ok := errors.AsType[*protocol.Refusal](err); ok && refusal.Code == protocol.RefusedHome {
				return fmt.Errorf("%w: %w", socket.ErrOtherHome, refusal)
			}
		}
		if errors.Is(err, statedir.ErrLocked) {
			lock, err = statedir.SeizeUnnamed(path)
		}
		if err == nil {
			p.lock = lock
			return nil
		}
		if !errors.Is(err, statedir.ErrLocked) {
			return LockFile(path, err)
		}
		if holder, start, err := statedir.Holder(path); replaces && signalled != holder && err == nil {
			signalled = holder
			o.Log.InfoContext(ctx, "asking the daemon that holds the lock to stop", "pid", holder)
			_ = o.Notifier.ExtendTimeout(2 * lockWait)
			terminate(holder, start)
		}
		if time.Now().After(limit) {
			_ = o.Notifier.Status(fmt.Sprintf("waiting for the lock: %s holds it and does not end", statedir.WhoHolds(path)))
		}
		if err := waitForHolder(ctx, limit, path); err != nil {
			return err
		}
	}
}

// waitForHolder waits a moment before the next attempt to take the lock at path.
// It returns an error after limit, and when ctx ends.
func waitForHolder(ctx context.Context, limit time.Time, path string) error {
	if time.Now().After(limit) {
		return fmt.Errorf("%s holds %s and neither answers nor ends: kill it", statedir.WhoHolds(path), path)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(lockPoll):
		return nil
	}
}

// terminate sends SIGTERM to process pid, unless it is not the one that began at
// start any more.
func terminate(pid int, start uint64) {
	if now, err := process.Lookup(pid); err == nil && now.Start == start {
		_ = process.Signal(now, syscall.SIGTERM)
	}
}

// askPID asks the daemon at the socket at path for its pid.
func askPID(ctx context.Context, path string, o Options) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := connect(ctx, path, o.Version, o.Paths.State())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.Daemon.PID, nil
}

// connect returns a control connection to the daemon at the socket at path, for a program with this
// version and state directory. The caller must close it.
func connect(ctx context.Context, path, version, state string) (*control.Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return control.NewClientOf(ctx, conn, version, state)
}

// Socket returns the path of the socket.
func (p *Place) Socket() string { return p.socket }

// Listener returns the listening socket, which the place goes on owning.
func (p *Place) Listener() *socket.Listener { return p.listener }

// Managed reports whether the service manager owns the socket.
func (p *Place) Managed() bool { return p.managed }

// LockFile returns the locked file, for handing the lock over.
func (p *Place) LockFile() *os.File { return p.lock.File() }

// Generation returns the number of this daemon, which is higher than that of all
// daemons before it in the same runtime directory or state directory.
func (p *Place) Generation() int64 { return p.generation.Load() }

// Complaint returns for people which files of the daemon cannot be used; "" if all can.
func (p *Place) Complaint() string {
	p.complaints.Lock()
	defer p.complaints.Unlock()
	return strings.Join(p.complaint, "; ")
}

// complain adds errors to [Place.Complaint].
func (p *Place) complain(errs ...error) {
	p.complaints.Lock()
	defer p.complaints.Unlock()
	for _, err := range errs {
		if text := err.Error(); !slices.Contains(p.complaint, text) {
			p.complaint = append(p.complaint, text)
		}
	}
}

// Store returns the id of the runtime directory's records. It changes when
// records are lost; see [Place.RenewStore].
func (p *Place) Store() string {
	p.losing.Lock()
	defer p.losing.Unlock()
	return p.store
}

// Dir returns the path of the runtime directory.
func (p *Place) Dir() string { return p.dir.Path() }

// File returns the path of the file name in the runtime directory.
func (p *Place) File(name string) string { return filepath.Join(p.dir.Path(), name) }

// OwnsPaths reports whether the socket and the lock file at our paths are still
// the ones that this daemon opened. They are not if another process removed or
// replaced them; then clients reach another daemon, and this one must stop.
func (p *Place) OwnsPaths() bool { return p.listener.Still() && p.OwnsLock() }

// OwnsLock reports whether the lock file at our path is still the one that this
// daemon has locked. If it is, no other daemon can be at work here: a daemon that
// has only taken the socket waits for the lock before it records anything. So
// this, and not [Place.OwnsPaths], is checked before each call is recorded.
func (p *Place) OwnsLock() bool { return p.lock.Still(p.File(socket.LockFile)) }

// Clean removes what only a running daemon needs. Call it when the listener is
// closed and all workers are detached. It does nothing if another daemon has
// taken the place. A directory that holds anything else stays.
func (p *Place) Clean(paths socket.Paths) {
	if !p.OwnsLock() {
		return
	}
	if !p.managed {
		_ = paths.RemovePointer(p.socket)
	}
	_ = os.Remove(p.File(WorkersDir))
}

// Release gives up all that is held, the lock of the runtime directory last. It
// does not touch what other processes have put in its place. The files with the
// generation and the store's id stay for the next daemon.
func (p *Place) Release() {
	if p.listener != nil {
		_ = p.listener.Close()
	}
	if p.state != nil {
		_ = p.state.Clear()
		_ = p.state.Unlock()
	}
	if p.lock != nil {
		_ = p.lock.Clear() // a name in the file then means that its daemon was killed
		_ = p.lock.Unlock()
	}
	if p.dir != nil {
		_ = p.dir.Close()
	}
}
