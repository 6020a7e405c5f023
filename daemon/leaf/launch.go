package leaf

import (
	"bytes"
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
	"holdline/protocol/lockcheck"
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

// A Launch is one start of a server that a launcher starts. Its methods may be called by one goroutine at a time.
type Launch struct {
	store    *Store
	o        Options
	given    Program
	launcher string // path of the launcher
	key      string
	record   *record // nil if there is none that holds
}

// Launch returns the start of a server by its entry, or nil if no launcher that the package knows starts it. It
// reads files.
func (s *Store) Launch(given Program, o Options) *Launch {
	lockcheck.Blocking("read the record of a launch")
	if !isLauncher(given.Command, given.Args) {
		return nil
	}
	launcher, err := command.LookPath(given.Command, command.Variable(given.Env, "PATH"))
	if err != nil {
		return nil // the start says why
	}
	l := &Launch{store: s, o: o, given: given, launcher: launcher}
	env := slices.DeleteFunc(slices.Clone(given.Env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return isSessions(name)
	})
	slices.Sort(env)
	b, err := json.Marshal([]any{recordVersion, o.Server, launcher, given.Args, given.Dir, env, o.Wall})
	if err != nil { // it cannot fail: what the caller gives always encodes
		return nil
	}
	sum := sha256.Sum256(b)
	l.key = hex.EncodeToString(sum[:16])
	if r := s.read(l.key); r != nil && r.holds(given.Dir) {
		l.record = r
	}
	return l
}

// isSessions reports whether a variable is another one after each login of the user, and means nothing to a launcher.
func isSessions(name string) bool {
	switch name {
	case "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "TERM",
		"XDG_RUNTIME_DIR":
		return true
	}
	return false
}

// Direct returns the leaf, and false if the server is to be started as its entry says. A record that is old is used
// only for a process that ended by itself, which has to be back soon.
func (l *Launch) Direct(isRecovery bool) (Program, bool) {
	r := l.record
	if r == nil || r.Why != "" || !isRecovery && time.Since(r.At) >= l.o.Refresh {
		return Program{}, false
	}
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
	return Program{Command: r.Exe, Args: slices.Clone(r.Args), Dir: l.given.Dir, Env: env}, true
}

// Observe records the leaf of a process that was started as the entry says, and has answered; root is its pid, and
// said what it has said (see [Launch.Said]). It returns why the next start will be as the entry says, too, or "".
func (l *Launch) Observe(root int, said string) (why string, err error) {
	r := &record{Key: l.key, Server: l.o.Server, At: time.Now(), Said: said}
	if err := l.find(r, root); err != nil {
		*r = record{Key: r.Key, Server: r.Server, At: r.At, Why: err.Error(), Files: []file{look(l.launcher)}}
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if was := l.store.read(l.key); was != nil && r.Exe != "" && was.isSame(r) {
		switch {
		case was.Why == "":
			r.Confirmed = was.Confirmed
		case time.Since(was.At) < l.o.Refresh: // it was refused, and would be again
			r.Why, r.At = was.Why, was.At
		}
	}
	l.record = r
	return r.Why, l.store.write(r)
}

// Said returns what stands for what a server has said: the results of its handshake and its lists.
func Said(parts []json.RawMessage) string {
	h := sha256.New()
	for _, part := range parts {
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

// Confirm says that the leaf has answered as the server behind its launcher did.
func (l *Launch) Confirm() error {
	return l.store.change(l.key, func(r *record) { r.Confirmed = true })
}

// Refuse says that the server does not work without its launcher. It is started as its entry says until the record
// does not hold any more, or the launcher has run again.
func (l *Launch) Refuse(why string) error {
	l.record = nil
	return l.store.change(l.key, func(r *record) { r.Why = why })
}

// setEnviron records how the environment of the leaf differs from that of the launcher.
func (l *Launch) setEnviron(r *record, launchers, leafs []string) error {
	before, after := variables(launchers), variables(leafs)
	for name := range before {
		if _, kept := after[name]; !kept && !isShells(name) {
			return fmt.Errorf("its launcher takes the variable %s away", name)
		}
	}
	r.Set = map[string]string{}
	for name, value := range after {
		was, had := before[name]
		switch {
		case had && was == value, isShells(name):
		case name == "PATH":
			front, ok := strings.CutSuffix(value, was)
			if !ok || !had || !strings.HasSuffix(front, ":") {
				return errors.New("its launcher replaces PATH")
			}
			r.Path = front
		case !isLaunchersOwn(name):
			return fmt.Errorf("its launcher, or a script of its package, sets the variable %s", name)
		case slices.ContainsFunc(l.o.Secrets, func(s string) bool { return len(s) > 3 && strings.Contains(value, s) }):
			return fmt.Errorf("its launcher puts a secret into the variable %s", name)
		default:
			r.Set[name] = value
		}
	}
	return nil
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

// errTitle says why a program cannot be started as it shows itself.
var errTitle = errors.New("its program shows a command line that is not the one that it was started with")

// setProgram records a leaf by its executable and command line, and the files on which that depends. bin is
// the name of the program that the launcher has looked for; "" if the launcher does not say it.
func (l *Launch) setProgram(r *record, exe string, argv []string, bin, path string) error {
	if len(argv) == 0 || !isFile(exe) {
		return errors.New("its program is not there any more")
	}
	r.Exe, r.Args = exe, argv[1:]
	dir := l.given.Dir
	program := exe
	if isInterpreter(exe) {
		at := slices.IndexFunc(r.Args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
		if at < 0 || !isFile(absolute(dir, r.Args[at])) {
			return errTitle
		}
		program = absolute(dir, r.Args[at])
	} else if found, err := command.LookPath(argv[0], path); err != nil || linkless(found) != linkless(exe) {
		return errTitle
	}
	if bin != "" {
		if found, err := command.LookPath(filepath.Base(bin), path); err != nil || linkless(found) != linkless(program) {
			return errors.New("a script of its package starts its program")
		}
		bin = filepath.Base(bin)
	} else {
		bin = filepath.Base(program)
	}
	r.Files = []file{look(l.launcher), look(exe), look(program)}
	if m := manifestAbove(filepath.Dir(linkless(program))); m.path != "" {
		r.Files, r.Package = append(r.Files, look(m.path)), m.name
	}
	for _, path := range rivals(l.given.Dir, l.launcher, bin, r.Package) {
		r.Files = append(r.Files, look(path))
	}
	if r.Package != "" && manifestAbove(l.given.Dir).name == r.Package {
		return errors.New("its project is the package itself")
	}
	return nil
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
