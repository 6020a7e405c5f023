package importer

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdline/cmd/holdline/clients"
	"holdline/daemon/config"
)

// File is the plan for one configuration file of a client.
type File struct {
	Client  string    `json:"client"`
	Title   string    `json:"title"`
	Path    string    `json:"path"`
	Project string    `json:"project,omitempty"` // directory that it is for
	Make    bool      `json:"make,omitempty"`    // it does not exist, and is created
	Why     string    `json:"why,omitempty"`     // why it is not edited
	Servers []*Server `json:"servers"`
	// Consult is the name of the entry that is added for holdline's own tools, or for
	// all servers; "" if none is.
	Consult string `json:"consult,omitempty"`
	Changes bool   `json:"changes"`
	// Diff has a line that begins with - for each entry that goes, and one that begins
	// with + for what replaces it.
	Diff []string `json:"diff"`

	// Broken is set if the file cannot be read, or is not what its client reads.
	Broken bool `json:"broken,omitempty"`
	// NeedsProject is set if the file, or holdline's own, is edited only with
	// [Options.Project].
	NeedsProject bool `json:"-"`

	client *clients.Client
	// before and after are the bytes of the file as it was read and as it is to be.
	// before is nil if the file does not exist.
	before []byte
	after  []byte
	steps  []step
}

// Server is the plan for one entry of a file.
type Server struct {
	Name    string   `json:"name"`
	Project string   `json:"project,omitempty"` // the only directory in which it is used
	Verdict Verdict  `json:"verdict"`
	As      string   `json:"as,omitempty"`  // its name in holdline's file
	Why     string   `json:"why,omitempty"` // why it stays, or has another name
	Notes   []string `json:"notes,omitempty"`
	Runs    string   `json:"runs,omitempty"` // its program, or the host of its address
	Args    int      `json:"args,omitempty"` // how many; they may be secret
	Env     []string `json:"env,omitempty"`  // names
	Headers []string `json:"headers,omitempty"`
	// Differs says in which respects the server differs from the one that has its name in
	// holdline's file.
	Differs []string `json:"differs,omitempty"`
	Login   bool     `json:"login,omitempty"` // somebody has to log in before it can be used
	Late    bool     `json:"-"`               // it stays since it did not answer in time
	Untried bool     `json:"-"`               // it moves though it was not started: see [Options.MayTry]
	// Dangling is set if the entry starts this holdline for a server that its file does not have. It is removed
	// if the client's file is edited.
	Dangling bool     `json:"dangling,omitempty"`
	Tools    []string `json:"tools,omitempty"` // that its start has shown
	Call     string   `json:"call,omitempty"`  // one of these, which is called once to check the server
	// Scope says which agents will share a process of it, and ScopeWhy why, for people.
	Scope    string `json:"scope,omitempty"`
	ScopeWhy string `json:"scope_why,omitempty"`

	path    []string
	program string          // that starts holdline
	offers  string          // the server for which it starts that; "" is all
	hosted  config.Settings // as holdline's file is to have it, if it moves
	key     string          // in Plan.tries; "" if it cannot move
	fails   bool            // it stays since its start has failed
}

// NotStarted is the note of a server that is not tried though others are.
const NotStarted = "not started yet: its command is this project's"

// step is one edit of a file: the entry at a path gets these fields, or is removed.
type step struct {
	path   []string
	fields []clients.Field // nil removes the entry
	old    string          // the entry as the file has it; "" if there is none
}

// staysError says why a server, or a file, is left as it is.
type staysError struct{ why string }

func (s *staysError) Error() string { return s.why }

// stay returns a [staysError].
func stay(format string, args ...any) error { return &staysError{fmt.Sprintf(format, args...)} }

// notEdited is why the servers of a file that is not edited stay.
const notEdited = "its file is not edited"

