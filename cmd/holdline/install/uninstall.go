package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"holdline/daemon/plural"
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
	pages := 0
	for _, f := range slices.Backward(m.Files) {
		became, err := o.removeInstalled(f)
		if err != nil {
			return err
		}
		if became == kept {
			left.Files = append(left.Files, f)
		} else if became == deleted && f.Kind == Page {
			pages++
		}
	}
	if pages > 0 {
		_ = o.change("remove "+documentWords(pages), func() error { return nil }) // it is done
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

// fate is what becomes of an installed file at an uninstall.
type fate int

const (
	deleted fate = iota
	absent       // it was gone before
	kept         // it is not what was installed
)

// removeInstalled removes one file if it is still what was installed, and reports what becomes of it. Of a [Document]
// it reports only that it is kept.
func (o *Options) removeInstalled(f File) (fate, error) {
	now, err := readContent(f.Path)
	switch {
	case err != nil:
		o.report("left: %v", err)
		return kept, nil
	case !now.exists:
		if f.Kind != Page {
			o.report("gone already: %s", f.Path)
		}
		return absent, nil
	case !f.isOurs(now):
		o.report("left: %s was changed since it was installed", f.Path)
		return kept, nil
	}
	remove := func() error { return removeFile(f.Path) }
	switch {
	case f.Kind != Page:
		return deleted, o.change("remove "+f.Path, remove)
	case o.DryRun:
		return deleted, nil
	}
	return deleted, remove()
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

// maxDirLines is how many removed directories are reported one by one.
const maxDirLines = 5

// removeDirs removes the directories that install has created and that are empty. The
// others stay in the manifest, if there is still a state directory for it.
func (o *Options) removeDirs(dirs []string, left Manifest) error {
	gone := ownfile.RemoveEmptyDirs(dirs)
	if n := len(gone); n > maxDirLines {
		o.report("remove %s that install had made", plural.Count(n, "empty directory"))
		gone = nil
	}
	for _, dir := range gone {
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
