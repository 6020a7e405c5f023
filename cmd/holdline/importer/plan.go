package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"holdline/cmd/holdline/clients"
	programs "holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/expand"
	"holdline/daemon/config/resolve"
	"holdline/daemon/redact"
	"holdline/daemon/spelling"
	"holdline/protocol/project"
)

// Options say where to look and what is wanted.
type Options struct {
	clients.Places

	Config string // holdline's configuration file
	// OtherFile is set if the daemons that clients start read another one.
	OtherFile bool
	State     string // holdline's state directory
	// Command starts holdline. It is an absolute path: the programs that read the
	// entries may have another PATH.
	Command string
	Environ []string // of the clients; variables that servers miss become notes
	// Daemon is the environment that servers will have, with the variables that the user has kept; nil if it is not
	// known. Then entries are compared as they are written.
	Daemon []string
	// Path is the PATH on which programs of servers will be looked up; "" is that of Daemon, or else of Environ.
	Path string

	From      []string // names of clients; nil is all that are found
	Project   bool     // files of the project of Cwd, and in git work trees, too
	Aggregate bool     // one entry for all servers instead of one for each
	Scope     string   // of the servers that move; "" is what is known of each of them

	Keep []string // names of variables that clients pass on, and that servers which move keep

	// Skip has names of servers that stay, as the clients' files or holdline's have them.
	Skip []string

	// Try starts a server as the daemon would, and says what it has shown. A server
	// that does not work stays. root is that of its project, or "". Several goroutines
	// call Try. If it is nil, servers are not tried.
	Try func(ctx context.Context, s *config.Settings, root string) Trial
	// MayTry is called before servers of the project's own files are started, whose commands whoever wrote
	// the project has chosen. If it returns false they are not tried. If it is nil they are.
	MayTry func(ctx context.Context, commands []Command) (bool, error)
	// Trying is called when the start of a server begins, and when it has ended. It may
	// be nil, and is called by the goroutine of Look.
	Trying func(TryEvent)

	codexKeys []string // see [codexKeys]
}

// Command is how a server of a project's own file starts. It holds no secret that can be told from its form.
type Command struct {
	Name string   // of the server
	Runs []string // the command with its arguments, or the address
	Env  []string // names of the variables that the file sets
}

// Trial is what the start of a server has shown.
type Trial struct {
	Tools []string // names; nil if they are not known
	Call  string   // one of these, which can be called to check the server; "" for none
	Err   error    // why it does not work
	Login bool     // it needs a login; Err is set, too
	Late  bool     // it did not answer in time; Err is set, too
	Runs  []string // the program that its launcher has started, with its arguments; nil if that is not known
}

// TryEvent says that the start of a server has begun or ended.
type TryEvent struct {
	Name  string
	Trial *Trial // nil if it has begun
	Of    int    // how many servers are tried
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
	// Left are names of variables that clients pass on to servers that move, and that these will not have:
	// nothing is known of them. See [Options.Keep].
	Left    []string `json:"left,omitempty"`
	Summary Summary  `json:"summary"`

	o       *Options
	own     *File       // holdline's configuration file
	ownMode fs.FileMode // of that file; 0 if it does not exist
	ownTree string      // git work tree that this file is in, or ""
	taken   []*candidate
	skipped []string // names in holdline's file of servers that stay by them
	// tries are the servers that are to move, by [trialKey]:
	// two entries that say the same are started once. trials has by the same key what
	// the start of a server has shown; it is nil if none was started.
	tries  map[string]attempt
	trials map[string]Trial
	// untried is set if a server moves that was not started though others were: see [Options.MayTry].
	untried bool
}

// attempt is a server that is to be started, to see whether it works.
type attempt struct {
	settings config.Settings
	root     string // of its project; "" is that of the current directory
	foreign  bool   // it is in files of the project alone
	from     string // title of its client
	// passed are the names of variables that no entry names: the client passes its servers its own environment.
	passed []string
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
	if err == nil {
		err = p.checkSkip()
	}
	if err != nil || o.Try == nil || len(p.tries) == 0 {
		return p, err
	}
	if commands := p.foreign(); len(commands) > 0 && o.MayTry != nil {
		may, err := o.MayTry(ctx, commands)
		if err != nil {
			return nil, err
		}
		if !may {
			maps.DeleteFunc(p.tries, func(_ string, one attempt) bool { return one.foreign })
		}
	}
	trials, err := p.try(ctx)
	if err != nil {
		return nil, err
	}
	return makePlan(o, trials)
}