// planFile reads one file and plans its edits. It appends the plan to p.Files in any
// case.
//
// A project's file and one in a git work tree are shared with other people, so they
// are edited only with [Options.Project]. A read-only file is not edited at all:
// whatever made it has to change it. Such a file has a Why, and its servers are listed
// nevertheless.
//
// If the edits turn out to be impossible, the names that the file's servers have taken
// in holdline's file are free again.
func (p *Plan) planFile(s clients.File) {
	f := &File{
		Client: s.Client.Name, Title: s.Client.Title, Path: s.Path, Project: s.Project, Make: s.Missing,
		Servers: []*Server{}, Diff: []string{}, client: s.Client,
		NeedsProject: s.Project != "" || s.Tree != "" || p.ownTree != "",
	}
	p.Files = append(p.Files, f)
	switch {
	case s.Twin != "":
		f.Why = "it is the same file as " + s.Twin
		return
	case s.Project != "" && !p.o.Project:
		f.Why = "it is a project's file: --project has it imported"
	case s.Tree != "" && !p.o.Project:
		f.Why = "it lies in the git work tree " + s.Tree + ": --project has it imported"
	}
	doc := f.readDocument()
	if doc == nil {
		return
	}
	if info, err := os.Stat(s.Path); err == nil && info.Mode().Perm()&0o200 == 0 && f.Why == "" {
		f.Why = fmt.Sprintf("it is read-only (mode %04o): whatever made it has to change it", info.Mode().Perm())
	}
	known := len(p.taken)
	p.planServers(f, doc)
	if f.Why == "" && s.Project == "" && (!s.Further || len(f.Servers) > 0) {
		p.planOwnEntry(f, doc)
	}
	if err := f.edit(doc); err != nil {
		f.giveUp(err)
		p.taken = p.taken[:known]
	}
}

// giveUp changes the plan for a file whose edits are impossible: err says why the file
// is not edited, and the servers that would have moved stay.
func (f *File) giveUp(err error) {
	f.Why, f.Consult, f.Changes = err.Error(), "", false
	f.Diff, f.steps, f.after = []string{}, nil, f.before
	for _, s := range f.Servers {
		if s.Verdict == Moves {
			s.Verdict, s.As, s.Why, s.Scope, s.ScopeWhy = Stays, "", notEdited, "", ""
		}
	}
}

// readDocument reads the file into f.before and parses it. A file that is to be created is
// empty. If the file cannot be read or parsed, readDocument returns nil, sets Broken, and sets
// Why.
func (f *File) readDocument() clients.Document {
	var err error
	if !f.Make {
		f.before, err = clients.ReadFile(f.Path)
	}
	var doc clients.Document
	if err == nil {
		doc, err = f.client.Parse(f.before)
	}
	if err != nil {
		f.Why, f.Broken = err.Error(), true
		return nil
	}
	return doc
}

// edit makes the planned edits in memory: it sets f.after, f.Changes and f.Diff, and
// for each step what the entry was. doc must be the document of f.before; edit changes
// it.
//
// It fails for an entry where no table can be, and if the result could not be read
// again.
func (f *File) edit(doc clients.Document) error {
	f.Diff = []string{}
	for i := range f.steps {
		s := &f.steps[i]
		s.old, _ = doc.Text(s.path...)
		f.Diff = append(f.Diff, s.diff(doc)...)
		if s.fields == nil {
			doc.Remove(s.path...)
		} else if err := doc.Start(s.path, s.fields); err != nil {
			return stay("it has no place for an entry %s", s.path[len(s.path)-1])
		}
	}
	if f.after = f.before; len(f.steps) > 0 {
		f.after = doc.Bytes()
		if _, err := f.client.Parse(f.after); err != nil {
			return stay("it would not be valid any more")
		}
	}
	f.Changes = !bytes.Equal(f.before, f.after)
	return nil
}

