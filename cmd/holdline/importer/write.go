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
	configedit "holdline/daemon/config/edit"
	"holdline/daemon/tool"
	"holdline/protocol/ownfile"
)

// Done is what [Plan.Write] or [Undo] did.
type Done struct {
	Files  []string `json:"files"`  // that were written
	Backup string   `json:"backup"` // directory of the journal and the files as they were; "" if nothing was done
	Left   []Left   `json:"left"`
	// Kept is the file with the text of entries that no import wrote and that were removed; "" if none was.
	Kept string `json:"kept,omitempty"`
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
var errKeepsChanging = fmt.Errorf("it keeps changing: %w", clients.ErrChanged)

// testOnlyBeforeSwap is called before a client's file is replaced.
var testOnlyBeforeSwap = func(path string) {}

// Write carries out the plan. now becomes the name of the journal.
//
// The journal is on the disk before the first file is edited. If holdline's own file
// cannot be edited, nothing is, and Write returns the error. Another file that cannot
// be edited is listed in [Done.Left]; the others are edited all the same.
func (p *Plan) Write(ctx context.Context, now time.Time) (Done, error) {
	d := Done{Files: []string{}, Left: []Left{}}
	files := p.changed()
	if len(files) == 0 {
		return d, nil
	}
	j, err := newJournal(p.o.State, now)
	if err != nil {
		return d, err
	}
	d.Backup = j.dir
	if err := p.record(j, files); err != nil {
		return d, err
	}
	for i, f := range files {
		if f == p.own {
			if err := p.swapOwn(ctx); err != nil {
				return d, errors.Join(err, j.remove())
			}
			d.Files = append(d.Files, f.Path)
		} else if err := f.writeEdit(ctx, j, j.Edits[i], &d); err != nil {
			d.Left = append(d.Left, Left{Path: f.Path, Why: err.Error()})
		}
	}
	slices.Sort(d.Files)
	return d, nil
}

// swapOwn edits holdline's file. Other users lose their access to it before it holds
// anything of a client's. If the edit fails, they get it back.
func (p *Plan) swapOwn(ctx context.Context) error {
	if p.losesMode() {
		if err := os.Chmod(p.Config, p.ownMode&^othersMode); err != nil {
			return err
		}
	}
	err := configedit.Swap(ctx, p.Config, p.own.before, p.own.after)
	if err != nil && p.losesMode() {
		err = errors.Join(err, os.Chmod(p.Config, p.ownMode))
	}
	return err
}

// record writes a journal of the edits of all files, in their order.
func (p *Plan) record(j *journal, files []*File) error {
	for _, f := range files {
		e := &edit{Client: f.Client, Path: f.Path, Made: f.Make, Dirs: ownfile.MissingDirs(filepath.Dir(f.Path))}
		if f == p.own && p.losesMode() {
			e.Mode = p.ownMode
		}
		j.Edits = append(j.Edits, e)
		if err := j.update(e, f); err != nil {
			return err
		}
	}
	return j.writeFile()
}

// changes returns the changes of the file's entries, as f.after has them. The new text
// is read back from the file: it is what an undo compares.
func (f *File) changes() ([]*keyChange, error) {
	doc, err := f.client.Parse(f.after)
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
		if text, ok := doc.Text(s.path...); ok {
			k.New = &text
		}
		out = append(out, k)
	}
	return out, nil
}

// writeEdit edits the file. If the file has changed since the plan was made, it plans
// the edit again and retries, at most maxTries times. What was left out is appended to
// d.Left.
func (f *File) writeEdit(ctx context.Context, j *journal, e *edit, d *Done) error {
	for range maxTries {
		before := f.before
		if f.Make {
			before = nil
		}
		testOnlyBeforeSwap(f.Path)
		err := f.client.Swap(ctx, f.Path, before, f.after)
		if err == nil {
			d.Files = append(d.Files, f.Path)
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
// far as they mean what they meant. The others are dropped from the plan and listed in
// d.Left. The journal is written again before the file may be replaced, since it must
// have the bytes that the edit replaces.
func (f *File) planAnew(j *journal, e *edit, d *Done) error {
	f.Make, e.Made = false, false
	doc := f.readDocument()
	if doc == nil {
		return errors.New(f.Why)
	}
	f.steps = slices.DeleteFunc(f.steps, func(s step) bool {
		text, there := doc.Text(s.path...)
		if text == s.old || there && doc.Same(s.path, s.old) {
			return false
		}
		key := s.path[len(s.path)-1]
		d.Left = append(d.Left, Left{Path: f.Path, Key: key, Why: "it was changed meanwhile: import again"})
		return true
	})
	if err := f.edit(doc); err != nil {
		return err
	}
	if err := j.update(e, f); err != nil {
		return err
	}
	return j.writeFile()
}

// Entry is an entry by which a client starts holdline.
type Entry struct {
	Client  string // its title
	Path    string // of the file
	Name    string
	Project string // directory in which the client uses it; "" is any
	Command string
	Args    []string
	Server  string        // of holdline's file; "" is all, or holdline's own tools
	Tools   []string      // that it is to list: those of its servers when they were tried; nil if they are not known
	Calls   []Call        // tools to be called, of its servers
	Limit   time.Duration // that its client gives the server to start; 0 if the client says none

	Era, Older string // of its client: see [clienttable.Speech]
}

// Call is a tool that is called to check a server.
type Call struct {
	Server string // of holdline's file
	Tool   string // as the entry lists it
}

// Written returns the entries that the import has written into clients' files, as the files
// have them now. Those in d.Left are not among them. The error says that a file cannot be
// read any more.
func (p *Plan) Written(d Done) ([]Entry, error) {
	var out []Entry
	for _, f := range p.changed() {
		if f == p.own || !slices.Contains(d.Files, f.Path) {
			continue
		}
		data, err := clients.ReadFile(f.Path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		doc, err := f.client.Parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		for i := range f.steps {
			e := clients.Find(doc, f.steps[i].path)
			if f.steps[i].fields == nil || e == nil {
				continue
			}
			one := Entry{
				Client: f.Title, Path: f.Path, Name: e.Name(), Project: e.Project, Era: f.client.Era, Older: f.client.Older,
			}
			one.Command, one.Args = e.CommandLine()
			for _, s := range f.Servers {
				if s.Verdict == Moves {
					one.describe(s, slices.Equal(s.path, e.Path), p.o.Aggregate)
				}
			}
			for _, c := range p.taken {
				if c.name == one.Server && c.server.Hosting.StartTimeout != "" {
					one.Limit = c.settings.StartTimeout
				}
			}
			out = append(out, one)
		}
	}
	return out, nil
}

// describe sets what the entry is to list of a server that has moved: mine says that it is
// the server's own entry, and all that it is the one for all servers.
func (e *Entry) describe(s *Server, mine, all bool) {
	switch {
	case mine:
		e.Server, e.Project = s.As, s.Project
		for _, name := range s.Tools {
			e.Tools = append(e.Tools, tool.ShownAlone(s.As, name))
		}
		if s.Call != "" {
			e.Calls = append(e.Calls, Call{s.As, tool.ShownAlone(s.As, s.Call)})
		}
	case all && s.Project == "":
		for _, name := range s.Tools {
			e.Tools = append(e.Tools, tool.Shown(s.As, name))
		}
		if s.Call != "" {
			e.Calls = append(e.Calls, Call{s.As, tool.Shown(s.As, s.Call)})
		}
	}
}
