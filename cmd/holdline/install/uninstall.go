package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"holdline/protocol/ownfile"
)

// Uninstall removes what [Options.Install] has made, and reports each step on Out. It
// stops the daemon with all that it runs, disables and removes its units, and removes
// the files that are still as they were installed. With purge it removes configuration,
// state and runtime directories, too. Files that have changed are left, and stay in the
// manifest.
func (o *Options) Uninstall(ctx context.Context, purge bool) error {
	unlock, err := o.lockHome(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	m, err := ReadManifest(o.StateDir)
	if err != nil {
		return err
	}
	manager := o.manager(m.Manager)
	if err := o.stopAll(ctx, manager); err != nil {
		return err
	}
	if m.Manager == Nobody && len(m.Files) == 0 {
		o.report("nothing is installed that holdline install has made")
	}
	left := Manifest{Version: manifestVersion}
	for _, f := range slices.Backward(m.Files) {
		keep, err := o.removeInstalled(f)
		if err != nil {
			return err
		}
		if keep {
			left.Files = append(left.Files, f)
		}
	}
	if manager != nil {
		manager.forget(ctx)
	}
	slices.Reverse(left.Files)
	if !o.DryRun {
		if err := left.store(o.StateDir); err != nil {
			return err
		}
	}
	if purge {
		err = o.purge()
	}
	if err != nil || o.DryRun {
		return err
	}
	return o.removeDirs(m.Dirs, left)
}

// stopAll stops the daemon and the manager that would start it again, which may be
// nil. The daemon is stopped first, so that it can end its sessions in order, and once
// more at the end: an agent may have had the manager start another one meanwhile.
func (o *Options) stopAll(ctx context.Context, manager serviceManager) error {
	stop := func() error {
		if o.DryRun {
			o.report("would stop the daemon, and all that it runs")
			return nil
		}
		if err := o.Stop(ctx); err != nil {
			return fmt.Errorf("stopping the daemon: %w", err)
		}
		return nil
	}
	if err := stop(); err != nil || manager == nil { // first, so that it can tell its agents
		return err
	}
	if err := manager.removeStart(ctx); err != nil || o.DryRun {
		return err
	}
	return stop() // the one that the manager has started for an agent meanwhile
}

// removeInstalled removes one file, and reports whether it is kept, since it is not what
// was installed.
func (o *Options) removeInstalled(f File) (keep bool, err error) {
	now, err := readContent(f.Path)
	switch {
	case err != nil:
		o.report("left: %v", err)
		return true, nil
	case !now.exists:
		o.report("gone already: %s", f.Path)
		return false, nil
	case !f.isOurs(now):
		o.report("left: %s was changed since it was installed", f.Path)
		return true, nil
	}
	return false, o.change("remove "+f.Path, func() error { return removeFile(f.Path) })
}

// purge removes the directories that are holdline's own.
func (o *Options) purge() error {
	var errs []error
	for _, dir := range []string{o.launchLog(), o.RuntimeDir, o.ConfigDir, o.StateDir} {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, o.change("remove "+dir+", and all in it", func() error { return os.RemoveAll(dir) }))
		}
	}
	return errors.Join(errs...)
}

// removeDirs removes the directories that install has created and that are empty. The
// others stay in the manifest, if there is still a state directory for it.
func (o *Options) removeDirs(dirs []string, left Manifest) error {
	for _, dir := range ownfile.RemoveEmptyDirs(dirs) {
		o.report("remove %s", dir)
	}
	for _, dir := range dirs {
		if _, err := os.Lstat(dir); err == nil {
			left.Dirs = append(left.Dirs, dir)
		}
	}
	if _, err := os.Lstat(o.StateDir); err != nil {
		return nil //nolint:nilerr // nothing is left that a later uninstall could remove
	}
	return left.store(o.StateDir)
}
