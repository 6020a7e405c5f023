// Package configfile keeps the configuration that is in force in a running daemon.
// It reads the file when it was edited, keeps the configuration before it if the
// file is refused, and keeps a copy of the last good file, by which a daemon serves
// that starts beside a bad one.
package configfile

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/events"
	"holdline/daemon/filewatch"
	"holdline/protocol/control"
)

// Times of the watch for an edited file.
const (
	pollInterval = time.Second
	settleTime   = time.Second // for which an edited file must stay unchanged
)

// errGone is why a file that was removed is not taken for an empty one: an editor,
// a sync or an unmounted home may be the reason.
var errGone = errors.New("the file is not there any more; if that is intended: holdline reload")

// Options are what a [File] is made of.
type Options struct {
	Log      *slog.Logger
	Path     string // of the configuration file
	Home     string // absolute; replaces ~ in paths
	StateDir string // where the copy of the last good file is
	// Apply is called after each reading that put a file into force. Both are equal
	// if the file says the same as before. Calls do not overlap. Apply must not call
	// [File.Reload].
	Apply func(ctx context.Context, before, after *config.Config)
}

// File is the configuration file of a running daemon. All methods may be called
// from any goroutine.
type File struct {
	o       Options
	path    atomic.Pointer[string]
	current atomic.Pointer[config.Config]
	last    atomic.Pointer[reading]
	reading chan struct{} // holds a token while the file is read
}

// reading is the outcome of reading the file.
type reading struct {
	path    string
	stamp   filewatch.Stamp
	data    []byte
	refused error // nil if the file is in force
	byCopy  bool  // the file is refused, and the copy of its last good state is in force instead
}

// Open reads the file. If the file is refused the copy of its last good state comes
// into force; without a copy Open returns the error.
func Open(ctx context.Context, o Options) (*File, error) {
	f := &File{o: o, reading: make(chan struct{}, 1)}
	f.path.Store(&o.Path)
	r, cfg := f.load(ctx)
	if r.refused != nil && !r.byCopy {
		return nil, r.refused
	}
	f.last.Store(r)
	f.current.Store(&cfg)
	return f, nil
}

// load reads and checks the file. If the file is refused, and nothing that it said
// before is in force, it returns the configuration of the copy, if there is one. The
// reading says which of these it is. The configuration is of no meaning if the file is
// refused and there is no copy.
func (f *File) load(ctx context.Context) (*reading, config.Config) {
	path := f.Path()
	stamp, _ := filewatch.Stat(path) // before the file is read: a later edit is noticed
	r := &reading{path: path, stamp: stamp}
	var cfg config.Config
	if r.data, r.refused = config.Read(path); r.refused == nil {
		cfg, r.refused = config.Parse(path, r.data)
	}
	last := f.last.Load()
	switch {
	case r.refused == nil:
	case last != nil && last.path == path:
		r.byCopy = last.byCopy
	default:
		var err error
		if cfg, err = readCopy(f.o.StateDir, path); err != nil {
			f.o.Log.DebugContext(ctx, "no copy of a good configuration", "err", err)
			break
		}
		r.byCopy = true
		f.o.Log.ErrorContext(ctx, "configuration refused, serving by the copy of its last good state",
			"err", r.refused, "copy", CopyPath(f.o.StateDir, path),
			"fix", "correct "+path+"; the daemon then reads it by itself")
	}
	return r, cfg.WithHome(f.o.Home)
}

// Current returns the configuration that is in force. The caller must not change
// it.
func (f *File) Current() *config.Config { return f.current.Load() }

// Path returns the path of the file.
func (f *File) Path() string { return *f.path.Load() }

// SetPath names another file. It is read by the next [File.Reload].
func (f *File) SetPath(path string) { f.path.Store(&path) }

// Reload reads the file and puts it into force, and reports whether it says something
// else than before. If it returns an error, what was in force stays, unless the error
// is about another file than before: then the copy of that one's last good state comes
// into force, if there is one.
//
// Reloads wait for each other; Reload blocks until the others are done, or ctx is.
func (f *File) Reload(ctx context.Context) (changed bool, err error) {
	select {
	case f.reading <- struct{}{}:
		defer func() { <-f.reading }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	before, last := f.Current(), f.last.Load()
	r, after := f.load(ctx)
	if r.refused != nil && (!r.byCopy || last.path == r.path) {
		f.last.Store(r)
		return false, r.refused
	}
	if r.refused == nil {
		f.writeCopy(ctx, r.path, r.data)
		r.data = nil
	}
	f.last.Store(r)
	f.current.Store(&after)
	changed = !before.Equal(after)
	f.o.Apply(ctx, before, &after)
	if changed && r.stamp == (filewatch.Stamp{}) {
		f.o.Log.WarnContext(ctx,
			"the configuration is not there any more, all settings have their defaults", "path", r.path)
	}
	f.o.Log.InfoContext(ctx, "configuration read", "path", r.path, "changed", changed, "event",
		events.New(control.Configured, "", "the configuration was read: %s", r.path))
	return changed, r.refused
}

// Keep writes the copy of the file that [Open] has read, if that was a good one.
// Call it once, as soon as this daemon owns the state directory.
func (f *File) Keep(ctx context.Context) {
	if r := f.last.Load(); r.refused == nil {
		f.writeCopy(ctx, r.path, r.data)
		f.last.Store(&reading{path: r.path, stamp: r.stamp})
	}
}

// Watch reads the file whenever it was edited, until ctx ends, and returns the cause.
// A file that was refused is read again once it is edited again.
func (f *File) Watch(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	edit := filewatch.Settler{After: settleTime}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		now, _ := filewatch.Stat(f.Path()) // the zero stamp for a file that cannot be looked at
		last := f.last.Load()
		if now == last.stamp {
			edit.Reset()
			continue
		}
		if !edit.Settled(now, time.Now()) {
			continue
		}
		if now == (filewatch.Stamp{}) {
			gone := &reading{path: last.path, stamp: now, refused: errGone, byCopy: last.byCopy}
			if !f.last.CompareAndSwap(last, gone) {
				continue // a Reload has read it meanwhile, and may have accepted that
			}
			f.o.Log.ErrorContext(ctx, "configuration gone, the old one stays in force", "path", f.Path())
			continue
		}
		f.o.Log.InfoContext(ctx, "the configuration was edited", "path", f.Path())
		if _, err := f.Reload(ctx); err != nil {
			LogRefusal(ctx, f.o.Log, err)
		}
	}
}

// LogRefusal logs why the configuration is not in force after an edit.
func LogRefusal(ctx context.Context, log *slog.Logger, err error) {
	log.ErrorContext(ctx, "configuration refused, the old one stays in force", "err", err, "event",
		events.NewBad(control.Configured, "", "the edit is refused, the old configuration stays in force: %v", err))
}

// Refusal returns, in one line for people, why the file is not in force; "" if it
// is. copied is the path of the copy of its last good state if that is in force,
// else "".
func (f *File) Refusal() (why, copied string) {
	r := f.last.Load()
	if r.refused == nil {
		return "", ""
	}
	if r.byCopy {
		copied = CopyPath(f.o.StateDir, r.path)
	}
	return strings.Join(strings.Split(r.refused.Error(), "\n"), "; "), copied
}
