package place

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// Bounds of a crash loop.
const (
	maxCrashes   = 3           // in a row, before a worker is moved aside
	crashTime    = time.Minute // after its start; a daemon that lives longer has adopted all workers
	maxCrashText = 64 << 10    // bytes of a crash's stacks that are logged
)

// Files in the runtime directory.
const (
	crashFile  = "crash"    // what the Go runtime writes when the daemon crashes; empty if it was killed
	noticeFile = "adopting" // a [notice], during the first minute of a daemon
	asideDir   = "aside"    // directories of workers that were moved aside
)

// notice is what a daemon writes down for the next one in case it crashes.
type notice struct {
	Crashes int    `json:"crashes"`          // of the daemons before it, in a row
	Worker  string `json:"worker,omitempty"` // that it read last; known after the first crash
}

// CrashLoop finds the worker over whose records daemons crash.
//
// A panic over one worker's records or messages is contained where they are read.
// A crash that cannot be contained, such as a stack overflow, ends the daemon, and
// the next one reads the same again. So a daemon writes down which worker it reads
// ([CrashLoop.Touch]) during its first minute, if the daemon before it crashed.
// After maxCrashes in a row [Place.WatchCrashes] moves that worker's directory aside.
type CrashLoop struct {
	path    string
	crashes int // of the daemons before this one, in a row
	last    atomic.Pointer[string]
	over    atomic.Bool // this daemon has adopted all workers, or stops
}

// WatchCrashes looks at how the daemon before this one ended, and moves a worker
// aside if several have crashed over it. Call it before anything is read of any
// worker. setAside ends the worker of the directory dir and moves that to aside.
//
// What fails is logged and not returned: a daemon must also start in a runtime
// directory without a free byte.
func (p *Place) WatchCrashes(
	ctx context.Context, log *slog.Logger, setAside func(ctx context.Context, dir, aside string) error,
) *CrashLoop {
	c := &CrashLoop{path: p.File(noticeFile)}
	before, err := p.countCrashes(ctx, log, c.path)
	if err != nil {
		log.WarnContext(ctx, "crashes of daemons cannot be counted", "err", err)
	}
	if before.Crashes >= maxCrashes && before.Worker != "" {
		if err := p.moveAside(ctx, log, before.Worker, setAside); err != nil {
			log.ErrorContext(ctx, "the worker over which daemons crash cannot be moved aside",
				"worker", before.Worker, "err", err)
		} else {
			before = notice{}
		}
	}
	c.crashes = before.Crashes
	if err := c.writeNotice(""); err != nil {
		log.WarnContext(ctx, "a crash of this daemon within its first minute will not be counted", "err", err)
	}
	time.AfterFunc(crashTime, c.End)
	return c
}

// countCrashes returns the notice of the daemon before this one, with that
// daemon's own crash counted if it had one. It makes the Go runtime write a crash
// of this daemon into the crash file.
func (p *Place) countCrashes(ctx context.Context, log *slog.Logger, path string) (before notice, err error) {
	noticed := false
	if b, err := ownfile.Read(path, ownfile.MaxNumber); err == nil {
		noticed = true
		_ = json.Unmarshal(b, &before) // stays zero if it was half written
	}
	f, err := ownfile.OpenFile(p.File(crashFile), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return before, fmt.Errorf("file for crashes: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxCrashText))
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return before, fmt.Errorf("file for crashes: %w", err)
	}
	if len(text) > 0 {
		log.ErrorContext(ctx, "the daemon before this one crashed", "stacks", string(text))
		if noticed {
			before.Crashes++
		}
	}
	return before, debug.SetCrashOutput(f, debug.CrashOptions{})
}

// moveAside ends a worker and moves its directory to where no daemon reads it. The
// outcome of the worker's calls is unknown from then on.
func (p *Place) moveAside(
	ctx context.Context, log *slog.Logger, id string, setAside func(ctx context.Context, dir, aside string) error,
) error {
	aside := p.File(asideDir)
	if err := statedir.MakeDir(aside); err != nil {
		return err
	}
	log.ErrorContext(ctx, "daemons crashed repeatedly over one worker, which is moved aside",
		"worker", id, "crashes", maxCrashes, "kept_in", filepath.Join(aside, id))
	// The new store id comes first: with the old one the worker's calls, of which
	// no record is left then, would be made once more.
	if err := p.RenewStore(); err != nil {
		return err
	}
	return setAside(ctx, filepath.Join(p.File(WorkersDir), id), filepath.Join(aside, id))
}

// writeNotice writes down the crashes so far and the worker that is read now.
func (c *CrashLoop) writeNotice(worker string) error {
	b, err := json.Marshal(notice{Crashes: c.crashes, Worker: worker})
	if err != nil { // strings encode
		return err
	}
	return statedir.WriteFile(c.path, b)
}

// Crashed reports whether the daemon before this one crashed soon after its start.
func (c *CrashLoop) Crashed() bool { return c.crashes > 0 }

// Touch writes down that the records or messages of the worker of the directory
// dir are read from now on. It does nothing if the daemon before this one did not
// crash, and after the first minute.
func (c *CrashLoop) Touch(dir string) {
	id := filepath.Base(dir)
	if c.crashes == 0 || c.over.Load() {
		return
	}
	if last := c.last.Load(); last != nil && *last == id {
		return
	}
	c.last.Store(&id)
	_ = c.writeNotice(id) // if this fails another worker may be moved aside first, and at last this one
}

// End ends the count: this daemon has adopted all workers, or stops in order.
func (c *CrashLoop) End() {
	c.over.Store(true)
	_ = os.Remove(c.path)
}
