package importer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"holdline/cmd/holdline/clients"
	"holdline/daemon/config"
)

// Options say where to look and what is wanted.
type Options struct {
	clients.Places

	Config string // holdline's configuration file
	State  string // holdline's state directory
	// Command starts holdline. It is an absolute path: the programs that read the
	// entries may have another PATH.
	Command string
	Environ []string // in which servers are to run; variables that they miss in it become notes

	From      []string // names of clients; nil is all that are found
	Project   bool     // files of the project of Cwd, and in git work trees, too
	Aggregate bool     // one entry for all servers instead of one for each
	Scope     string   // of the servers that move; "" is the default

	// Try starts a server as the daemon would, and returns why it does not work. A
	// few are tried at the same time. With nil all servers are taken to work.
	Try    func(ctx context.Context, s *config.Settings, root string) error
	Trying func(servers int) // called before servers are tried; may be nil
}

// Verdict is what is to become of a server.
type Verdict string

// The verdicts.
const (
	Moves Verdict = "moves" // into holdline's file
	Stays Verdict = "stays" // as it is
	Ours  Verdict = "ours"  // it starts holdline already
)

// Plan is what an import would do. Its exported fields hold no secret.
type Plan struct {
	Files   []*File  `json:"files"`
	Servers []string `json:"servers"` // names that holdline's file gets, in its order
	Config  string   `json:"config"`  // holdline's file

	o       *Options
	own     *File       // holdline's configuration file
	ownMode fs.FileMode // of that file; 0 if it does not exist
	ownTree string      // git work tree that this file is in, or ""
	taken   []*candidate
	// tries are the servers that are to move, by the JSON that holdline's file gets:
	// two entries that say the same are started once. failures says by the same key why
	// a server does not work.
	tries    map[string]trial
	failures map[string]string
}

// trial is a server that is to be started, to see whether it works.
type trial struct {
	settings config.Settings
	root     string // of its project; "" is that of the current directory
}

// maxTriesAtOnce bounds the servers that are started at the same time.
const maxTriesAtOnce = 4

// Look reads all configurations and returns what is to become of them. It changes
// nothing.
//
// If [Options.Try] is set, Look starts each server that is to move, a few at the same
// time, and blocks until all have answered or failed. Then it plans again: a server
// that does not work stays where it is, and its name is free for another one. The
// error is the cause of ctx if that is done, or says which configuration cannot be
// read.
func Look(ctx context.Context, o Options) (*Plan, error) {
	p, err := makePlan(o, nil)
	if err != nil || o.Try == nil || len(p.tries) == 0 {
		return p, err
	}
	if o.Trying != nil {
		o.Trying(len(p.tries))
	}
	var mu sync.Mutex
	failures := map[string]string{} // guarded by mu
	var g errgroup.Group
	g.SetLimit(maxTriesAtOnce)
	for key, one := range p.tries {
		g.Go(func() error {
			if err := o.Try(ctx, &one.settings, one.root); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures[key] = err.Error()
			}
			return context.Cause(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if len(failures) == 0 {
		return p, nil
	}
	return makePlan(o, failures)
}

// makePlan plans the import. failures has the reasons why servers do not work, by the
// key of Plan.tries; it is nil if none was started.
func makePlan(o Options, failures map[string]string) (*Plan, error) {
	p := &Plan{
		o: &o, Config: o.Config, Files: []*File{}, Servers: []string{}, tries: map[string]trial{}, failures: failures,
	}
	if err := p.readOwn(); err != nil {
		return nil, err
	}
	for _, f := range clients.Files(o.Places, o.From) {
		p.planFile(f)
	}
	return p, p.planOwn()
}

// readOwn reads holdline's own file into p.own. The servers in it come first in
// p.taken, so that they keep their names. A file that does not exist is an empty one;
// one that is not valid is an error, since nothing could be added to it.
func (p *Plan) readOwn() error {
	p.own = &File{Path: p.Config, client: &clients.Holdline}
	var err error
	if p.own.before, err = clients.ReadFile(p.Config); errors.Is(err, fs.ErrNotExist) {
		p.own.Make = true
	} else if err != nil {
		return fmt.Errorf("reading holdline's configuration %s: %w", p.Config, err)
	}
	c, err := config.Parse(p.Config, p.own.before)
	if err != nil {
		return err
	}
	if info, err := os.Stat(p.Config); err == nil {
		p.ownMode = info.Mode().Perm()
	}
	p.ownTree = clients.WorkTree(p.Config)
	for name := range c.Servers {
		s, _ := c.Server(name)
		p.taken = append(p.taken, &candidate{name: name, settings: s, fixed: true, by: "holdline"})
	}
	return nil
}

// planOwn plans the new text of holdline's file: the servers that move are added to
// it, in the order in which they were found. It checks that the daemon will accept the
// result. Call it after the plans for all other files.
func (p *Plan) planOwn() error {
	for _, c := range p.taken {
		if !c.fixed {
			p.Servers = append(p.Servers, c.name)
			p.own.steps = append(p.own.steps, step{
				path: []string{clients.Holdline.Key, c.name}, fields: c.server.fields(),
			})
		}
	}
	doc, err := clients.Holdline.Parse(p.own.before)
	if err == nil {
		err = p.own.edit(doc)
	}
	if err == nil {
		_, err = config.Parse(p.Config, p.own.after)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.Config, err)
	}
	return nil
}

// othersMode has the permissions of other users. They are removed from holdline's
// file when servers move into it: their values may be secret.
const othersMode fs.FileMode = 0o077

// losesMode reports whether the import removes permissions of other users from
// holdline's file.
func (p *Plan) losesMode() bool { return p.own.Changes && p.ownMode&othersMode != 0 }

// changed returns the files that are edited. Holdline's own comes first, since the
// entries of the others start its servers.
func (p *Plan) changed() []*File {
	return slices.DeleteFunc(append([]*File{p.own}, p.Files...), func(f *File) bool { return !f.Changes })
}

// Empty reports whether there is nothing to write.
func (p *Plan) Empty() bool { return len(p.changed()) == 0 }

// Connected reports whether an entry of the file starts holdline.
func (f *File) Connected() bool {
	return slices.ContainsFunc(f.Servers, func(s *Server) bool { return s.Verdict == Ours })
}

// Gone returns the paths by which entries of the file start holdline and at which no
// file is. Relative names are not among them: the client looks for these on its PATH.
func (f *File) Gone() []string {
	var out []string
	for _, s := range f.Servers {
		if filepath.IsAbs(s.program) && !slices.Contains(out, s.program) {
			if _, err := os.Stat(s.program); errors.Is(err, fs.ErrNotExist) {
				out = append(out, s.program)
			}
		}
	}
	return out
}
