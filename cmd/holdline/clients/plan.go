package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"holdline/daemon/config"
)

// Verdicts on a server.
const (
	Moves = "moves" // into holdline's file
	Stays = "stays" // as it is
	Ours  = "ours"  // it starts holdline already
)

// Plan is what an import would do. Its exported part holds no secret.
type Plan struct {
	Files []*File `json:"files"`
	// Servers are the names that holdline's file gets, in its order.
	Servers []string `json:"servers"`
	Config  string   `json:"config"` // holdline's file

	o      *Options
	before []byte // of holdline's file
	after  []byte
	made   bool // holdline's file is not there
	mode   fs.FileMode
	tree   string   // git work tree that it lies in, or ""
	adds   []adding // to holdline's file
	taken  []*candidate
	moving map[string]trial  // by what holdline's file would say of it
	fails  map[string]string // why such a server does not work, by the same
}

// trial is a server that is to be started, to see that it works.
type trial struct {
	settings config.Settings
	root     string // of its project; "" is that of the current directory
}

// tryAtOnce bounds the servers that are started at the same time.
const tryAtOnce = 4

// File is one configuration file of a client.
type File struct {
	Client  string    `json:"client"`
	Title   string    `json:"title"`
	Path    string    `json:"path"`
	Project string    `json:"project,omitempty"` // directory that it is for
	Make    bool      `json:"make,omitempty"`    // it is not there, and will be made
	Why     string    `json:"why,omitempty"`     // it is not edited
	Servers []*Server `json:"servers"`
	// Consult is the entry that is added for holdline's own tools, or for all
	// servers; "" if none is.
	Consult string `json:"consult,omitempty"`
	Changes bool   `json:"changes"`
	// Diff has a line for what goes, which begins with -, and one for what comes
	// in its place, which begins with +.
	Diff []string `json:"diff"`

	source source
	broken bool // it cannot be read
	asked  bool // see Asked
	before []byte
	after  []byte
	steps  []step
}

// Server is one entry of a file.
type Server struct {
	Name    string   `json:"name"`
	Project string   `json:"project,omitempty"` // it is for this directory alone
	Verdict string   `json:"verdict"`
	As      string   `json:"as,omitempty"`  // its name in holdline's file
	Why     string   `json:"why,omitempty"` // it stays, or bears another name
	Notes   []string `json:"notes,omitempty"`
	Runs    string   `json:"runs,omitempty"` // its program, or the host of its address
	Args    int      `json:"args,omitempty"` // how many; they may be secret
	Env     []string `json:"env,omitempty"`  // names
	Headers []string `json:"headers,omitempty"`

	path    []string
	program string // that starts holdline
}

// step is one edit of a file: the entry at a path becomes fields, or goes.
type step struct {
	path   []string
	fields []field // nil takes it out
	old    string  // as it is spelled; "" if it is not there
}

// candidate is a server that is to be in holdline's file.
type candidate struct {
	name     string
	server   server
	settings config.Settings
	fixed    bool   // it is there already, as the user wrote it
	by       string // title of the client that it comes from
}

// adding is a member that holdline's file gets.
type adding struct {
	name string
	text []byte
}

