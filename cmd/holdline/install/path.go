package install

import (
	"context"

	"holdline/daemon/userenv"
)

// addPath adds a step that captures a PATH, and reports whether anything is to be done. The
// file is always holdline's, so it is replaced whatever it has.
func (p *plan) addPath(path string) (bool, error) {
	want := content{exists: true, data: []byte(path + "\n"), mode: 0o600}
	return p.addFile(Path, userenv.PathFile(p.o.StateDir), want, true)
}

// CapturePath writes the PATH for hosted servers, as [Options.Install] does with
// [Wish.Path]. The returned function reverts that, as long as nothing else was installed
// since.
func (o *Options) CapturePath(ctx context.Context, path string) (undo func(context.Context) error, err error) {
	unlock, err := o.lockHome(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	old, err := ReadManifest(o.StateDir)
	if err != nil {
		return nil, err
	}
	p := &plan{o: o, old: old, next: old.clone()}
	changes, err := p.addPath(path)
	if err != nil || !changes {
		return func(context.Context) error { return nil }, err
	}
	p.recordMissing(o.ConfigDir) // the first server that is configured creates it
	if err := p.carryOut(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		unlock, err := o.lockHome(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		return p.undo(ctx, p.steps)
	}, nil
}
