package importer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/cmd/holdline/clients"
	"holdline/daemon/config"
)

// Done is what [Plan.Write] or [Undo] did.
type Done struct {
	Files  []string `json:"files"`  // that were written
	Backup string   `json:"backup"` // directory of the journal and the files as they were; "" if nothing was done
	Left   []Left   `json:"left"`
}

// Left is what was not done, and why.
type Left struct {
	Path string `json:"path"`
	Key  string `json:"key,omitempty"` // "" is the whole file
	Why  string `json:"why"`
}

// maxTries is how often a file that changes during its edit is read again.
const maxTries = 5

// errKeepsChanging is returned for a file that was another one at each try.
var errKeepsChanging = fmt.Errorf("it changes all the time: %w", clients.ErrChanged)

// testOnlyBeforeSwap is called before a client's file is replaced.
var testOnlyBeforeSwap = func(path string) {}

// Write carries out the plan. A file that cannot be edited is listed in [Done.Left];
// the others are edited all the same.
func (p *Plan) Write(ctx context.Context, now time.Time) (Done, error) {
	d := Done{Files: []string{}, Left: []Left{}}
	if p.Empty() {
		return d, nil
	}
	j, err := newJournal(p.o.State, now)
	if err != nil {
		return d, err
	}
	d.Backup = j.dir
	edits, err := p.record(j)
	if err != nil {
		return d, err
	}
	if len(p.own.added) > 0 {
		if err := p.swapOwn(ctx); err != nil {
			return d, errors.Join(err, j.remove())
		}
		d.Files = append(d.Files, p.Config)
	}
	for _, f := range p.Files {
		if e := edits[f]; e != nil {
			if err := f.write(ctx, j, e, &d); err != nil {
				d.Left = append(d.Left, Left{Path: f.Path, Why: err.Error()})
			}
		}
	}
	slices.Sort(d.Files)
	return d, nil
}

// swapOwn edits holdline's file. Other users lose their access to it before it holds
// anything of a client's.
func (p *Plan) swapOwn(ctx context.Context) error {
	if p.own.losesMode() {
		if err := os.Chmod(p.Config, p.own.mode&^othersMode); err != nil {
			return err
		}
	}
	err := config.Swap(ctx, p.Config, p.own.before, p.own.after)
	if err != nil && p.own.losesMode() {
		err = errors.Join(err, os.Chmod(p.Config, p.own.mode))
	}
	return err
}

// record writes a journal of all that is to be done.
func (p *Plan) record(j *journal) (map[*File]*edit, error) {
	edits := map[*File]*edit{}
	if len(p.own.added) > 0 {
		own := &edit{Path: p.Config, Made: p.own.missing, Dirs: missingDirs(filepath.Dir(p.Config))}
		if p.own.losesMode() {
			own.Mode = p.own.mode
		}
		for _, a := range p.own.added {
			own.Keys = append(own.Keys, &keyChange{Path: []string{"mcpServers", a.name}, New: new(string(a.text))})
		}
		if err := j.add(own, p.own.before, p.own.after); err != nil {
			return nil, err
		}
	}
	for _, f := range p.Files {
		if !f.Changes {
			continue
		}
		e := &edit{Client: f.Client, Path: f.Path, Made: f.Make, Dirs: missingDirs(filepath.Dir(f.Path))}
		var err error
		if e.Keys, err = f.changes(); err != nil {
			return nil, err
		}
		if err := j.add(e, f.before, f.after); err != nil {
			return nil, err
		}
		edits[f] = e
	}
	return edits, j.write()
}

// changes returns the changes of the file's entries.
func (f *File) changes() ([]*keyChange, error) {
	doc, err := f.client.Parse(f.Path, f.after)
	if err != nil {
		return nil, err
	}
	var out []*keyChange
	for i := range f.steps {
		s := &f.steps[i]
		k := &keyChange{Path: s.path}
		if s.old != "" {
			k.Old = &s.old
		}
		if text, ok := doc.Text(s.path); ok {
			k.New = &text
		}
		out = append(out, k)
	}
	return out, nil
}

// write edits the file, anew if it changes meanwhile.
func (f *File) write(ctx context.Context, j *journal, e *edit, d *Done) error {
	for range maxTries {
		before := f.before
		if f.Make {
			before = nil
		}
		testOnlyBeforeSwap(f.Path)
		err := f.client.Swap(ctx, f.Path, before, f.after)
		if err == nil {
			d.Files = append(d.Files, f.Path)
			return nil
		}
		if !errors.Is(err, clients.ErrChanged) {
			return err
		}
		if err := f.planAnew(j, e, d); err != nil || !f.Changes {
			return err
		}
	}
	return errKeepsChanging
}

// planAnew plans the edit of a file that has changed since: of the same entries, as
// far as they are what they were.
func (f *File) planAnew(j *journal, e *edit, d *Done) error {
	data, err := clients.ReadFile(f.Path)
	if err != nil {
		return err
	}
	doc, err := f.client.Parse(f.Path, data)
	if err != nil {
		return err
	}
	f.steps = slices.DeleteFunc(f.steps, func(s step) bool {
		_, there := doc.Text(s.path)
		if there == (s.old != "") && (!there || doc.Same(s.path, s.old)) {
			return false
		}
		key := s.path[len(s.path)-1]
		d.Left = append(d.Left, Left{Path: f.Path, Key: key, Why: "it was changed meanwhile: import again"})
		return true
	})
	f.before, f.Make = data, false
	if err := f.edit(doc); err != nil {
		return err
	}
	if e.Keys, err = f.changes(); err != nil {
		return err
	}
	e.Made = false
	if err := j.update(e, f.before, f.after); err != nil {
		return err
	}
	return j.write()
}