// Look reads all configurations and says what is to become of them. With
// [Options.Try] a server that does not start is one that stays.
func Look(ctx context.Context, o Options) (*Plan, error) {
	p, err := survey(o, nil)
	if err != nil || o.Try == nil || len(p.moving) == 0 {
		return p, err
	}
	if o.Trying != nil {
		o.Trying(len(p.moving))
	}
	var mu sync.Mutex
	fails := map[string]string{}
	var g errgroup.Group
	g.SetLimit(tryAtOnce)
	for key, one := range p.moving {
		g.Go(func() error {
			if err := o.Try(ctx, &one.settings, one.root); err != nil {
				mu.Lock()
				defer mu.Unlock()
				fails[key] = err.Error()
			}
			return context.Cause(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if len(fails) == 0 {
		return p, nil
	}
	return survey(o, fails)
}

// survey is [Look] for servers of which it is known which of them fail.
func survey(o Options, fails map[string]string) (*Plan, error) {
	p := &Plan{o: &o, Config: o.Config, Files: []*File{}, Servers: []string{}, moving: map[string]trial{}, fails: fails}
	if err := p.readConfig(); err != nil {
		return nil, err
	}
	list, err := sources(o)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		p.look(s)
	}
	return p, p.finish()
}

// readConfig reads holdline's own file, whose servers keep their names.
func (p *Plan) readConfig() error {
	data, err := readRegular(p.Config)
	if errors.Is(err, fs.ErrNotExist) {
		p.made = true
	} else if err != nil {
		return fmt.Errorf("reading holdline's configuration %s: %w", p.Config, err)
	}
	c, err := config.Parse(p.Config, data)
	if err != nil {
		return err
	}
	p.before = data
	if info, err := os.Stat(p.Config); err == nil {
		p.mode = info.Mode().Perm()
	}
	p.tree = workTree(p.Config)
	for name := range c.Servers {
		s, _ := c.Server(name)
		p.taken = append(p.taken, &candidate{name: name, settings: s, fixed: true, by: "holdline"})
	}
	return nil
}

// most bounds a client's file, in bytes.
const most = 64 << 20

// readFile reads a client's file; a problem of the file, and not of the
// program, is an error of type [stays].
func readFile(path string) ([]byte, error) {
	data, err := readRegular(path)
	if err != nil {
		return nil, stay("%s", reason(err))
	}
	return data, nil
}

// readRegular reads a regular file of bounded size. It waits for no writer of a
// pipe.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	} else if info.Size() > most {
		return nil, fmt.Errorf("it has more than %d bytes", most)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return data, err
}

// reason is an error of the system without the path, which is told beside it.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// look reads one file and plans its edits.
func (p *Plan) look(s source) {
	f := &File{Client: s.client.name, Title: s.client.title, Path: s.path, Project: s.project, Make: s.make, Servers: []*Server{}, Diff: []string{}, source: s}
	f.asked = s.project != "" || s.tree != "" || p.tree != ""
	p.Files = append(p.Files, f)
	switch {
	case s.twin != "":
		f.Why = "it is the same file as " + s.twin
		return
	case s.project != "" && !p.o.Project:
		f.Why = "it is a project's file: --project has it imported"
	case s.tree != "" && !p.o.Project:
		f.Why = "it lies in the git work tree " + s.tree + ": --project has it imported"
	}
	doc := f.read()
	if doc == nil {
		return
	}
	if info, err := os.Stat(s.path); err == nil && info.Mode().Perm()&0o200 == 0 && f.Why == "" {
		f.Why = fmt.Sprintf("it is read-only (mode %04o): whatever made it has to change it", info.Mode().Perm())
	}
	known := len(p.taken)
	p.servers(f, doc)
	if f.Why == "" && s.project == "" {
		p.consult(f, doc)
	}
	if err := p.edit(f, doc); err != nil { // such as for an entry where no table can be
		f.give(err)
		p.taken = p.taken[:known]
	}
}

// give gives up the edit of a file.
func (f *File) give(err error) {
	f.Why, f.Consult, f.Changes = err.Error(), "", false
	f.Diff, f.steps, f.after = []string{}, nil, f.before
	for _, s := range f.Servers {
		if s.Verdict == Moves {
			s.Verdict, s.As, s.Why = Stays, "", "its file is not edited"
		}
	}
}

// read is the file's content; nil if it cannot be read, for which Why is then
// the reason.
func (f *File) read() document {
	var err error
	if !f.Make {
		f.before, err = readFile(f.Path)
	}
	var doc document
	if err == nil {
		doc, err = f.source.client.parse(f.Path, f.before)
	}
	if err != nil {
		f.Why, f.broken = err.Error(), true
		return nil
	}
	return doc
}

// edit makes the edits, on the bytes that were read alone.
func (p *Plan) edit(f *File, doc document) error {
	f.Diff = []string{}
	for i := range f.steps {
		s := &f.steps[i]
		s.old, _ = doc.text(s.path)
		f.Diff = append(f.Diff, s.diff(doc)...)
		if err := s.apply(doc); err != nil {
			return stay("it has no place for an entry %s", s.path[len(s.path)-1])
		}
	}
	if f.after = f.before; len(f.steps) > 0 {
		f.after = doc.bytes()
		if _, err := f.source.client.parse(f.Path, f.after); err != nil {
			return stay("it would not be valid any more")
		}
	}
	f.Changes = !bytes.Equal(f.before, f.after)
	return nil
}

func (s *step) apply(doc document) error {
	if s.fields == nil {
		doc.remove(s.path)
		return nil
	}
	return doc.start(s.path, s.fields)
}

// servers says what becomes of each entry of a file.
func (p *Plan) servers(f *File, doc document) {
	for _, e := range doc.entries() {
		if e.project == "" {
			e.project = f.Project
		}
		s := &Server{Name: e.name(), Project: e.project, path: e.path}
		f.Servers = append(f.Servers, s)
		if _, ok := ours(e.keys); ok {
			s.Verdict = Ours
			s.program, _ = words(e.keys)
			continue
		}
		s.describe(e.keys)
		if f.Why != "" {
			s.Verdict, s.Why = Stays, "its file is not edited"
			continue
		}
		made, notes, err := translate(f.source.client, p.o, &e)
		if err == nil && p.o.Aggregate {
			err = choosy(e.keys)
		}
		if err == nil && p.tree != "" && !p.o.Project {
			err = stay("holdline's own file lies in the git work tree %s: --project has it moved there", p.tree)
		}
		if why, fails := p.fails[string(encode(made))]; fails && err == nil {
			err = stay("it does not work with what the daemon has: %s", why)
		}
		if err != nil {
			s.Verdict, s.Why = Stays, err.Error()
			continue
		}
		s.Verdict, s.Notes = Moves, notes
		if err := p.toTry(s.Name, &made); err != nil {
			s.Verdict, s.Why, s.Notes = Stays, err.Error(), nil
			continue
		}
		p.name(f, s, made)
		p.step(f, s)
	}
}

// toTry notes a server that is to move.
func (p *Plan) toTry(name string, made *server) error {
	settings, err := made.settings()
	if err != nil {
		return err
	}
	settings.Name = name // for people
	one := trial{settings: settings}
	if len(made.Hosting.Projects) > 0 {
		one.root = made.Hosting.Projects[0]
	}
	p.moving[string(encode(*made))] = one
	return nil
}

// limiting are keys by which a client uses some tools of a server alone, which
// one entry for all servers cannot say.
var limiting = []string{"disabled_tools", "disabledTools", "enabled_tools", "enabledTools", "excludeTools", "includeTools"}

func choosy(keys map[string]any) error {
	for _, key := range limiting {
		if keys[key] != nil {
			return stay("%s cannot be said of one entry for all servers", key)
		}
	}
	return nil
}

// step plans the edit of a server that moves.
func (p *Plan) step(f *File, s *Server) {
	if p.o.Aggregate {
		f.steps = append(f.steps, step{path: s.path})
		return
	}
	fields, err := f.source.client.starting(p.command(f), "--server", s.As)
	if err != nil {
		s.Verdict, s.Why = Stays, err.Error()
		return
	}
	f.steps = append(f.steps, step{path: s.path, fields: fields})
}

// command is what starts holdline in a file. One that others share by git names
// no path of this machine.
func (p *Plan) command(f *File) string {
	if f.Project != "" {
		return "holdline"
	}
	return p.o.Command
}

// words are the program that an entry starts and its arguments.
func words(keys map[string]any) (program string, args []string) {
	values := []any{keys["command"], keys["args"]}
	if nested, ok := keys["command"].(map[string]any); ok { // Zed's of old
		values = []any{nested["path"], nested["args"]}
	}
	var all []string
	for _, v := range values {
		switch v := v.(type) {
		case string:
			all = append(all, v)
		case []any:
			for _, one := range v {
				s, _ := one.(string)
				all = append(all, s)
			}
		}
	}
	if len(all) == 0 {
		return "", nil
	}
	return all[0], all[1:]
}

// ours tells whether an entry starts holdline, and for which server.
func ours(keys map[string]any) (server string, ok bool) {
	program, args := words(keys)
	if !strings.HasPrefix(filepath.Base(program), "holdline") || len(args) == 0 || args[0] != "mcp-stdio" {
		return "", false
	}
	for i, word := range args {
		name, long := strings.CutPrefix(word, "--server=")
		switch {
		case long:
			server = name
		case word == "--server" && i+1 < len(args):
			server = args[i+1]
		}
	}
	return server, true
}

// describe tells what people know a server by, and no value that may be a
// secret.
func (s *Server) describe(keys map[string]any) {
	command := keys["command"]
	args, _ := keys["args"].([]any)
	switch v := command.(type) {
	case []any:
		if len(v) > 0 {
			command, args = v[0], append(slices.Clone(v[1:]), args...)
		}
	case map[string]any:
		command = v["path"]
		args, _ = v["args"].([]any)
	}
	if c, ok := command.(string); ok && c != "" {
		word, _, _ := strings.Cut(strings.TrimSpace(c), " ")
		s.Runs, s.Args = filepath.Base(word), len(args)
		if strings.Contains(word, "=") { // a variable, as for a shell
			s.Runs = "a command"
		}
	}
	for _, key := range []string{"httpUrl", "url", "serverUrl"} {
		if address, ok := keys[key].(string); ok && s.Runs == "" {
			s.Runs = "a url"
			if u, err := url.Parse(address); err == nil && u.Host != "" {
				s.Runs = u.Scheme + "://" + u.Host
			}
		}
	}
	s.Env = names(keys["env"], keys["environment"])
	s.Headers = names(keys["headers"], keys["http_headers"], keys["env_http_headers"])
}

func names(objects ...any) []string {
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

// consult adds the entry for holdline's own tools, or the one for all servers,
// unless there is one.
func (p *Plan) consult(f *File, doc document) {
	var more []string
	if !p.o.Aggregate {
		more = []string{"--server", entryName}
	}
	used := map[string]bool{}
	path := []string{f.source.client.key, ""}
	for _, e := range doc.entries() {
		if e.project != "" {
			continue
		}
		used[e.name()] = true
		server, ok := ours(e.keys)
		switch {
		case !ok:
		case server == "" && !p.o.Aggregate && slices.ContainsFunc(f.Servers, func(s *Server) bool { return s.Verdict == Moves }):
			i := slices.IndexFunc(f.Servers, func(s *Server) bool { return s.Name == e.name() && s.Project == "" })
			f.Servers[i].Notes = append(f.Servers[i].Notes, "shows all servers of holdline, so that those moved are seen twice: import with --aggregate, or add --server holdline to it")
			return
		case server == "" || server == entryName && !p.o.Aggregate:
			return
		}
	}
	path[1] = entryName
	for n := 2; used[path[1]]; n++ {
		if server, ok := serverOf(doc, path); ok && server == entryName && p.o.Aggregate {
			break // it becomes the one for all
		}
		path[1] = fmt.Sprintf("%s-%d", entryName, n)
	}
	fields, err := f.source.client.starting(p.command(f), more...)
	if err != nil {
		f.Why = err.Error()
		return
	}
	f.Consult = path[1]
	f.steps = append(f.steps, step{path: path, fields: fields})
}

func serverOf(doc document, path []string) (string, bool) {
	for _, e := range doc.entries() {
		if slices.Equal(e.path, path) {
			return ours(e.keys)
		}
	}
	return "", false
}

// finish writes what holdline's file becomes.
func (p *Plan) finish() error {
	x, err := config.ParseText(p.Config, p.before)
	if err != nil {
		return err
	}
	for _, c := range p.taken {
		if c.fixed {
			continue
		}
		p.Servers = append(p.Servers, c.name)
		p.adds = append(p.adds, adding{c.name, encode(c.server)})
		if err := x.Set(encode(c.server), "mcpServers", c.name); err != nil {
			return fmt.Errorf("%s: %w", p.Config, err)
		}
	}
	if p.after = p.before; len(p.adds) > 0 {
		p.after = x.Bytes()
		if _, err := config.Parse(p.Config, p.after); err != nil {
			return fmt.Errorf("%s would not be valid any more: %w", p.Config, err)
		}
	}
	return nil
}

// others are the permissions by which other users may read holdline's file. What
// moves into it was the client's, and may be secret: they go.
const others fs.FileMode = 0o077

// closes tells whether holdline's file loses permissions.
func (p *Plan) closes() bool { return len(p.adds) > 0 && p.mode&others != 0 }

// Empty tells whether there is nothing to write.
func (p *Plan) Empty() bool {
	return len(p.adds) == 0 && !slices.ContainsFunc(p.Files, func(f *File) bool { return f.Changes })
}

// Connected tells whether an entry of the file starts holdline.
func (f *File) Connected() bool {
	return slices.ContainsFunc(f.Servers, func(s *Server) bool { return s.Verdict == Ours })
}

// Broken tells whether the file cannot be read, or is not what its client reads.
func (f *File) Broken() bool { return f.broken }

// Asked tells whether the file, or holdline's own, is edited only where that is
// asked for, by [Options.Project].
func (f *File) Asked() bool { return f.asked }

// Gone are the paths by which entries of the file start holdline and at which
// nothing is.
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
