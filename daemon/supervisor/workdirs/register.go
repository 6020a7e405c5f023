package workdirs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"holdline/daemon/statedir"
	"holdline/daemon/supervisor/near"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// settled ends the name of a copy in the register whose directory a daemon removes, or has removed.
// No id of a worker has that letter.
const settled = "~"

// Enter adds the worker of a spec to the register, once its directory is there and before that has a
// spec.json. Only servers'
// workers are in it: what is known of a consult is in its job.
func (d *Dirs) Enter(spec *process.Spec) error {
	path := process.RegisterFile(d.Dir(spec.ID))
	err := statedir.MakeDir(filepath.Dir(path))
	if err == nil {
		err = statedir.WriteFile(path, jsonrpc.Encode(spec))
	}
	if err != nil {
		return fmt.Errorf("register of workers: %w", err)
	}
	if spec.Far != nil {
		return d.noteAway(spec)
	}
	return nil
}

// settle notes in the register that no client asks any more for what is in a directory, which is
// about to be removed. TakeOut follows.
func (d *Dirs) settle(dir string) {
	path := process.RegisterFile(dir)
	_ = os.Rename(path, path+settled) // if it fails the next daemon takes the calls in dir for lost
}

// TakeOut removes a directory that is gone from the register.
func (d *Dirs) TakeOut(dir string) {
	path := process.RegisterFile(dir)
	_ = os.Remove(path + settled)
	_ = os.Remove(path)
}

// Vanished returns the specs of the workers that are in the register, are not settled, and whose
// directories are gone. It takes out those that are settled. What cannot be read of a spec is zero:
// but for its id.
func (d *Dirs) Vanished() (gone []process.Spec, err error) {
	register := filepath.Join(d.o.RuntimeDir, process.DirRegister)
	statedir.Sweep(register, true)
	entries, err := os.ReadDir(register)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		id := strings.TrimSuffix(e.Name(), settled)
		if !process.ValidID(id) {
			continue
		}
		if _, lerr := os.Lstat(d.Dir(id)); !errors.Is(lerr, fs.ErrNotExist) {
			continue
		}
		if id != e.Name() {
			d.TakeOut(d.Dir(id))
			continue
		}
		spec, serr := d.registered(d.Dir(id))
		if serr != nil {
			spec = process.Spec{ID: id}
		}
		gone = append(gone, spec)
	}
	return gone, err
}

// registered returns the spec of a directory as the register has it.
func (d *Dirs) registered(dir string) (process.Spec, error) {
	var spec process.Spec
	err := ownfile.ReadJSON(process.RegisterFile(dir), &spec)
	if err == nil && spec.ID != filepath.Base(dir) {
		err = fmt.Errorf("%s: %w: %q", process.RegisterFile(dir), process.ErrOtherDirectory, spec.ID)
	}
	return spec, err
}

// errVersion says that a spec has a version with which its worker was not started.
var errVersion = errors.New("its version is not the one in the register")

// Spec returns the spec of the worker of a directory. If spec.json is missing, damaged or another
// directory's, the register has it: Spec then writes the file anew. A spec of a version that this
// program does not know is damaged if the register has one of this version.
func (d *Dirs) Spec(dir string) (process.Spec, error) {
	spec, err := process.ReadSpec(dir)
	if err == nil && spec.Version == process.Version {
		return spec, nil
	}
	kept, kerr := d.registered(dir)
	if err == nil && kerr == nil && kept.Version == process.Version {
		err = fmt.Errorf("%s: %w", filepath.Join(dir, process.FileSpec), errVersion)
	}
	if err == nil || kerr != nil {
		return spec, err
	}
	d.o.Log.Warn("the spec of a worker cannot be read, and is restored from the register", "dir", dir, "err", err)
	if werr := statedir.WriteFile(filepath.Join(dir, process.FileSpec), jsonrpc.Encode(kept)); werr != nil {
		d.o.Log.Warn("the spec of a worker cannot be written", "dir", dir, "err", werr)
	}
	return kept, nil
}

// EndVanished kills what still runs of a worker whose directory is gone: the worker, which no daemon
// can reach any more, and what it has started.
func (d *Dirs) EndVanished(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, near.DeathTimeout)
	defer cancel()
	all, err := process.List()
	if err != nil {
		return fmt.Errorf("hunt: %w", err)
	}
	for _, p := range all {
		if process.WorkerDir(process.Args(p.PID)) == dir {
			d.hunter.KillAll(ctx, dir, []process.Proc{p})
		}
	}
	return d.hunter.KillLeft(ctx, dir)
}
