// Package configfile keeps the configuration that is in force in a running daemon.
// It reads the file when it was edited, keeps the configuration before it if the
// file is refused, and keeps a copy of the last good file, by which a daemon serves
// that starts beside a bad one.
//
// A file that says nothing is refused, too, if the file has said something before: an
// editor that truncates before it writes, a full disk or a home that is not mounted leave
// such a file, and "no servers" would end every server. A user who means it writes {}, or
// confirms it (see [File.Accept]).
package configfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/events"
	"holdline/daemon/filewatch"
	"holdline/daemon/jsonedit"
	"holdline/protocol/control"
)

// Times of the watch for an edited file.
const (
	pollInterval = time.Second
	settleTime   = time.Second // for which an edited file must stay unchanged
)

// ErrNothing is wrapped by the error about a file that says nothing, or is not there,
// although it has said something before.
var ErrNothing = errors.New("to mean no servers and all defaults, write {} into it, or run: holdline reload")

// errNothing returns the [ErrNothing] about the file at path; data is nil if there is none.
func errNothing(path string, data []byte) error {
	what := "has nothing but comments"
	switch {
	case data == nil:
		what = "is not there any more"
	case len(strings.TrimSpace(string(data))) == 0:
		what = "is empty"
	}
	return fmt.Errorf("%s %s, though it had settings; %w", path, what, ErrNothing)
}

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
	unread  bool  // refused is an error at reading it, which may pass without an edit
	byCopy  bool  // the file is refused, and the copy of its last good state is in force instead
}

// nothing reports whether the file says nothing, or is not there.
func (r *reading) nothing() bool { return jsonedit.SaysNothing(r.data) }

// Open reads the file. If the file is refused the copy of its last good state comes
// into force; without a copy Open returns the error.
func Open(ctx context.Context, o Options) (*File, error) {
	f := &File{o: o, reading: make(chan struct{}, 1)}
	f.path.Store(&o.Path)
	r, cfg := f.load(ctx, false)
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
// refused and there is no copy. A file that says nothing is not refused if accept is set.
func (f *File) load(ctx context.Context, accept bool) (*reading, config.Config) {
	path := f.Path()
	stamp, _ := filewatch.Stat(path) // before the file is read: a later edit is noticed
	r := &reading{path: path, stamp: stamp}
	var cfg config.Config
	var err error
	if r.data, err = config.Read(path); err != nil {
		r.refused, r.unread = err, !errors.Is(err, config.ErrUnsafe)
	} else {
		cfg, r.refused = config.ParseForUse(path, r.data)
	}
	cfg = cfg.WithHome(f.o.Home)
	last := f.last.Load()
	running := last != nil && last.path == path // what the file said before is in force
	// A file that says nothing is as good as the defaults. So nothing is lost where these hold already.
	mayLose := r.refused == nil && r.nothing() && !accept
	if running {
		if mayLose && !isDefault(f.Current(), f.o.Home) {
			r.refused = errNothing(path, r.data)
		}
		r.byCopy = r.refused != nil && last.byCopy
		return r, cfg
	}
	if r.refused == nil && !mayLose {
		return r, cfg
	}
	kept, err := readCopy(f.o.StateDir, path)
	switch kept = kept.WithHome(f.o.Home); {
	case errors.Is(err, fs.ErrNotExist), err == nil && mayLose && isDefault(&kept, f.o.Home):
		return r, cfg
	case mayLose:
		r.refused = errNothing(path, r.data)
	}
	if err != nil {
		r.refused = fmt.Errorf("%w\nand the copy of its last good state cannot be used: %w", r.refused, err)
		return r, cfg
	}
	r.byCopy = true
	f.o.Log.ErrorContext(ctx, "configuration refused, serving by the copy of its last good state",
		"err", r.refused, "copy", CopyPath(f.o.StateDir, path),
		"fix", "correct "+path+"; the daemon then reads it by itself")
	return r, kept
}

// isDefault reports whether a configuration says no more than an empty file does.
func isDefault(c *config.Config, home string) bool {
	empty := config.Default().WithHome(home)
	if len(c.Servers) == 0 {
		empty.Servers = c.Servers // an empty object is none
	}
	return c.Equal(empty)
}

// Current returns the configuration that is in force. The caller must not change
// it.
func (f *File) Current() *config.Config { return f.current.Load() }

// LeftOut returns why a server of the file is left out, and where the file says so; nil if it is not.
func (f *File) LeftOut(server string) error {
	if s, ok := f.Current().Server(server); ok {
		return s.Unusable()
	}
	return nil
}

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
func (f *File) Reload(ctx context.Context) (changed bool, err error) { return f.reload(ctx, false) }

// Accept is [File.Reload] for a user who has confirmed that the file may say nothing.
// If it does, the copy of its last good state is removed.
func (f *File) Accept(ctx context.Context) (changed bool, err error) { return f.reload(ctx, true) }

// reload is [File.Reload], or [File.Accept] if accept is set.
func (f *File) reload(ctx context.Context, accept bool) (changed bool, err error) {
	select {
	case f.reading <- struct{}{}:
		defer func() { <-f.reading }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	before, last := f.Current(), f.last.Load()
	r, after := f.load(ctx, accept)
	if r.refused != nil && (!r.byCopy || last.path == r.path) {
		f.last.Store(r)
		return false, r.refused
	}
	if r.refused == nil {
		f.keep(ctx, r)
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
	unusable, was := after.Unusable(), before.Unusable()
	for _, name := range slices.Sorted(maps.Keys(unusable)) {
		if err := unusable[name]; was[name] == nil {
			f.o.Log.ErrorContext(ctx, "an edit costs a server", "server", name, "err", err, "event",
				events.NewBad(control.Configured, name, "the other servers are served: %v", err))
		}
	}
	f.o.Log.InfoContext(ctx, "configuration read", "path", r.path, "changed", changed, "event",
		events.New(control.Configured, "", "the configuration was read: %s", r.path))
	return changed, r.refused
}

// Keep writes the copy of the file that [Open] has read, if that was a good one.
// Call it once, as soon as this daemon owns the state directory.
func (f *File) Keep(ctx context.Context) {
	if r := f.last.Load(); r.refused == nil {
		f.keep(ctx, r)
		f.last.Store(&reading{path: r.path, stamp: r.stamp})
	}
}

// keep writes the copy of the file that is in force by r. A file that says nothing has no
// copy: nothing would be lost with it.
func (f *File) keep(ctx context.Context, r *reading) {
	if !r.nothing() {
		f.writeCopy(ctx, r.path, r.data)
		return
	}
	if err := DropCopy(f.o.StateDir, r.path); err != nil {
		f.o.Log.WarnContext(ctx, "the copy of the configuration before cannot be removed: "+
			"the next daemon will serve by it", "err", err)
	}
}

// Watch reads the file whenever it was edited, until ctx ends, and returns the cause.
// A file that was refused is read again once it is edited again; one that could not be
// read is tried again all the time.
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
		edited := now != last.stamp
		switch {
		case !edited && !last.unread:
			edit.Reset()
			continue
		case edited && !edit.Settled(now, time.Now()):
			continue
		}
		_, err := f.Reload(ctx)
		if err != nil && ctx.Err() == nil && (edited || last.refused == nil || err.Error() != last.refused.Error()) {
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
