package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/statedir"
)

// undoTimeout bounds the undoing of steps.
const undoTimeout = 30 * time.Second

// ForeignError says that a path has what install did not put there.
type ForeignError struct{ Path string }

// Error names the path.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s is there already, and is not what holdline install has put there", e.Path)
}

// step is one change of the machine. Undo reverts it, also if only a part of it was
// done; it is nil if there is nothing to revert.
type step struct {
	what string // for people; "" is not reported
	do   func(context.Context) error
	undo func(context.Context) error
}

// doNothing is done by a step that is there for its undo.
func doNothing(context.Context) error { return nil }

// plan is what an installation will do. Planning changes nothing.
type plan struct {
	o       *Options
	old     Manifest
	next    Manifest
	steps   []step
	newDirs []string // that the steps create, or other programs for them; parents first
}

// addCommand adds a step that runs a program, and is undone by another one; nil is none.
func (p *plan) addCommand(argv, undo []string) {
	s := step{what: "run " + commandLine(argv), do: func(ctx context.Context) error {
		_, err := p.o.Run(ctx, argv[0], argv[1:]...)
		return err
	}}
	if undo != nil {
		s.undo = func(ctx context.Context) error {
			_, err := p.o.Run(ctx, undo[0], undo[1:]...)
			return err
		}
	}
	p.steps = append(p.steps, s)
}

// recordMissing records which of dir and its parents do not exist now, so that uninstall
// removes them.
func (p *plan) recordMissing(dir string) {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		missing = append(missing, d)
	}
	for _, d := range slices.Backward(missing) {
		for _, list := range []*[]string{&p.newDirs, &p.next.Dirs} {
			if !slices.Contains(*list, d) {
				*list = append(*list, d)
			}
		}
	}
}

// addFile adds a step that gives path a content, and reports whether anything is to be
// done. What is there must be ours, unless force is set.
func (p *plan) addFile(kind Kind, path string, want content, force bool) (bool, error) {
	now, err := readContent(path)
	if err != nil {
		return false, err
	}
	if now.exists && now.id() == want.id() {
		p.o.report("unchanged: %s", path)
		return false, nil
	}
	rec := p.next.file(path)
	if now.exists && !rec.isOurs(now) && !force {
		return false, &ForeignError{Path: path}
	}
	p.recordMissing(filepath.Dir(path))
	if rec == nil {
		p.next.Files = append(p.next.Files, File{Path: path, Kind: kind})
		rec = &p.next.Files[len(p.next.Files)-1]
	}
	rec.Content = append(rec.Content, want.id())
	verb := "write"
	if want.link != "" {
		verb = "link"
	}
	p.steps = append(p.steps, step{
		what: verb + " " + path,
		do: func(context.Context) error {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			return want.put(path)
		},
		undo: func(context.Context) error { return now.put(path) },
	})
	return true, nil
}

// carryOut does the steps and reports each. If one fails, those before it are undone,
// and the machine is as it was.
func (p *plan) carryOut(ctx context.Context) error {
	if p.o.DryRun {
		for _, s := range p.steps {
			p.reportStep("would ", s)
		}
		return nil
	}
	p.recordMissing(p.o.StateDir)
	if err := os.MkdirAll(filepath.Dir(p.o.StateDir), 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	if err := statedir.MakeDir(p.o.StateDir); err != nil {
		return err
	}
	// First, so that uninstall knows of every file, whenever this process is killed.
	if err := p.next.store(p.o.StateDir); err != nil {
		return err
	}
	for i, s := range p.steps {
		if err := s.do(ctx); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", s.what, err), p.undo(ctx, p.steps[:i+1]))
		}
		p.reportStep("", s)
	}
	p.next.forgetReplaced()
	return p.next.store(p.o.StateDir)
}

// reportStep reports a step, unless it is nothing for people.
func (p *plan) reportStep(prefix string, s step) {
	if s.what != "" {
		p.o.report("%s%s", prefix, s.what)
	}
}

// undo reverts steps, the last one first, and removes the directories made for them. If
// that fails, the manifest still lists what may be left, for uninstall.
func (p *plan) undo(ctx context.Context, steps []step) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	var errs []error
	for _, s := range slices.Backward(steps) {
		if s.undo == nil {
			continue
		}
		if err := s.undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("taking back %q: %w", s.what, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	p.o.report("taken back: nothing is changed")
	if err := p.old.store(p.o.StateDir); err != nil {
		return err
	}
	for _, dir := range slices.Backward(p.newDirs) {
		_ = os.Remove(dir) // only if it is empty
	}
	return nil
}
