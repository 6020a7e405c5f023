package leaf

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/daemon/command"
	"holdline/daemon/redact"
	"holdline/protocol/lockcheck"
	"holdline/protocol/process"
)

// Program is how a process is started.
type Program struct {
	Command string // name or absolute path
	Args    []string
	Dir     string   // absolute
	Env     []string // NAME=VALUE
}

// Options of a [Store.Launch].
type Options struct {
	Server  string   // its name
	Wall    any      // what else its processes are held to, for JSON: a record never crosses that
	Secrets []string // of its environment; no record has one
	// Refresh is how old a record may get before the launcher is to look again.
	Refresh time.Duration
}

// Why a server is started as its entry says.
const (
	NotStarted    = "it did not start without its launcher"
	SaysOtherwise = "it answers otherwise than behind its launcher"
	EndedSoon     = "it ended by itself soon after a start without its launcher"
)

// A Launch is one start of a server that a launcher starts. Its methods may be called by one goroutine at a time.
type Launch struct {
	store    *Store
	o        Options
	given    Program
	launcher string // path of the launcher
	key      string
	record   *record // nil if there is none that holds
	tried    *record // of the leaf that was started last

	// Took is how long the server has taken to serve behind its launcher; 0 if that is not known. [Launch.Observe]
	// records it.
	Took time.Duration
}

// Launch returns the start of a server by its entry, or nil if no launcher that the package knows starts it. It
// reads files.
func (s *Store) Launch(given Program, o Options) *Launch {
	lockcheck.Blocking("read the record of a launch")
	if !IsLauncher(given.Command, given.Args) {
		return nil
	}
	launcher, err := command.LookPath(given.Command, command.Variable(given.Env, "PATH"))
	if err != nil {
		return nil // the start says why
	}
	l := &Launch{store: s, o: o, given: given, launcher: launcher}
	var env []string
	for _, kv := range given.Env {
		switch name, _, _ := strings.Cut(kv, "="); {
		case isSessions(name):
		case redact.NamesSecret(name) && !isLaunchersOwn(name): // such as a token that is another one at each start
			env = append(env, name)
		default:
			env = append(env, kv)
		}
	}
	slices.Sort(env)
	b, err := json.Marshal([]any{recordVersion, o.Server, launcher, given.Args, given.Dir, env, o.Wall})
	if err != nil { // it cannot fail: what the caller gives always encodes
		return nil
	}
	sum := sha256.Sum256(b)
	l.key = hex.EncodeToString(sum[:16])
	if r := s.read(l.key); r != nil && r.holds() {
		l.record = r
	}
	return l
}

// Direct returns the leaf, and false if the server is to be started as its entry says. A record that is old is used
// only for a process that ended by itself, which has to be back soon.
func (l *Launch) Direct(isRecovery bool) (Program, bool) {
	r := l.record
	if r == nil || r.Why != "" || r.Exe == "" || !isRecovery && l.isOld() {
		return Program{}, false
	}
	return l.leaf(), true
}

// isOld reports whether the launcher is to look again for a newer version.
func (l *Launch) isOld() bool {
	age := time.Since(l.record.At)
	return (age >= l.o.Refresh || age < 0) && !time.Now().Before(l.record.NotBefore)
}

// Spare returns the leaf if that has worked before, however old its record is, and false if it has not. It is for a
// launcher that cannot start the server now: it may need a network that is not there. A launcher that has changed the
// files of the leaf has begun to replace it. Spare reads files.
func (l *Launch) Spare() (Program, bool) {
	if r := l.record; r == nil || r.Why != "" || r.Exe == "" || !r.Confirmed || !r.holds() {
		return Program{}, false
	}
	return l.leaf(), true
}

// TookBefore returns how long the server took to serve when its launcher ran last; 0 if that is not known.
func (l *Launch) TookBefore() time.Duration {
	if l.record == nil {
		return 0
	}
	return l.record.Took
}

// postponement is how long a launcher that could not start the server is left alone.
const postponement = time.Hour

// Postpone says that the launcher cannot start the server now: the leaf is used meanwhile.
func (l *Launch) Postpone() error {
	return l.store.change(l.key, func(r *record) { r.NotBefore = time.Now().Add(min(postponement, l.o.Refresh)) })
}

