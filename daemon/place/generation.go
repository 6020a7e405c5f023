package place

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/bootclock"
	"holdline/protocol/ownfile"
	"holdline/protocol/socket"
)

// generationFile lies in the runtime directory, beside the socket, and in the state directory.
const generationFile = "epoch"

// errGenerations says that there is no number above that of a worker.
var errGenerations = errors.New("no daemon can have a higher number")

// generationFiles returns the paths of the files with the daemon's number. The number is above both:
// one of them may be damaged, or an older one.
func (p *Place) generationFiles() []string {
	return []string{filepath.Join(p.stateDir, generationFile), p.File(generationFile)}
}

// nextGeneration takes a number above those of the daemons before this one, and writes it down.
// If it cannot be known what those were, it counts on from the clock: there are more seconds than
// there can have been daemons. If that is too low, a worker says so: see [Place.RaiseGeneration].
func (p *Place) nextGeneration(ctx context.Context) error {
	last, unknown := int64(0), false
	for _, path := range p.generationFiles() {
		n, err := statedir.ReadCount(path)
		if err != nil {
			unknown = true
			p.log.WarnContext(ctx, "a number of daemons cannot be read", "path", path, "err", err)
		}
		last = max(last, n)
	}
	if unknown && last == 0 {
		last = time.Now().Unix()
		p.log.WarnContext(ctx, "no number of an earlier daemon is known: counting on from the clock", "number", last+1)
	}
	return p.writeGeneration(ctx, last+1)
}

// RaiseGeneration takes a number above that of a daemon of which a worker knows, writes it down, and
// returns it. Call it only while this daemon holds its lock: see [Place.OwnsLock].
func (p *Place) RaiseGeneration(ctx context.Context, above int64) (int64, error) {
	p.raising.Lock()
	defer p.raising.Unlock()
	now := p.Generation()
	switch {
	case above < now:
		return now, nil // it was raised for another worker
	case above >= statedir.MaxCount-1:
		return now, errGenerations
	}
	p.log.WarnContext(ctx, "a worker knows a daemon of a higher number, so the file with the number went back",
		"number", now, "worker", above, "files", p.generationFiles())
	_ = p.writeGeneration(ctx, above+1) // want of room is no reason to leave the worker alone, either
	return above + 1, nil
}

// writeGeneration takes the number n, and writes it down. It returns an error only if there is no room in
// the runtime directory. Anything else in the place of a file is a complaint: the next daemon learns the
// number from the other file, or from the workers.
func (p *Place) writeGeneration(ctx context.Context, n int64) error {
	p.generation.Store(n)
	for _, path := range p.generationFiles() {
		err := statedir.Overwrite(path, fmt.Appendf(nil, "%016d\n", n))
		if err == nil {
			continue
		}
		err = fmt.Errorf("the daemon's number cannot be written to %s: %w", path, err)
		p.log.WarnContext(ctx, "a file of the daemon cannot be written", "err", err)
		if path == p.File(generationFile) && isFull(err) {
			return err
		}
		p.complain(err)
	}
	return nil
}

// isFull reports whether err says that there is no room for a file.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// readStore reads the random id of the records in the runtime directory, or makes
// one if there is none that can be read.
func (p *Place) readStore(ctx context.Context) error {
	b, err := ownfile.Read(p.File(socket.StoreFile), ownfile.MaxNumber)
	if err == nil && len(b) > 0 {
		p.store = string(b)
		p.readLosses()
		return nil
	}
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		p.log.WarnContext(ctx, "the store's id cannot be read: calls that ran before are answered outcome_unknown",
			"path", p.File(socket.StoreFile), "err", err)
	}
	return p.RenewStore()
}

// MarkStopped writes into the runtime directory dir that the user has stopped the
// daemon, so that proxies do not start another. If the file system is full the
// mark has no time in it, and a start that was under way goes on.
func MarkStopped(dir string) error {
	path := filepath.Join(dir, socket.StoppedFile)
	err := statedir.WriteFile(path, bootclock.Mark())
	if isFull(err) {
		err = statedir.WriteFile(path, nil)
	}
	return err
}

// stoppedSince reports whether the user has stopped the daemon after the boot
// clock showed at. A mark without a readable time, such as an empty file that a
// user made by hand, counts as older. One with a time that has not come yet is damaged, and says nothing.
func (p *Place) stoppedSince(at time.Duration) bool {
	mark, err := ownfile.Read(p.File(socket.StoppedFile), ownfile.MaxNumber)
	if err != nil || bootclock.InFuture(mark) {
		return false
	}
	before, ok := bootclock.Before(mark, at)
	return ok && !before
}
