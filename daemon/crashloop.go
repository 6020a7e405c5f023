package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// A panic over one worker's records or messages is contained where they are read.
// What cannot be contained, such as a stack that overflows, ends the daemon, and
// the next one reads the same again. So a daemon that has crashed several times in
// a row, each time soon after it began to take up workers, puts the one aside that
// it touched last.
const (
	maxCrashes   = 3           // in a row, before a worker is put aside
	crashTime    = time.Minute // after its start; a daemon that lives longer has taken up all
	maxCrashText = 64 << 10    // bytes of a crash's stacks that are logged
)

// Files in the runtime directory.
const (
	crashFile  = "crash"     // what the Go runtime says of a crash; a daemon that is killed says nothing
	noticeFile = "taking-up" // a [notice], while a daemon is in its first minute
	asideDir   = "aside"     // directories of workers that were put aside
)

// notice is what a daemon tells the next one in case it crashes.
type notice struct {
	Crashes int    `json:"crashes"`          // of the daemons before it, in a row
	Worker  string `json:"worker,omitempty"` // that it touched last; known after the first crash
}

// crashLoop writes the notice of this daemon.
type crashLoop struct {
	path    string
	crashes int
	last    atomic.Pointer[string]
	over    atomic.Bool
}

// beginCrashLoop looks at how the daemon before this one ended, and puts a worker
// aside if it is time. It is called before anything is read of any worker. What
// fails of it is logged, and the daemon goes on: it is to serve in a runtime
// directory without a free byte, too.
func (l *life) beginCrashLoop(ctx context.Context) {
	c := &crashLoop{path: l.place.file(noticeFile)}
	l.crashes = c
	before, err := l.countCrashes(ctx, c.path)
	if err != nil {
		l.Log.WarnContext(ctx, "crashes of daemons cannot be counted", "err", err)
	}
	if before.Crashes >= maxCrashes && before.Worker != "" {
		if err := l.putAside(ctx, before.Worker); err != nil {
			l.Log.ErrorContext(ctx, "the worker over which daemons crash cannot be put aside", "worker", before.Worker, "err", err)
		} else {
			before = notice{}
		}
	}
	c.crashes = before.Crashes
	if err := c.write(""); err != nil {
		l.Log.WarnContext(ctx, "a crash of this daemon within its first minute will not be counted", "err", err)
	}
	time.AfterFunc(crashTime, c.end)
}

// countCrashes returns what the daemon before this one has noted, with its own
// crash counted if it had one, and has the Go runtime write down a crash of this
// daemon.
func (l *life) countCrashes(ctx context.Context, path string) (before notice, err error) {
	noted := false
	if b, err := ownfile.Read(path, ownfile.MaxNumber); err == nil {
		noted = true
		_ = json.Unmarshal(b, &before) // none, if it was half written
	}
	f, err := ownfile.OpenFile(l.place.file(crashFile), os.O_RDWR|os.O_CREATE)
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
		l.Log.ErrorContext(ctx, "the daemon before this one crashed", "stacks", string(text))
		if noted {
			before.Crashes++
		}
	}
	return before, debug.SetCrashOutput(f, debug.CrashOptions{})
}

// putAside ends a worker and moves its directory to where no daemon reads it. What
// became of its calls is not known any more.
func (l *life) putAside(ctx context.Context, id string) error {
	aside := l.place.file(asideDir)
	if err := statedir.MakeDir(aside); err != nil {
		return err
	}
	l.Log.ErrorContext(ctx, "the daemon has crashed again and again over one worker, which is put aside", "worker", id, "crashes", maxCrashes,
		"kept_in", filepath.Join(aside, id))
	// The new id comes first: with the old one the worker's calls, of which
	// nothing is on record then, would be made once more.
	if err := l.place.renewStore(); err != nil {
		return err
	}
	return l.workers.SetAside(ctx, filepath.Join(l.place.file(workersDir), id), filepath.Join(aside, id))
}

func (c *crashLoop) write(worker string) error {
	b, err := json.Marshal(notice{Crashes: c.crashes, Worker: worker})
	if err != nil { // strings encode
		return err
	}
	return statedir.WriteFile(c.path, b)
}

// touch notes that the records or messages of a worker are read from now on, if an
// earlier daemon has crashed.
func (c *crashLoop) touch(dir string) {
	id := filepath.Base(dir)
	if c.crashes == 0 || c.over.Load() {
		return
	}
	if last := c.last.Load(); last != nil && *last == id {
		return
	}
	c.last.Store(&id)
	_ = c.write(id) // if it fails another worker may be blamed, and at last this one
}

// end says that this daemon has taken up all workers, or stops in order.
func (c *crashLoop) end() {
	c.over.Store(true)
	_ = os.Remove(c.path)
}