// foreign returns the servers that are to be tried and are in files of the project alone, by their names.
func (p *Plan) foreign() (commands []Command) {
	for _, one := range p.tries {
		if !one.foreign {
			continue
		}
		s := &one.settings
		c := Command{Name: printable(s.Name), Runs: []string{redact.URL(s.URL)}}
		if s.URL == "" {
			c.Runs = redact.Args(append([]string{s.Command}, s.Args...))
		}
		for name := range s.Env {
			c.Env = append(c.Env, name)
		}
		slices.Sort(c.Env)
		commands = append(commands, c)
	}
	slices.SortFunc(commands, func(a, b Command) int { return cmp.Compare(a.Name, b.Name) })
	return commands
}

// Variable is a variable that servers which are to move refer to.
type Variable struct {
	Name    string
	Servers []string // whose entries name it, sorted
	// Passed are the other servers that get it, and Clients those that pass it on to them with their own
	// environment; sorted.
	Passed, Clients []string
}

// Variables returns the variables that the servers which are to move refer to, by their names. One that a client
// passes on, and whose present value the new entry has as its default, is not among them: it is not lost.
func (p *Plan) Variables() []Variable {
	value, all := expand.Lookup(p.o.Environ), map[string]*Variable{}
	add := func(list *[]string, word string) {
		if at, there := slices.BinarySearch(*list, word); !there {
			*list = slices.Insert(*list, at, word)
		}
	}
	for _, one := range p.tries {
		s := one.settings
		s.Env = maps.Clone(s.Env)
		maps.DeleteFunc(s.Env, func(name string, text redact.Secret) bool {
			now, _ := value(name)
			return now != "" && text.Reveal() == "${"+name+":-"+now+"}"
		})
		for _, name := range resolve.References(&s) {
			if all[name] == nil {
				all[name] = &Variable{Name: name}
			}
			if slices.Contains(one.passed, name) {
				add(&all[name].Passed, s.Name)
				add(&all[name].Clients, one.from)
			} else {
				add(&all[name].Servers, s.Name)
			}
		}
	}
	var list []Variable
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, *all[name])
	}
	return list
}

// SkipError says that a name of [Options.Skip] is that of no server.
type SkipError struct {
	Name  string
	Known []string // names of servers that can stay
}

// Error names the servers that there are.
func (s *SkipError) Error() string {
	known := cmp.Or(strings.Join(s.Known, ", "), "none")
	if near := spelling.Nearest(s.Name, s.Known); near != "" {
		known += "; did you mean " + near + "?"
	}
	return fmt.Sprintf("no server %q was found; these are: %s", s.Name, known)
}

// CanStay returns the sorted names of the servers that are not holdline's own entries: those
// that [Options.Skip] can name.
func (p *Plan) CanStay() []string {
	var known []string
	for _, f := range p.Files {
		for _, s := range f.Servers {
			if s.Verdict != Ours {
				known = append(known, printable(s.Name))
			}
		}
	}
	slices.Sort(known)
	return slices.Compact(known)
}

// checkSkip returns a [*SkipError] if a name of [Options.Skip] is that of no server. It does not
// know the servers of a file that cannot be read; then it lets every name pass.
func (p *Plan) checkSkip() error {
	if p.Summary.Broken > 0 {
		return nil
	}
	known := p.CanStay()
	for _, name := range p.o.Skip {
		taken := slices.ContainsFunc(p.taken, func(c *candidate) bool { return c.name == name })
		_, found := slices.BinarySearch(known, name)
		if !found && !taken && !slices.Contains(p.skipped, name) {
			return &SkipError{name, known}
		}
	}
	return nil
}

// try starts the servers that are to move and returns what they have shown. The error is the
// cause of ctx.
func (p *Plan) try(ctx context.Context) (map[string]Trial, error) {
	type event struct {
		key string
		TryEvent
	}
	events := make(chan event)
	var g errgroup.Group
	g.SetLimit(maxTriesAtOnce)
	go func() { // it ends with the tries, whose events are all received below
		defer close(events)
		for key, one := range p.tries {
			g.Go(func() error {
				begun := TryEvent{Name: one.settings.Name, Of: len(p.tries)}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				events <- event{key, begun}
				ended := p.o.Try(ctx, &one.settings, one.root)
				events <- event{key, TryEvent{Name: begun.Name, Trial: &ended, Of: begun.Of}}
				return nil
			})
		}
		_ = g.Wait() // its error is that of ctx
	}()
	trials := map[string]Trial{}
	for e := range events {
		if e.Trial != nil {
			trials[e.key] = *e.Trial
		}
		if p.o.Trying != nil {
			p.o.Trying(e.TryEvent)
		}
	}
	return trials, context.Cause(ctx)
}