// planServers decides what becomes of each entry of a file, and appends a [Server] for
// each. Entries that start holdline already have nothing to move.
func (p *Plan) planServers(f *File, doc clients.Document) {
	for _, e := range doc.Entries() {
		if e.Project == "" {
			e.Project = f.Project
		}
		s := &Server{Name: e.Name(), Project: e.Project, path: e.Path}
		f.Servers = append(f.Servers, s)
		if offers, ok := e.StartsHoldline(); ok {
			s.Verdict, s.offers = Ours, offers
			s.program, _ = e.CommandLine()
			if s.Dangling = p.dangles(offers) && !p.o.isElsewhere(f.client, &e); s.Dangling && f.Why == "" {
				f.steps = append(f.steps, step{path: s.path})
			}
			continue
		}
		s.describe(&e)
		if err := p.planServer(f, s, &e); err != nil {
			s.Verdict, s.As, s.Why, s.Notes = Stays, "", err.Error(), nil
		}
	}
}

// dangles reports whether entries that start holdline for a server find none. Those of another user's
// configuration file than the usual one are not known.
func (p *Plan) dangles(server string) bool {
	return server != "" && server != clients.OwnEntry && !p.o.OtherFile &&
		!slices.ContainsFunc(p.taken, func(c *candidate) bool { return c.fixed && c.name == server })
}

// planServer plans the move of a server: it chooses the server's name in holdline's
// file, records the server for the trial start, and adds a step that makes the
// client's entry start holdline. With [Options.Aggregate] the step removes the entry
// instead. The error says why the server stays; then nothing was planned.
func (p *Plan) planServer(f *File, s *Server, e *clients.Entry) error {
	if f.Why != "" {
		return stay(notEdited)
	}
	made, notes, left, err := translate(f.client, p.o, e)
	if err != nil {
		return err
	}
	if p.o.Aggregate {
		if err := refuseLimits(e.Keys); err != nil {
			return err
		}
	}
	if p.ownTree != "" && !p.o.Project {
		return stay("holdline's own file lies in the git work tree %s: --project has it moved there", p.ownTree)
	}
	if slices.Contains(p.o.Skip, s.Name) {
		return stay("it is to stay")
	}
	s.key = trialKey(made)
	t, tried := p.trials[s.key]
	s.fails, s.Late = t.Err != nil && !t.Login, t.Late
	settings, err := made.setScope(p.o, t.Runs)
	if err != nil {
		return err
	}
	switch {
	case t.Login && settings.LogsIn():
		made.logIn = true
	case t.Login:
		s.Login = true
		return stay("%v, which Holdline cannot give yet", t.Err)
	case t.Err != nil:
		return stay("it does not start: %v", t.Err)
	}
	if p.trials != nil && !tried {
		p.untried = true
		s.Untried = true
		notes = append(notes, NotStarted)
	}
	one := attempt{
		settings: made.withPassed(settings), // as it will be written
		foreign:  f.Project != "", from: f.Title, passed: slices.Sorted(maps.Keys(made.passed)),
	}
	if other, there := p.tries[s.key]; there && !other.foreign {
		one.foreign = false // you have the same server in a file of your own
	}
	one.settings.Name = s.Name // for people
	if len(made.Hosting.Projects) > 0 {
		one.root = made.Hosting.Projects[0]
	}
	step := step{path: s.path}
	known := len(p.taken)
	s.As = p.chooseName(f, s, &made, settings)
	if s.Login = made.logIn; s.Login {
		notes = append(notes, "log in once: holdline servers login "+s.As)
	}
	if slices.Contains(p.o.Skip, s.As) {
		p.taken, p.skipped = p.taken[:known], append(p.skipped, s.As)
		return stay("it is to stay")
	}
	if !p.o.Aggregate {
		step.fields = p.withEnvironment(f, f.client.StartingFields(p.command(f), "--server", s.As))
	}
	for _, name := range left {
		if !slices.Contains(p.Left, name) {
			p.Left = append(p.Left, name)
		}
	}
	s.Verdict, s.Notes, s.Tools, s.Call, s.hosted = Moves, notes, t.Tools, t.Call, settings
	p.tries[s.key] = one
	f.steps = append(f.steps, step)
	return nil
}

// trialKey returns the key of a server in Plan.tries: what decides whether it works. Its scope and timeouts do
// not, and the type only repeats whether it has a command or an address.
func trialKey(s server) string {
	s.Type, s.Hosting.Scope, s.Hosting.Timeout, s.Hosting.StartTimeout = "", "", "", ""
	return string(clients.Object(s.fields()))
}

