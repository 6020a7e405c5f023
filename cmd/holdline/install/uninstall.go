package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Uninstall takes away what [Options.Install] has made, and tells each step on
// Out: the daemon is stopped with all that it runs, its units are disabled and
// removed, files go if they are still as they were put there. With purge
// configuration, state and runtime directories go, too. What is left, since
// somebody changed it, stays in the manifest.
func (o *Options) Uninstall(ctx context.Context, purge bool) error {
	release, err := o.alone(ctx)
	if err != nil {
		return err
	}
	defer release()
	m, err := ReadManifest(o.StateDir)
	if err != nil {
		return err
	}
	if err := o.quiet(ctx, m.Manager); err != nil {
		return err
	}
	if m.Manager == Nobody && len(m.Files) == 0 {
		o.say("nothing is installed that holdline install has made")
	}
	left := Manifest{Version: manifestVersion}
	for _, f := range slices.Backward(m.Files) {
		keep, err := o.remove(f)
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
	if err := left.write(o.StateDir); err != nil {
		return err
	}
	if err := o.purge(purge); err != nil {
		return err
	}
	return o.sweep(m.Dirs, left)
}

// quiet stops the daemon and whoever would start it again.
func (o *Options) quiet(ctx context.Context, by Manager) error {
	if err := o.stop(ctx); err != nil { // first, so that agents are told
		return err
	}
	leave := map[Manager]func(context.Context) error{Systemd: o.leaveSystemd, Launchd: o.leaveLaunchd}[by]
	if leave == nil {
		return nil
	}
	if err := leave(ctx); err != nil || o.DryRun {
		return err
	}
	return o.stop(ctx) // that which an agent had its manager start meanwhile
}

func (o *Options) stop(ctx context.Context) error {
	if o.DryRun {
		o.say("would stop the daemon, and all that it runs")
		return nil
	}
	if err := o.Stop(ctx); err != nil {
		return fmt.Errorf("stopping the daemon: %w", err)
	}
	return nil
}

// remove takes one file away, and tells whether it is left since it is not what
// was put there.
func (o *Options) remove(f File) (keep bool, err error) {
	now, err := look(f.Path)
	switch {
	case err != nil:
		o.say("left: %v", err)
		return true, nil
	case !now.there:
		o.say("gone already: %s", f.Path)
		return false, nil
	case !f.isOf(now):
		o.say("left: %s was changed since it was installed", f.Path)
		return true, nil
	case o.DryRun:
		o.say("would remove %s", f.Path)
		return false, nil
	}
	if err := gone(os.Remove(f.Path)); err != nil {
		return true, fmt.Errorf("removing what was installed: %w", err)
	}
	o.say("remove %s", f.Path)
	return false, nil
}

// purge removes the directories that are holdline's own.
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
			o.say("would remove %s, and all in it", dir)
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		o.say("remove %s, and all in it", dir)
	}
	return errors.Join(errs...)
}

// sweep removes the directories that install had to make, as far as nothing is
// in them, and remembers the others while there is a place to.
func (o *Options) sweep(dirs []string, left Manifest) error {
	if err := o.removeEmpty(dirs); err != nil {
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
	return left.write(o.StateDir)
}

func (o *Options) removeEmpty(dirs []string) error {
	for _, dir := range slices.Backward(dirs) {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 0 {
			continue
		}
		if err := gone(os.Remove(dir)); err != nil {
			return err
		}
		o.say("remove %s", dir)
	}
	return nil
}