// makePlan plans the import. trials has what the start of the servers has shown, by the
// key of Plan.tries; it is nil if none was started.
func makePlan(o Options, trials map[string]Trial) (*Plan, error) {
	o.codexKeys = codexKeys(o.Places)
	p := &Plan{
		o: &o, Config: o.Config, Files: []*File{}, Servers: []string{}, tries: map[string]attempt{}, trials: trials,
	}
	if err := p.readOwn(); err != nil {
		return nil, err
	}
	for _, f := range clients.Files(o.Places, o.From) {
		p.planFile(f)
	}
	p.setScopes()
	if err := p.planOwn(); err != nil {
		return p, err
	}
	p.summarize()
	return p, nil
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
	c, err := config.ParseForUse(p.Config, p.own.before)
	if err != nil {
		return err
	}
	if info, err := os.Stat(p.Config); err == nil {
		p.ownMode = info.Mode().Perm()
	}
	p.ownTree = project.WorkTree(p.Config)
	for name := range c.Servers {
		s, _ := c.Server(name)
		p.taken = append(p.taken, &candidate{name: name, settings: s, fixed: true, by: "holdline"})
	}
	return nil
}

// setScopes says of each server that moves which scope it gets. Call it after the plans for all files: a server can stand
// for entries of several of them, and each can have a reason against a process that more agents share.
func (p *Plan) setScopes() {
	for _, f := range p.Files {
		for _, s := range f.Servers {
			if s.Verdict != Moves {
				continue
			}
			c := p.candidate(s.As)
			s.Scope, s.ScopeWhy = c.settings.Scope, c.server.scopeWhy
			if c.fixed {
				s.ScopeWhy = "as in Holdline's configuration"
			}
		}
	}
}

// planOwn plans the new text of holdline's file: the servers that move are added to
// it, in the order in which they were found. It checks that the daemon will accept the
// result. Call it after the plans for all other files.
func (p *Plan) planOwn() error {
	for _, c := range p.taken {
		if !c.fixed {
			p.Servers = append(p.Servers, c.name)
			p.own.steps = append(p.own.steps, step{
				path: []string{clients.Holdline.Key, c.name}, fields: c.server.written(),
			})
		}
	}
	doc, err := clients.Holdline.Parse(p.own.before)
	if err == nil {
		err = p.own.edit(doc)
	}
	if err == nil {
		err = config.CheckEdit(p.Config, p.own.before, p.own.after)
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

// candidate returns the server of a name in holdline's file; there must be one.
func (p *Plan) candidate(name string) *candidate {
	return p.taken[slices.IndexFunc(p.taken, func(c *candidate) bool { return c.name == name })]
}

// Connected reports whether an entry of the file starts holdline.
func (f *File) Connected() bool {
	return slices.ContainsFunc(f.Servers, func(s *Server) bool { return s.Verdict == Ours })
}

// Dangling returns the names of the servers that entries of the file start, and that holdline's file does not have.
func (f *File) Dangling() (names []string) {
	for _, s := range f.Servers {
		if s.Dangling && !slices.Contains(names, s.offers) {
			names = append(names, s.offers)
		}
	}
	return names
}

// Sees reports whether an entry of the file starts holdline for that server, or for all.
func (f *File) Sees(server string) bool {
	return slices.ContainsFunc(f.Servers, func(s *Server) bool {
		return s.Verdict == Ours && (s.offers == "" || s.offers == server)
	})
}

// ByAddress reports whether a server that moves is reached by its address: no agent starts a
// copy of it.
func (s *Server) ByAddress() bool { return s.hosted.Transport == config.HTTP }

// HasProgram reports whether the program of a server that moves is there, or on path, which is
// the daemon's PATH. A program that is known only at its start, such as one with a variable in
// its name, counts as there.
func (s *Server) HasProgram(path string) bool {
	name := s.hosted.Command
	if strings.Contains(name, "/") && !filepath.IsAbs(name) || strings.ContainsAny(name, "$~") {
		return true
	}
	if _, own := s.hosted.Env["PATH"]; own {
		return true
	}
	_, err := programs.LookPath(name, path)
	return err == nil
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
