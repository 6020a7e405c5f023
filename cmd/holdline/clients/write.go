package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"holdline/daemon/config"
)

// Done is what became of a plan, or of an undo.
type Done struct {
	Files  []string `json:"files"`  // that were written
	Backup string   `json:"backup"` // directory with the journal and the files as they were; "" if nothing was done
	Left   []Left   `json:"left"`
}

// Left is what was not done.
type Left struct {
	Path string `json:"path"`
	Key  string `json:"key,omitempty"` // "" is the file
	Why  string `json:"why"`
}

// tries is how often a file that changes under the edit is read again.
const tries = 5

// Write carries the plan out. What a file's state or its client keeps from
// being done is told as left, and keeps nothing else from being done.
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
	own, edits, err := p.record(j)
	if err != nil {
		return d, err
	}
	if own != nil {
		if err := p.swapOwn(ctx); err != nil {
			return d, errors.Join(err, j.remove())
		}
		d.Files = append(d.Files, p.Config)
	}
	for _, f := range p.Files { // in their order
		e := edits[f]
		if e == nil {
			continue
		}
		if err := p.write(ctx, j, f, e, &d); err != nil {
			d.Left = append(d.Left, Left{Path: f.Path, Why: err.Error()})
		}
	}
	slices.Sort(d.Files)
	return d, nil
}

// swapOwn edits holdline's file, which others cannot read before anything of a
// client's is in it.
func (p *Plan) swapOwn(ctx context.Context) error {
	if p.closes() {
		if err := os.Chmod(p.Config, p.mode&^others); err != nil {
			return err
		}
	}
	err := config.Swap(ctx, p.Config, p.before, p.after)
	if err != nil && p.closes() {
		err = errors.Join(err, os.Chmod(p.Config, p.mode))
	}
	return err
}

// record writes down all that is to be done.
func (p *Plan) record(j *journal) (own *edit, edits map[*File]*edit, err error) {
	edits = map[*File]*edit{}
	if len(p.adds) > 0 {
		own = &edit{Path: p.Config, Made: p.made, Dirs: missing(p.Config)}
		if p.closes() {
			own.Mode = p.mode
		}
		for _, a := range p.adds {
			text := string(a.text)
			own.Keys = append(own.Keys, &keyChange{Path: []string{"mcpServers", a.name}, New: &text})
		}
		if err := j.plan(own, p.before, p.after); err != nil {
			return nil, nil, err
		}
	}
	for _, f := range p.Files {
		if !f.Changes {
			continue
		}
		e := &edit{Client: f.Client, Path: f.Path, Made: f.Make, Dirs: missing(f.Path)}
		if e.Keys, err = f.changes(); err != nil {
			return nil, nil, err
		}
		if err := j.plan(e, f.before, f.after); err != nil {
			return nil, nil, err
		}
		edits[f] = e
	}
	return own, edits, j.write()
}

// plan adds an edit to the journal, and keeps the file as it is.
func (j *journal) plan(e *edit, before, after []byte) error {
	j.Edits = append(j.Edits, e)
	e.Before, e.After = sum(before), sum(after)
	if e.Made {
		return nil
	}
	e.Backup = strconv.Itoa(len(j.Edits))
	return j.keep(e.Backup, before)
}

// changes are those of the file's entries.
func (f *File) changes() ([]*keyChange, error) {
	doc, err := f.source.client.parse(f.Path, f.after)
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
		if text, ok := doc.text(s.path); ok {
			k.New = &text
		}
		out = append(out, k)
	}
	return out, nil
}

// write makes the edit of one file, again if the file changes meanwhile.
func (p *Plan) write(ctx context.Context, j *journal, f *File, e *edit, d *Done) error {
	for range tries {
		before := f.before
		if f.Make {
			before = nil
		}
		err := swap(ctx, f.source.client, f.Path, before, f.after)
		if err == nil {
			d.Files = append(d.Files, f.Path)
			return nil
		}
		if !errors.Is(err, config.ErrChanged) {
			return err
		}
		if err := p.again(j, f, e, d); err != nil || !f.Changes {
			return err
		}
	}
	return fmt.Errorf("it changes all the time: %w", config.ErrChanged)
}

// again plans the edit of a file that is another by now: of the same entries,
// as far as they are what they were.
func (p *Plan) again(j *journal, f *File, e *edit, d *Done) error {
	data, err := readFile(f.Path)
	if err != nil {
		return err
	}
	doc, err := f.source.client.parse(f.Path, data)
	if err != nil {
		return err
	}
	f.steps = slices.DeleteFunc(f.steps, func(s step) bool {
		_, there := doc.text(s.path)
		if there == (s.old != "") && (!there || doc.same(s.path, s.old)) {
			return false
		}
		d.Left = append(d.Left, Left{Path: f.Path, Key: s.path[len(s.path)-1], Why: "it was changed meanwhile: import again"})
		return true
	})
	f.before, f.Make = data, false
	if err := p.edit(f, doc); err != nil {
		return err
	}
	keys, err := f.changes()
	if err != nil {
		return err
	}
	e.Keys, e.Made, e.Before, e.After = keys, false, sum(f.before), sum(f.after)
	e.Backup = strconv.Itoa(1 + slices.Index(j.Edits, e))
	if err := j.keep(e.Backup, f.before); err != nil {
		return err
	}
	return j.write()
}
