package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdline/daemon/rollout"
	"holdline/daemon/service"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/protocol/bootclock"
	"holdline/protocol/control"
	"holdline/protocol/faultpoint"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

// Files in the runtime directory, beside the socket.
const (
	epochFile  = "epoch"
	storeFile  = "store"
	workersDir = "w"
)

// byProxy is who has started a daemon that nobody asked for by name.
const byProxy = "proxy"

// Times of a start.
const (
	// raceWait bounds the wait of a daemon that lost a start race for either
	// the winner's answer or its end.
	raceWait = 10 * time.Second
	// handoverWait bounds the wait of a managed daemon for the lock.
	handoverWait = 10 * time.Second
	racePoll     = 20 * time.Millisecond
)

// ErrRunning is returned by [Run] if another daemon serves the same socket
// already, and answers. For who started this one, that is as good.
var ErrRunning = errors.New("a daemon runs already")

// place is the daemon's hold on the runtime directory.
type place struct {
	dir    *socket.Dir
	lock   *statedir.Lock
	state  *statedir.Lock // of the state directory
	ln     *socket.Listener
	path   string // of the socket
	epoch  int64
	store  string
	handed bool
}

// occupy takes the runtime directory, the lock and the socket, in this order.
// Only who holds the lock touches anything else in the directory.
func occupy(ctx context.Context, o Options) (*place, error) {
	p := &place{path: o.Socket}
	ln := o.Handed
	if o.Handover != nil {
		var err error
		if ln, err = p.inherit(o.Handover); err != nil {
			o.Log.WarnContext(ctx, "what was handed over is of no use, starting anew", "err", err)
		}
	}
	p.handed = p.handed || o.Handed != nil
	if ln != nil {
		p.path = ln.Addr().String()
	}
	var err error
	if p.dir, err = socket.OpenDir(p.path); err == nil {
		err = p.take(ctx, o, ln)
	}
	if err != nil {
		if p.ln == nil && ln != nil {
			_ = ln.Close()
		}
		p.leave()
		return nil, err
	}
	return p, nil
}

// inherit takes the lock and the socket that the image before this one held.
// If either is of no use both are let go.
func (p *place) inherit(h *rollout.Handover) (*net.UnixListener, error) {
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
	p.handed = h.Managed
	return ln, nil
}

func (p *place) take(ctx context.Context, o Options, ln *net.UnixListener) error {
	if p.lock == nil {
		if err := p.takeLock(ctx, o.Log, o.Notifier, o.PID, o.Version); err != nil {
			return err
		}
	}
	faultpoint.At("start.locked")
	err := p.dir.Hold()
	if err != nil {
		return err
	}
	statedir.Sweep(p.dir.Path(), true)
	_ = os.Remove(p.file(probeFile))
	if err := p.inRoom(ctx, o, func() error { return p.lock.Write(o.PID, process.Self().Start) }); err != nil {
		return err
	}
	if err := p.takeState(ctx, o); err != nil {
		return err
	}
	faultpoint.At("start.sole")
	if err := p.inRoom(ctx, o, func() error { return p.nextEpoch(ctx, o.Log) }); err != nil {
		return err
	}
	faultpoint.At("start.counted")
	if err := p.inRoom(ctx, o, func() error { return p.storeID(ctx, o.Log) }); err != nil {
		return err
	}
	if o.StartedBy == byProxy && p.stoppedSince(o.Wanted) {
		return fmt.Errorf("%w: it was stopped while this one was starting", ErrRunning)
	}
	if err := os.Remove(p.file(socket.StoppedFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forgetting that holdline was stopped: %w", err)
	}
	if ln != nil {
		p.ln, err = socket.Adopt(ln, !p.handed)
	} else {
		err = p.inRoom(ctx, o, func() (err error) {
			p.ln, err = socket.Listen(p.path)
			return err
		})
	}
	faultpoint.At("start.listening")
	return err
}

// inRoom calls write, which writes to the runtime directory. If that is full,
// it removes what an earlier daemon would have removed by now, and calls write
// again. Only a daemon may remove that, so a start must not fail for it.
func (p *place) inRoom(ctx context.Context, o Options, write func() error) error {
	err := write()
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	n := supervisor.New(supervisor.Options{RuntimeDir: p.dir.Path(), StateDir: o.StateDir, Log: o.Log}).ReapSettled()
	o.Log.WarnContext(ctx, "the runtime directory is full: removed what dead workers left", "path", p.dir.Path(), "workers", n)
	if err = write(); err != nil {
		return fmt.Errorf("the runtime directory is full: free some room in the file system of %s: %w", p.dir.Path(), err)
	}
	return nil
}

// MarkStopped writes the mark that the user has stopped the daemon into its
// runtime directory. If that is full the mark says nothing more, and a start
// that was under way goes on.
func MarkStopped(dir string) error {
	path := filepath.Join(dir, socket.StoppedFile)
	err := statedir.WriteFile(path, bootclock.Mark())
	if errors.Is(err, syscall.ENOSPC) {
		err = statedir.WriteFile(path, nil)
	}
	return err
}

// stoppedSince reports whether the user has stopped the daemon since the boot
// clock showed at. A mark that cannot be read, such as the empty one that a user
// may make by hand, was there before.
func (p *place) stoppedSince(at time.Duration) bool {
	mark, err := ownfile.Read(p.file(socket.StoppedFile), ownfile.MaxNumber)
	if err != nil {
		return false
	}
	before, ok := bootclock.Before(mark, at)
	return ok && !before
}

func (p *place) file(name string) string { return filepath.Join(p.dir.Path(), name) }

// takeLock waits for the lock as long as its holder neither answers nor ends.
// A daemon that was handed its socket never yields: the service manager has
// taken the path away from the holder already, so the holder is told to go. Nor
// does one of launchd's.
func (p *place) takeLock(ctx context.Context, log *slog.Logger, n service.Notifier, pid int, version string) error {
	// launchd does not start a daemon again that has yielded to another one.
	takesOver := p.handed || n.Managed() == service.Launchd
	wait := raceWait
	if takesOver {
		wait = handoverWait
	}
	limit := time.Now().Add(wait)
	for told := 0; ; { // the process that was
		lock, err := statedir.TryLock(p.file(socket.LockFile))
		if err == nil {
			p.lock = lock
			return nil
		}
		if !errors.Is(err, statedir.ErrLocked) {
			return err
		}
		holder, start, err := statedir.Holder(p.file(socket.LockFile))
		switch {
		case takesOver && told != holder && err == nil:
			told = holder
			log.InfoContext(ctx, "asking the daemon that holds the lock to leave", "pid", holder)
			_ = n.ExtendTimeout(2 * wait)
			if now, err := process.Lookup(holder); err == nil && now.Start == start {
				_ = process.Signal(now, syscall.SIGTERM)
			}
		case !takesOver:
			if who, err := answers(ctx, p.path, version, pid); err == nil {
				return fmt.Errorf("%w: pid %d", ErrRunning, who)
			}
		}
		if time.Now().After(limit) {
			_ = n.Status(fmt.Sprintf("waiting for the lock: process %d holds it and does not end", holder))
			return fmt.Errorf("process %d holds %s and neither answers nor ends: kill it", holder, p.file(socket.LockFile))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(racePoll):
		}
	}
}

// answers asks the daemon at path for its pid.
func answers(ctx context.Context, path, version string, pid int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return 0, err
	}
	c, err := control.NewClient(ctx, conn, version, pid)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.Daemon.PID, nil
}

