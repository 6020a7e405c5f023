// Package workdirs has the directories of the workers of one daemon. It finds them, ends the
// workers in them, and removes what dead workers have left: here, and on other machines. It
// attaches to no worker and reads no output, which is the supervisor's work.
//
// Each worker has a directory here. That of a worker on another machine stands for the one
// there: see [process.Far].
package workdirs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"holdline/daemon/statedir"
	"holdline/daemon/supervisor/far"
	"holdline/daemon/supervisor/finding"
	"holdline/daemon/supervisor/near"
	"holdline/daemon/waiting"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Options of [Dirs].
type Options struct {
	RuntimeDir string // servers' directories and all sockets are in w/ of it
	StateDir   string // holds consults/, and the name of itself
	Log        *slog.Logger
	// Environ returns the environment of programs that reach other machines.
	Environ func(context.Context) []string
}

// Dirs has the directories of a daemon's workers. It is safe for concurrent use. The caller must
// call CloseHosts, which waits for its goroutines.
type Dirs struct {
	o      Options
	hosts  far.Hosts
	hunter near.Hunter
	life   context.Context //nolint:containedctx // of the goroutines: until CloseHosts
	cancel context.CancelFunc
	wg     sync.WaitGroup // sweeps

	mu       sync.Mutex
	closed   bool
	sweeping map[string]bool  // hosts for which a sweep is due; true if another one is due after that
	fetching map[string]fetch // by directory

	naming sync.Mutex // held while the state directory gets its name
	name   string     // of the state directory; "" before it is needed
}

// New returns the directories. It does no I/O.
func New(o Options) *Dirs {
	d := &Dirs{o: o, hunter: near.Hunter{Log: o.Log}, sweeping: map[string]bool{}}
	d.hosts.Environ, d.hosts.Origin = o.Environ, d.origin
	d.life, d.cancel = context.WithCancel(context.Background())
	return d
}

// Hosts returns what reaches the other machines.
func (d *Dirs) Hosts() *far.Hosts { return &d.hosts }

// CloseHosts ends the sweeps and waits until no session with another machine is open, or until
// ctx is done.
func (d *Dirs) CloseHosts(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	if err := waiting.For(ctx, &d.wg); err != nil {
		return err
	}
	return d.hosts.Close(ctx)
}

// Dir returns the directory of the server worker id. The job store chooses the
// directory of a consult.
func (d *Dirs) Dir(id string) string { return filepath.Join(d.o.RuntimeDir, "w", id) }

// Destroy kills the worker of a directory with its tree, whatever state it is in, and returns when
// all of that is gone. With revoke one that was started, and is not there yet, cannot begin.
func (d *Dirs) Destroy(ctx context.Context, dir string, revoke bool) error {
	if at := d.farOf(dir); at != nil {
		return d.At(at).destroy(ctx, dir)
	}
	return d.hunter.Destroy(ctx, dir, revoke)
}

// WaitDead blocks until a worker of this machine that leaves by itself has left, for
// [near.DeathTimeout] at most.
func (d *Dirs) WaitDead(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, near.DeathTimeout)
	defer cancel()
	for {
		alive, err := finding.Alive(dir)
		if errors.Is(err, os.ErrNotExist) || err == nil && !alive {
			return nil
		}
		if err != nil {
			return err
		}
		if err := near.Pause(ctx); err != nil {
			return err
		}
	}
}

// origin returns the name of this daemon's state directory, by which its workers elsewhere are
// kept apart from those of other machines. The first call makes it. The name that workers which may
// run were started with holds, whatever has become of the file.
func (d *Dirs) origin() (string, error) {
	d.naming.Lock()
	defer d.naming.Unlock()
	if d.name != "" {
		return d.name, nil
	}
	path := filepath.Join(d.o.StateDir, "origin")
	b, err := ownfile.Read(path, 64)
	kept, noted := string(b), d.notedOrigin()
	var fresh [4]byte
	_, _ = rand.Read(fresh[:]) // never fails
	name := hex.EncodeToString(fresh[:])
	switch {
	case noted != "":
		name = noted
	case err == nil && process.ValidID(kept):
		name = kept
	}
	if err != nil || name != kept {
		if err := statedir.WriteFile(path, []byte(name)); err != nil {
			return "", fmt.Errorf("name of the state directory: %w", err)
		}
	}
	d.name = name
	return name, nil
}

// HighestGeneration returns the highest generation that stands in the specs of workers, 0 if there is
// none.
func (d *Dirs) HighestGeneration() (highest int64) {
	servers, _ := d.ServerDirs()
	for _, dir := range append(servers, d.All()...) {
		if spec, err := process.ReadSpec(dir); err == nil && spec.Generation < statedir.MaxCount {
			highest = max(highest, spec.Generation)
		}
	}
	return highest
}

// Versions returns the versions of the workers' protocol that are in use, in ascending
// order: that of new workers, and those of the workers that live.
func (d *Dirs) Versions() []int {
	used := []int{process.Newest()}
	for _, dir := range append(d.All(), d.Far()...) {
		spec, err := process.ReadSpec(dir)
		if alive, lerr := finding.Alive(dir); err == nil && lerr == nil && alive {
			used = append(used, spec.Version)
		}
	}
	slices.Sort(used)
	return slices.Compact(used)
}
