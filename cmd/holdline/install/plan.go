package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/cmd/holdline/cmdenv"
	"holdline/contrib"
	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// undoTimeout bounds the undoing of steps.
const undoTimeout = 30 * time.Second

// foreignError says that a path has what install did not put there.
type foreignError struct{ Path string }

// Error names the path.
func (e *foreignError) Error() string {
	return fmt.Sprintf("%s is there already, and is not what holdline install has put there", e.Path)
}

// step is one change of the machine. Undo reverts it, also if only a part of it was
// done; it is nil if there is nothing to revert.
type step struct {
	what string // for people
	do   func(context.Context) error
	undo func(context.Context) error
}

// change makes one change of the machine and reports it. A dry run only reports it, as
// what would be done. The error begins with what failed.
func (o *Options) change(what string, do func() error) error {
	if o.DryRun {
		what = "would " + what
	} else if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	o.report("%s", what)
	return nil
}

// plan is what an installation will do. Planning changes nothing.
type plan struct {
	o       *Options
	old     Manifest
	next    Manifest
	steps   []step
	newDirs []string // that the steps create, or other programs for them; parents first
}

// addCommand adds a step that runs a program; undo may be nil.
func (p *plan) addCommand(argv []string, undo func(context.Context) error) {
	p.steps = append(p.steps, step{
		what: "run " + commandLine(argv),
		do:   func(ctx context.Context) error { return p.o.runProgram(ctx, argv) },
		undo: undo,
	})
}

// recordMissing records which of dir and its parents do not exist now, so that uninstall
// removes them.
func (p *plan) recordMissing(dir string) {
	for _, d := range ownfile.MissingDirs(dir) {
		for _, list := range []*[]string{&p.newDirs, &p.next.Dirs} {
			if !slices.Contains(*list, d) {
				*list = append(*list, d)
			}
		}
	}
}

// addFile adds a step that gives path a content, and reports whether anything is to be
// done. What is at path now must be what install has put there, unless force is set;
// otherwise the error is a [*foreignError]. The undo of the step restores what is
// there now.
func (p *plan) addFile(kind Kind, path string, want content, force bool) (bool, error) {
	now, err := readContent(path)
	if err != nil {
		return false, err
	}
	if now.exists && now.id() == want.id() {
		p.o.report("unchanged: %s", path)
		return false, nil
	}
	if now.exists && !p.next.file(path).isOurs(now) && !force {
		return false, cmdenv.WithHint(&foreignError{Path: path}, fmt.Sprintf("look at %s, then move it away; "+
			"or: holdline install --force replaces it, and uninstall will remove it", path))
	}
	p.recordFile(kind, path, want.id())
	verb := "write "
	if want.link != "" {
		verb = "link "
	}
	p.steps = append(p.steps, step{
		what: verb + path,
		do: func(context.Context) error {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			return want.putFile(path)
		},
		undo: func(context.Context) error { return now.putFile(path) },
	})
	return true, nil
}

// recordFile records that path gets the content with that id.
func (p *plan) recordFile(kind Kind, path, id string) {
	p.recordMissing(filepath.Dir(path))
	rec := p.next.file(path)
	if rec == nil {
		p.next.Files = append(p.next.Files, File{Path: path, Kind: kind})
		rec = &p.next.Files[len(p.next.Files)-1]
	}
	rec.Content = append(rec.Content, id)
}

// serviceManager is what a service manager does for the daemon.
type serviceManager interface {
	// reach returns an error with a hint unless the manager can be used.
	reach(ctx context.Context) error
	// files returns the manager's files for the program at bin; names are paths.
	files(bin string) ([]contrib.Unit, error)
	// isStarted reports whether the manager starts the daemon now.
	isStarted(ctx context.Context) bool
	// reread has the manager use its files as they are after an undo. started says
	// whether it started the daemon before.
	reread(ctx context.Context, started bool) error
	// addStart adds the steps by which the manager starts the daemon.
	addStart(ctx context.Context, p *plan, changed, started bool)
	// leave has the manager start the daemon no more.
	removeStart(ctx context.Context) error
	// forget has the manager see that its files are gone.
	forget(ctx context.Context)
}

// manager returns the service manager of that name; nil for [Nobody].
func (o *Options) manager(name Manager) serviceManager {
	switch name {
	case Systemd:
		return systemd{o}
	case Launchd:
		return launchd{o}
	case Nobody:
	}
	return nil
}

// planManager plans that the service manager of that name starts the program at bin as
// the daemon. The daemon must not have another manager.
func (p *plan) planManager(ctx context.Context, name Manager, bin string, force bool) error {
	if before := cmp.Or(p.old.Manager, name); before != name {
		return cmdenv.WithHint(
			fmt.Errorf("the daemon is installed for %s", before), "holdline uninstall, then install anew")
	}
	p.next.Manager = name
	if err := Lasting(bin); err != nil {
		return err
	}
	m := p.o.manager(name)
	if err := m.reach(ctx); err != nil {
		return err
	}
	files, err := m.files(bin)
	if err != nil {
		return err
	}
	at, changed, started := len(p.steps), false, m.isStarted(ctx)
	for _, f := range files {
		did, err := p.addFile(Unit, f.Name, content{exists: true, data: []byte(f.Text), mode: 0o644}, force)
		if err != nil {
			return err
		}
		changed = changed || did
	}
	if changed { // the file that is written first is the last to be put back
		first := p.steps[at].undo
		p.steps[at].undo = func(ctx context.Context) error { return errors.Join(first(ctx), m.reread(ctx, started)) }
	}
	m.addStart(ctx, p, changed, started)
	return nil
}

// carryOut does the steps and reports each; in a dry run it only reports them. If one
// fails, those before it and itself are undone, and the machine is as it was.
//
// The manifest is written before the first step, so that uninstall knows of every file
// even if this process is killed. A file that is replaced has its old and its new
// content there until the last step is done.
func (p *plan) carryOut(ctx context.Context) error {
	if !p.o.DryRun {
		p.recordMissing(p.o.StateDir)
		if err := statedir.MakeRoot(p.o.StateDir); err != nil {
			return err
		}
		// First, so that uninstall knows of every file, whenever this process is killed.
		if err := p.next.store(p.o.StateDir); err != nil {
			return err
		}
	}
	for i, s := range p.steps {
		err := p.o.change(s.what, func() error { return s.do(ctx) })
		if err != nil {
			return errors.Join(err, p.undo(ctx, p.steps[:i+1]))
		}
	}
	if p.o.DryRun {
		return nil
	}
	p.next.forgetReplaced()
	return p.next.store(p.o.StateDir)
}

// undo reverts steps, the last one first, reports each, and removes the directories made for them.
// It does so even if ctx is done, within undoTimeout. If a step cannot be reverted,
// the manifest still lists what may be left, for uninstall.
func (p *plan) undo(ctx context.Context, steps []step) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	var errs []error
	for _, s := range slices.Backward(steps) {
		if s.undo == nil {
			continue
		}
		if err := s.undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("undoing %q: %w", s.what, err))
			continue
		}
		p.o.report("undone: %s", s.what)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if err := p.old.store(p.o.StateDir); err != nil {
		return err
	}
	ownfile.RemoveEmptyDirs(p.newDirs)
	return nil
}