// leaf returns the program in the record.
func (l *Launch) leaf() Program {
	r := l.record
	l.tried = r
	env := slices.DeleteFunc(slices.Clone(l.given.Env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, isSet := r.Set[name]
		return isSet || name == "PATH" && r.Path != ""
	})
	for _, name := range slices.Sorted(maps.Keys(r.Set)) {
		env = append(env, name+"="+r.Set[name])
	}
	if r.Path != "" {
		env = append(env, "PATH="+r.Path+command.Variable(l.given.Env, "PATH"))
	}
	own := l.given.Args[len(l.given.Args)-r.Given:]
	return Program{Command: r.Exe, Args: slices.Concat(r.Args, own), Dir: l.given.Dir, Env: env}
}

// Observe records the leaf of a process that was started as the entry says, and has answered; root is its pid, and
// said what it has said (see [Launch.Said]). It returns why the next start will be as the entry says, too, or "".
func (l *Launch) Observe(root int, said string) (why string, err error) {
	r := &record{Key: l.key, Server: l.o.Server, Dir: l.given.Dir, At: time.Now(), Said: said, Took: l.Took}
	if err := l.find(r, root); err != nil {
		*r = record{Key: r.Key, Server: r.Server, Dir: r.Dir, At: r.At, Why: err.Error(), Files: []file{look(l.launcher)}}
	}
	if _, err := process.Lookup(root); errors.Is(err, process.ErrGone) { // it ended meanwhile: that was half of it
		return "", nil
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	was := l.store.read(l.key)
	switch {
	case was == nil:
	case r.Why != "" && was.Why == "" && was.holds(): // another process has shown what this one, which may be ending, does not
		return "", nil
	case r.Exe == "" || !was.isSame(r):
	case was.Why == "":
		r.Confirmed = was.Confirmed
	case time.Since(was.At) < l.o.Refresh: // it was refused, and would be again
		r.Why, r.At = was.Why, was.At
	}
	l.record = r
	return r.Why, l.store.write(r)
}

// Said returns what stands for what a server has said: the result of its handshake, and its lists.
func Said(about json.RawMessage, lists [][]json.RawMessage) string {
	h := sha256.New()
	for _, part := range slices.Concat([]json.RawMessage{about}, slices.Concat(lists...)) {
		var text bytes.Buffer
		if json.Compact(&text, part) != nil {
			text.Reset()
			text.Write(part)
		}
		text.WriteByte('\n')
		_, _ = h.Write(text.Bytes()) // never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Said returns what to compare the answers of a leaf with: what the same server said behind its launcher. It is "" once
// a leaf has answered the same.
func (l *Launch) Said() string {
	if l.record == nil || l.record.Confirmed {
		return ""
	}
	return l.record.Said
}

// Confirm says that the leaf has answered as the server behind its launcher did: with said.
func (l *Launch) Confirm(said string) error {
	tried := cmp.Or(l.tried, l.record)
	return l.store.change(l.key, func(r *record) {
		if tried != nil && r.isSame(tried) { // else another process has recorded another one meanwhile
			r.Said, r.Confirmed, r.Why = said, true, ""
		}
	})
}

// Refuse says that the server does not work without its launcher. It is started as its entry says until the record
// does not hold any more, or the launcher has run again.
func (l *Launch) Refuse(why string) error {
	l.record = nil
	return l.store.change(l.key, func(r *record) { r.Why = why })
}

// setEnviron records how the environment of the leaf differs from what the launcher was given. launchers is that with
// which the launcher runs: a program in front of it, such as one that chooses a version of Node for each project, may
// have changed something, and may choose otherwise the next time.
func (l *Launch) setEnviron(r *record, launchers, leafs []string) error {
	given, before, after := variables(l.given.Env), variables(launchers), variables(leafs)
	for name, value := range before {
		if was, ok := given[name]; (!ok || was != value) && !isShells(name) && name != process.EnvWorker {
			return fmt.Errorf("a program in front of its launcher sets the variable %s", name)
		}
	}
	for name := range before {
		if _, kept := after[name]; !kept && !isShells(name) {
			return fmt.Errorf("its launcher takes the variable %s away", name)
		}
	}
	r.Set = map[string]string{}
	for name, value := range after {
		was, had := before[name]
		switch {
		case had && was == value && !isShells(name), isShells(name) && given[name] == value:
		case name == "PATH":
			front, ok := strings.CutSuffix(value, was)
			if !ok || !had || !strings.HasSuffix(front, ":") {
				return errors.New("its launcher replaces PATH")
			}
			r.Path = front
		case !isLaunchersOwn(name) && !isShells(name):
			return fmt.Errorf("its launcher, or a script of its package, sets the variable %s", name)
		case l.hasSecret(value):
			return fmt.Errorf("its launcher puts a secret into the variable %s", name)
		default:
			r.Set[name] = value
		}
	}
	return nil
}

// hasSecret reports whether a text has a secret of the server.
func (l *Launch) hasSecret(text string) bool {
	return slices.ContainsFunc(l.o.Secrets, func(s string) bool { return len(s) > 3 && strings.Contains(text, s) })
}

// variables returns an environment as a map.
func variables(environ []string) map[string]string {
	m := make(map[string]string, len(environ))
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok {
			m[name] = value
		}
	}
	return m
}

// errScript says why a program is not the one that the launcher has started.
var errScript = errors.New("a script of its package starts its program")

// errTitle says why a program cannot be started as it shows itself.
var errTitle = errors.New("its program shows a command line that is not the one that it was started with")

// setProgram records a leaf by its executable, command line and environment, and the files on which that depends.
func (l *Launch) setProgram(r *record, exe string, argv []string, env map[string]string) error {
	if len(argv) == 0 || !isFile(exe) {
		return errors.New("its program is not there any more")
	}
	args, dir := argv[1:], l.given.Dir
	chosen := lookups(argv[0], env["PATH"]) // on these its choice depends
	r.Exe = absolute(dir, chosen[len(chosen)-1])
	program := r.Exe
	switch isIt := linkless(r.Exe) == linkless(exe); {
	case !isIt && isInterpreter(exe) && isFile(r.Exe):
		return fmt.Errorf("another program chooses the %s that runs it", filepath.Base(exe))
	case !isIt:
		return errTitle
	case isInterpreter(exe):
		at := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
		if at < 0 || !isFile(absolute(dir, args[at])) {
			return errTitle
		}
		program = absolute(dir, args[at])
	}
	its := manifestAbove(filepath.Dir(linkless(program)))
	// npx says which program it has looked for. Of other launchers the program must be one that its package names.
	var bin string
	if env["npm_lifecycle_event"] == "npx" {
		bin, _, _ = strings.Cut(strings.TrimLeft(env["npm_lifecycle_script"], `'"`), " ")
		bin = filepath.Base(strings.Trim(bin, `'"`))
		if found, err := command.LookPath(bin, env["PATH"]); err != nil || linkless(found) != linkless(program) {
			return errScript
		}
	} else if bin = its.nameOf(program); bin == "" {
		return errScript
	}
	r.Given = commonEnd(args, l.given.Args)
	r.Args = args[:len(args)-r.Given]
	if slices.ContainsFunc(r.Args, l.hasSecret) {
		return errors.New("its launcher puts a secret into its arguments")
	}
	if its.name != "" && manifestAbove(dir).name == its.name {
		return errors.New("its project is the package itself")
	}
	paths := append(chosen, l.launcher, program)
	if its.path != "" {
		paths = append(paths, its.path)
	}
	names := []string{bin, parse(l.given.Command, l.given.Args).name}
	paths = append(paths, rivals(dir, l.launcher, names, its.name, env)...)
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		r.Files = append(r.Files, look(path))
	}
	return nil
}

// lookups returns the paths at which a program is looked for by its name, up to the one where it is; and name alone if
// it is a path, or is nowhere.
func lookups(name, path string) (paths []string) {
	found, err := command.LookPath(name, path)
	if err != nil || strings.Contains(name, "/") {
		return []string{name}
	}
	for _, dir := range command.SearchDirs(path) {
		if paths = append(paths, filepath.Join(dir, name)); paths[len(paths)-1] == found {
			break
		}
	}
	return paths
}

// commonEnd returns how many words at the end of two lists are the same.
func commonEnd(a, b []string) (n int) {
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// absolute returns a path that is relative to dir.
func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// linkless returns a path without links, and itself if it leads nowhere.
func linkless(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	return path
}
