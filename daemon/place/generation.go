package place

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/bootclock"
	"holdline/protocol/ownfile"
	"holdline/protocol/socket"
)

// generationFile lies in the runtime directory, beside the socket.
const generationFile = "epoch"

// nextGeneration raises the number of the daemon before this one, and writes it down.
// Workers refuse a number that is lower than one they have seen.
func (p *Place) nextGeneration(log *slog.Logger) error {
	path := p.File(generationFile)
	last, err := statedir.ReadCount(path, log)
	if err != nil {
		return fmt.Errorf("reading the daemon's generation: %w", err)
	}
	p.generation = last + 1
	return statedir.Overwrite(path, fmt.Appendf(nil, "%016d\n", p.generation))
}

// readStore reads the random id of the records in the runtime directory, or makes
// one if there is none that can be read.
func (p *Place) readStore(ctx context.Context, log *slog.Logger) error {
	b, err := ownfile.Read(p.File(socket.StoreFile), ownfile.MaxNumber)
	if err == nil && len(b) > 0 {
		p.store = string(b)
		return nil
	}
	switch {
	case errors.Is(err, ownfile.ErrRefused):
		log.WarnContext(ctx,
			"the store's id cannot be read: calls that ran before are answered outcome_unknown", "err", err)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("reading the store's id: %w", err)
	}
	return p.RenewStore()
}

// RenewStore gives the runtime directory another id, because records in it are
// lost. Clients that come back then get outcome_unknown for calls that this daemon
// has no record of; with the old id those calls would be made once more.
func (p *Place) RenewStore() error {
	p.store = rand.Text()
	return statedir.Overwrite(p.File(socket.StoreFile), []byte(p.store))
}

// MarkStopped writes into the runtime directory dir that the user has stopped the
// daemon, so that proxies do not start another. If the file system is full the
// mark has no time in it, and a start that was under way goes on.
func MarkStopped(dir string) error {
	path := filepath.Join(dir, socket.StoppedFile)
	err := statedir.WriteFile(path, bootclock.Mark())
	if errors.Is(err, syscall.ENOSPC) {
		err = statedir.WriteFile(path, nil)
	}
	return err
}

// stoppedSince reports whether the user has stopped the daemon after the boot
// clock showed at. A mark without a readable time, such as an empty file that a
// user made by hand, counts as older.
func (p *Place) stoppedSince(at time.Duration) bool {
	mark, err := ownfile.Read(p.File(socket.StoppedFile), ownfile.MaxNumber)
	if err != nil {
		return false
	}
	before, ok := bootclock.Before(mark, at)
	return ok && !before
}