// limiting are keys by which a client uses only some tools of a server. One entry for
// all servers cannot say that.
var limiting = []string{
	"disabled_tools", "disabledTools", "enabled_tools", "enabledTools", "excludeTools", "includeTools",
}

// refuseLimits returns an error if the client uses only some tools of a server: with
// one entry for all servers the client would use all of them.
func refuseLimits(keys map[string]any) error {
	for _, key := range limiting {
		if keys[key] != nil {
			return stay("%s cannot be kept in one entry for all servers", key)
		}
	}
	// GitHub Copilot CLI has a list of tools, of which * is all. Other clients have something else there.
	if list, ok := keys["tools"].([]any); ok && !slices.Contains(list, any("*")) {
		return stay("its list of tools cannot be kept in one entry for all servers")
	}
	return nil
}

// command returns what starts holdline in an entry of a file. In a file that people
// share by git it is the bare name, since a path of this machine means nothing
// elsewhere.
func (p *Plan) command(f *File) string {
	if f.Project != "" {
		return "holdline"
	}
	return p.o.Command
}

// describe sets what people know a server by, without any value that may be secret:
// the last element of the program's path, the host of an address, numbers, and names.
// The first word of a command may be an assignment such as TOKEN=…, as a shell takes
// it; then no part of it is shown.
func (s *Server) describe(e *clients.Entry) {
	if program, args := e.CommandLine(); program != "" {
		word, _, _ := strings.Cut(strings.TrimSpace(program), " ")
		s.Runs, s.Args = filepath.Base(word), len(args)
		if strings.Contains(word, "=") { // a variable, as a shell takes it
			s.Runs = "a command"
		}
	}
	if address, ok := e.Keys["url"].(string); ok && s.Runs == "" {
		s.Runs = "a url"
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			s.Runs = u.Scheme + "://" + u.Host
		}
	}
	s.Env = memberNames(e.Keys["env"])
	s.Headers = memberNames(e.Keys["headers"], e.Keys["env_http_headers"])
}

// memberNames returns the names of the members of some objects, sorted.
func memberNames(objects ...any) []string {
	var out []string
	for _, o := range objects {
		m, _ := o.(map[string]any)
		for name := range m {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// planOwnEntry adds an entry for holdline's own tools, or with [Options.Aggregate] the
// one for all servers, unless the file has one. Its name is holdline, or holdline-2
// and so on if another entry has that.
//
// If the file has an entry that shows all servers, agents would see those that move
// twice: then planOwnEntry adds a note to that entry, and no entry.
func (p *Plan) planOwnEntry(f *File, doc clients.Document) {
	var more []string
	if !p.o.Aggregate {
		more = []string{"--server", clients.OwnEntry}
	}
	used := map[string]bool{}
	for _, e := range doc.Entries() {
		if e.Project != "" {
			continue
		}
		used[e.Name()] = true
		server, ok := e.StartsHoldline()
		switch {
		case !ok:
		case server == "":
			moves := slices.ContainsFunc(f.Servers, func(s *Server) bool { return s.Verdict == Moves })
			for _, s := range f.Servers {
				if moves && !p.o.Aggregate && s.Name == e.Name() && s.Project == "" {
					s.Notes = append(s.Notes, "shows all servers of holdline, so that those moved are seen twice: "+
						"import with --aggregate, or add --server holdline to it")
				}
			}
			return
		case server == clients.OwnEntry && !p.o.Aggregate:
			return
		}
	}
	home := doc.Home()
	path := append(slices.Clone(home), clients.OwnEntry)
	name := &path[len(home)]
	for n := 2; used[*name]; n++ {
		if server, ok := clients.Find(doc, path).StartsHoldline(); ok && server == clients.OwnEntry && p.o.Aggregate {
			break // it becomes the one for all
		}
		*name = fmt.Sprintf("%s-%d", clients.OwnEntry, n)
	}
	f.Consult = *name
	f.steps = append(f.steps, step{path: path, fields: p.withEnvironment(f, f.client.OwnFields(p.command(f), more...))})
}
