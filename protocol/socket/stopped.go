package socket

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdline/protocol/bootclock"
	"holdline/protocol/ownfile"
)

// StoppedWords say why there is no daemon.
const StoppedWords = "Holdline was stopped by `holdline stop`"

// StoppedError is an [ErrNoDaemon]: the user has stopped Holdline, and a mark says so. Until that is gone only the user
// starts it again, and the next boot.
type StoppedError struct {
	At time.Time // local time of the stop

	damaged string // path of the mark if that cannot be read; then the file's own time counts
}

// Words returns why there is no daemon, for agents.
func (m *StoppedError) Words() string { return StoppedWords + m.doubt() }

// Error returns the same for people who may not have been there: with the time, and the day if that is not today.
func (m *StoppedError) Error() string {
	layout := "15:04"
	if now := time.Now(); m.At.Year() != now.Year() || m.At.YearDay() != now.YearDay() {
		layout = "15:04 on 2 January"
	}
	return "Holdline is not running: it was stopped by `holdline stop` at " + m.At.Format(layout) + m.doubt()
}

// Unwrap returns [ErrNoDaemon].
func (m *StoppedError) Unwrap() error { return ErrNoDaemon }

// doubt says that the mark cannot be read; "" if it can.
func (m *StoppedError) doubt() string {
	if m.damaged == "" {
		return ""
	}
	return ", as far as the damaged file " + m.damaged + " shows"
}

// ReadStop returns the mark that the user has stopped the daemon of the runtime directory dir; nil if there is none
// that counts. A mark of another boot no longer counts, and one with a time that has not come yet is not believed.
// A file that cannot be read counts if it was made in this boot: where the disk was full, the mark is empty.
func ReadStop(dir string) *StoppedError {
	path := filepath.Join(dir, StoppedFile)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil //nolint:nilerr // nobody has stopped it
	}
	mark, err := ownfile.Read(path, ownfile.MaxNumber)
	at, present, ok := bootclock.Marked(mark)
	switch {
	case err != nil || !ok:
		if age := time.Since(info.ModTime()); age > bootclock.Now()+clockSlack || age < -clockSlack {
			return nil
		}
		return &StoppedError{At: info.ModTime(), damaged: path}
	case !present, bootclock.InFuture(mark):
		return nil
	}
	return &StoppedError{At: at}
}

// clockSlack is how far the time of a file and the boot clock may be apart.
const clockSlack = time.Minute

// LiftStop removes the mark from the runtime directory dir: the user wants Holdline to run.
func LiftStop(dir string) error {
	if err := os.Remove(filepath.Join(dir, StoppedFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the mark that Holdline was stopped cannot be removed: %w", err)
	}
	return nil
}

// Stopped returns the mark that the user has stopped the daemon of these paths, as [ReadStop] does. A daemon that
// answers serves all the same: so first dial.
func (p Paths) Stopped() *StoppedError {
	if p.guest { // the daemon's directory is not known, and it may be another user's
		return nil
	}
	return ReadStop(filepath.Dir(p.Start()))
}