// maxEpoch is more than any count of lives, and than the seconds of any clock.
const maxEpoch = 1 << 52

// nextEpoch counts this life of a daemon on the directory. Workers refuse one
// that is lower than they have seen: if the count is lost it goes on from the
// clock's seconds, of which there are more than there can have been lives.
func (p *place) nextEpoch(ctx context.Context, log *slog.Logger) error {
	var last int64
	path := p.file(epochFile)
	b, err := ownfile.Read(path, ownfile.MaxNumber)
	if err == nil {
		last, err = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	}
	_, damaged := errors.AsType[*strconv.NumError](err)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case damaged, errors.Is(err, ownfile.ErrRefused), last < 0, last >= maxEpoch:
		last = time.Now().Unix()
		log.WarnContext(ctx, "the number of the daemon's life cannot be read, counting on from the clock", "path", path, "epoch", last+1, "err", err)
	case err != nil:
		return fmt.Errorf("reading the number of the daemon's life: %w", err)
	}
	p.epoch = last + 1
	return statedir.Overwrite(path, fmt.Appendf(nil, "%016d\n", p.epoch))
}

// storeID reads the directory's own random id, by which records in it are known,
// or makes it.
func (p *place) storeID(ctx context.Context, log *slog.Logger) error {
	b, err := ownfile.Read(p.file(storeFile), ownfile.MaxNumber)
	if err == nil && len(b) > 0 {
		p.store = string(b)
		return nil
	}
	switch {
	case errors.Is(err, ownfile.ErrRefused):
		log.WarnContext(ctx, "the store's id cannot be read: what ran before is answered as of unknown outcome", "err", err)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("reading the store's id: %w", err)
	}
	return p.renewStore()
}

// renewStore gives the directory another id, since records in it are lost: clients
// that come back are told honestly that nobody knows what became of their calls.
func (p *place) renewStore() error {
	p.store = rand.Text()
	return statedir.Overwrite(p.file(storeFile), []byte(p.store))
}

// still tells whether the socket and the lock are the files that everybody
// else finds under their names.
func (p *place) still() bool { return p.ln.Still() && p.alone() }

// alone tells whether no other daemon can be at work in our place: it would have
// to hold the lock that is found there. Whether the socket is still ours as
// well, nobody has to know before each call: who has only taken that waits for
// the lock before it records anything.
func (p *place) alone() bool { return p.lock.Still(p.file(socket.LockFile)) }

// leave gives everything up, the lock last. What others have put in our place
// is not touched. The lives are counted on, so our small files stay.
func (p *place) leave() {
	if p.ln != nil {
		_ = p.ln.Close()
	}
	if p.state != nil {
		_ = p.state.Clear()
		_ = p.state.Unlock()
	}
	if p.lock != nil {
		_ = p.lock.Clear() // whose name is in it was killed
		_ = p.lock.Unlock()
	}
	if p.dir != nil {
		_ = p.dir.Close()
	}
}
