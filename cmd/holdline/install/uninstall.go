package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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
	if err := o.stopAll(ctx, m.Manager); err != nil {
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
	if m.Manager == Systemd {
		o.forgetSystemd(ctx)
	}
	if o.DryRun {
		return o.purge(purge)
	}
	slices.Reverse(left.Files)
	if err := left.store(o.StateDir); err != nil {
		return err
	}
	if err := o.purge(purge); err != nil {
		return err
	}
	return o.removeDirs(m.Dirs, left)
}

// stopAll stops the daemon and the manager that would start it again.
func (o *Options) stopAll(ctx context.Context, by Manager) error {
	if err := o.stopDaemon(ctx); err != nil { // first, so that it can say goodbye to its agents
		return err
	}
	leave := map[Manager]func(context.Context) error{Systemd: o.leaveSystemd, Launchd: o.leaveLaunchd}[by]
	if leave == nil {
		return nil
	}
	if err := leave(ctx); err != nil || o.DryRun {
		return err
	}
	return o.stopDaemon(ctx) // the one that the manager has started for an agent meanwhile
}

// stopDaemon stops the daemon and all that it runs.
func (o *Options) stopDaemon(ctx context.Context) error {
	if o.DryRun {
		o.report("would stop the daemon, and all that it runs")
		return nil
	}
	if err := o.Stop(ctx); err != nil {
		return fmt.Errorf("stopping the daemon: %w", err)
	}
	return nil
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
	case o.DryRun:
		o.report("would remove %s", f.Path)
		return false, nil
	}
	if err := removeFile(f.Path); err != nil {
		return true, fmt.Errorf("removing what was installed: %w", err)
	}
	o.report("remove %s", f.Path)
	return false, nil
}

// purge removes the directories that are holdline's own, if that is wanted.
func (o *Options) purge(wanted bool) error {
	if !wanted {
		return nil
	}
	var errs []error
	for _, dir := range []string{o.launchLog(), o.RuntimeDir, o.ConfigDir, o.StateDir} {
		if dir == "" {
			continue
		}
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if o.DryRun {
			o.report("would remove %s, and all in it", dir)
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		o.report("remove %s, and all in it", dir)
	}
	return errors.Join(errs...)
}

// removeDirs removes the directories that install has created and that are empty. The
// others stay in the manifest, if there is still a state directory for it.
func (o *Options) removeDirs(dirs []string, left Manifest) error {
	if err := o.removeEmptyDirs(dirs); err != nil {
		return err
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
