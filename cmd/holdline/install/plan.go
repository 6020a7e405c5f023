package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/statedir"
)

// undoTimeout bounds the taking back of steps.
const undoTimeout = 30 * time.Second

// ForeignError is that something is in the way which install did not put there.
type ForeignError struct{ Path string }

// Error names the path.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s is there already, and is not what holdline install has put there", e.Path)
}

// step is one change. Undo takes it back, also if it was done only in part; nil
// if there is nothing to take back.
type step struct {
	what string // "" is not told
	do   func(context.Context) error
	undo func(context.Context) error
}

// nothing is done by a step that is there to be taken back.
func nothing(context.Context) error { return nil }

// plan is what an installation will do. Making it changes nothing.
type plan struct {
	o      *Options
	old    Manifest
	next   Manifest
	steps  []step
	absent []string // directories that it has made, or others for it; parents first
}

// add appends a step.
func (p *plan) add(s step) { p.steps = append(p.steps, s) }

// command is a step that runs a program, undone by another; nil for nothing.
func (p *plan) command(argv, undo []string) {
	s := step{what: "run " + words(argv), do: func(ctx context.Context) error {
		_, err := p.o.Run(ctx, argv[0], argv[1:]...)
		return err
	}}
	if undo != nil {
		s.undo = func(ctx context.Context) error {
			_, err := p.o.Run(ctx, undo[0], undo[1:]...)
			return err
		}
	}
	p.add(s)
}

// owe notes which of dir and its parents are not there now.
func (p *plan) owe(dir string) {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		missing = append(missing, d)
	}
	for _, d := range slices.Backward(missing) {
		if !slices.Contains(p.absent, d) {
			p.absent = append(p.absent, d)
		}
		if !slices.Contains(p.next.Dirs, d) {
			p.next.Dirs = append(p.next.Dirs, d)
		}
	}
}

// put is a step that makes path a file of that content. It tells whether
// anything is to be done.
func (p *plan) put(kind Kind, path string, mode os.FileMode, data []byte, force bool) (bool, error) {
	now, err := look(path)
	if err != nil {
		return false, err
	}
	if now.there && now.link == "" && bytes.Equal(now.data, data) {
		p.o.say("unchanged: %s", path)
		return false, nil
	}
	rec, err := p.claim(kind, path, now, force)
	if err != nil {
		return false, err
	}
	rec.SHA256 = append(rec.SHA256, hash(data))
	p.add(p.replacing("write", path, now, func() error { return writeFile(path, mode, data) }))
	return true, nil
}

// link is a step that makes path a link to target.
func (p *plan) link(kind Kind, path, target string, force bool) error {
	now, err := look(path)
	if err != nil {
		return err
	}
	if now.link == target {
		p.o.say("unchanged: %s", path)
		return nil
	}
	if there, err := filepath.EvalSymlinks(target); err == nil && there == path {
		p.o.say("unchanged: %s is what %s leads to", path, target)
		return nil
	}
	rec, err := p.claim(kind, path, now, force)
	if err != nil {
		return err
	}
	rec.Link = append(rec.Link, target)
	p.add(p.replacing("link", path, now, func() error { return writeLink(path, target) }))
	return nil
}

// claim makes or finds the record of a path that is about to be written. What
// is there must be ours, unless force.
func (p *plan) claim(kind Kind, path string, now found, force bool) (*File, error) {
	rec := p.next.file(path)
	if now.there && !rec.isOf(now) && !force {
		return nil, &ForeignError{Path: path}
	}
	p.owe(filepath.Dir(path))
	if rec == nil {
		p.next.Files = append(p.next.Files, File{Path: path, Kind: kind})
		rec = &p.next.Files[len(p.next.Files)-1]
	}
	return rec, nil
}

// replacing is the step that puts something at path by put, in place of what
// was found there.
func (p *plan) replacing(verb, path string, was found, put func() error) step {
	return step{
		what: verb + " " + path,
		do: func(context.Context) error {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			return put()
		},
		undo: func(context.Context) error {
			switch {
			case !was.there:
				return gone(os.Remove(path))
			case was.link != "":
				return writeLink(path, was.link)
			}
			return writeFile(path, was.mode, was.data)
		},
	}
}

// run does the steps, and tells each. If one fails those before it are taken
// back, and what was installed before is as it was.
func (p *plan) run(ctx context.Context) error {
	if p.o.DryRun {
		for _, s := range p.steps {
			p.tell("would ", s)
		}
		return nil
	}
	p.owe(p.o.StateDir)
	if err := os.MkdirAll(filepath.Dir(p.o.StateDir), 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	if err := statedir.MakeDir(p.o.StateDir); err != nil {
		return err
	}
	if err := p.next.write(p.o.StateDir); err != nil { // first, so that nothing is made that nobody knows of
		return err
	}
	for i, s := range p.steps {
		if err := s.do(ctx); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", s.what, err), p.back(ctx, p.steps[:i+1]))
		}
		p.tell("", s)
	}
	p.next.settle()
	return p.next.write(p.o.StateDir)
}

func (p *plan) tell(prefix string, s step) {
	if s.what != "" {
		p.o.say("%s%s", prefix, s.what)
	}
}

// back takes steps back, the last one first, and the directories made for them.
func (p *plan) back(ctx context.Context, steps []step) error {
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
	if len(errs) > 0 { // the manifest keeps what may be left, for uninstall
		return errors.Join(errs...)
	}
	p.o.say("taken back: nothing is changed")
	if err := p.old.write(p.o.StateDir); err != nil {
		return err
	}
	for _, dir := range slices.Backward(p.absent) {
		_ = os.Remove(dir) // only if it is empty
	}
	return nil
}

// writeFile puts data into path as a whole.
func writeFile(path string, mode os.FileMode, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), fmt.Sprintf(".%s.%d-*", filepath.Base(path), os.Getpid()))
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// writeLink makes path a link to target, in place of what is there.
func writeLink(path, target string) error {
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d-0", filepath.Base(path), os.Getpid()))
	if err := gone(os.Remove(temp)); err != nil {
		return err
	}
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// gone is err, but that something is not there is none.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
