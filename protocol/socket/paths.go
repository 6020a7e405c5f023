package socket

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdline/protocol/ownfile"
)

// Names of the files that a daemon keeps for those who look for it.
const (
	dirName     = "holdline"
	socketName  = "daemon.sock"
	pointerName = "daemon.path"
)

// StoppedFile lies beside the socket of a daemon that its user has stopped: proxies start no other. See [ReadStop].
const StoppedFile = "stopped"

// StoreFile lies there, too: it has the id of the daemon's records, which the welcome names.
const StoreFile = "store"

// LockFile lies there, too: the daemon holds it for as long as it lives.
const LockFile = "daemon.lock"

// StartLock is a file there that is locked while a daemon that a proxy or a command has started
// does not listen yet.
const StartLock = "start.lock"

// Env is the variable that names an explicit socket.
const Env = "HOLDLINE_SOCKET"

// ErrTooLong is wrapped by [CheckPath] and [Resolve] for a path that the
// kernel has no room for.
var ErrTooLong = errors.New("the path of the socket is too long")

// Candidate is a path at which a daemon may be found.
type Candidate struct {
	Path   string
	Origin string // the flag, variable, file or rule that it comes from, for people
}

// Paths are the places where a client looks for this user's daemon, and where
// it starts one. Make it with [Resolve].
type Paths struct {
	explicit *Candidate
	guest    bool                // the daemon may be another user's
	env      func(string) string // for [Paths.States]; nil if no home is known
	runtime  string              // "" if XDG_RUNTIME_DIR cannot be used
	pointers []string            // files
	fallback []Candidate
	uid      int
}

// CheckPath returns an error if path cannot be a socket's: relative, or
// longer than the kernel's sun_path allows.
func CheckPath(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("the path of the socket, %q, is not absolute", path)
	}
	if len(path) > maxPath {
		return fmt.Errorf("%w: it has %d bytes, and this system takes %d: %s; name a shorter one with %s",
			ErrTooLong, len(path), maxPath, path, Env)
	}
	return nil
}

// Resolve works out the paths from a flag ("" if not given) and the
// environment. An explicit path is made absolute with [Absolute]. The path at which a
// daemon would be started is checked with [CheckPath].
func Resolve(flag string, env func(string) string) (Paths, error) {
	p := Paths{uid: os.Geteuid(), env: env}
	explicit := Candidate{Path: flag, Origin: "--socket"}
	if flag == "" {
		explicit = Candidate{Path: env(Env), Origin: Env}
	}
	if explicit.Path != "" {
		abs, err := Absolute(explicit.Path, env)
		if err != nil {
			return Paths{}, fmt.Errorf("path of %s: %w", explicit.Origin, err)
		}
		explicit.Path = abs
		p.explicit = &explicit
		return p, CheckPath(abs)
	}
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && ownDir(dir, p.uid) {
		p.runtime = filepath.Join(dir, dirName, socketName)
	}
	for _, dir := range p.States() {
		p.pointers = append(p.pointers, filepath.Join(dir, pointerName))
	}
	id := strconv.Itoa(p.uid)
	if dir := filepath.Join("/run/user", id); ownDir(dir, p.uid) {
		p.fallback = append(p.fallback, Candidate{filepath.Join(dir, dirName, socketName), "fall-back " + dir})
	}
	dir := temporary(env, id)
	p.fallback = append(p.fallback, Candidate{filepath.Join(dir, socketName), "fall-back " + dir})
	return p, CheckPath(p.Start())
}

// Absolute returns the absolute path of one that a user has given. A leading "~/" is the home
// directory of env: a shell leaves it as it is in --socket=~/x, and so does the configuration of a
// client.
func Absolute(path string, env func(string) string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && filepath.IsAbs(env("HOME")) {
		path = filepath.Join(env("HOME"), rest)
	}
	return filepath.Abs(path)
}

// ResolveGuest returns the one path of a daemon that may be another user's: it has made its
// socket there for guests, and the caller is one.
func ResolveGuest(path string, env func(string) string) (Paths, error) {
	abs, err := Absolute(path, env)
	if err != nil {
		return Paths{}, fmt.Errorf("path of the guests' socket: %w", err)
	}
	return Paths{uid: os.Geteuid(), explicit: &Candidate{Path: abs, Origin: "--guest"}, guest: true}, CheckPath(abs)
}

// stateDirs lists the directories in which holdline's state may lie, the one
// to write to first: $XDG_STATE_HOME/holdline, then $HOME/.local/state/holdline.
// It is empty if neither variable holds an absolute path.
func stateDirs(env func(string) string) []string {
	var dirs []string
	if dir := env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		dirs = append(dirs, filepath.Join(dir, dirName))
	}
	if home := env("HOME"); filepath.IsAbs(home) {
		if dir := filepath.Join(home, ".local", "state", dirName); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Explicit reports whether the user named the path: then no other counts, and
// no pointer is kept.
func (p Paths) Explicit() bool { return p.explicit != nil }

// Start is the path at which a daemon listens that is started now: where the home's daemon before listened,
// if that place is still there, else where the environment says. It reads files.
func (p Paths) Start() string {
	if earlier, err := p.Earlier(); earlier != "" && err == nil {
		return earlier
	}
	return p.own()
}

// own is the path that the environment says.
func (p Paths) own() string {
	switch {
	case p.explicit != nil:
		return p.explicit.Path
	case p.runtime != "":
		return p.runtime
	case len(p.fallback) > 0:
		return p.fallback[0].Path
	}
	return ""
}

// Candidates lists the paths to dial, in order and each once. It reads the
// pointer files; one that cannot be read or trusted is left out. So is a path that is only
// looked at because a daemon may be there, if the daemon there serves another home.
func (p Paths) Candidates() []Candidate { return slices.Collect(p.each) }

// each yields the candidates. It reads a pointer file when it comes to that.
func (p Paths) each(yield func(Candidate) bool) {
	if p.explicit != nil {
		yield(*p.explicit)
		return
	}
	earlier, err := p.Earlier()
	start := earlier // there the daemon itself says whether it serves this home
	if earlier == "" || err != nil {
		start = p.own()
	}
	var done []string
	next := func(path, origin string) (more bool) {
		if CheckPath(path) != nil || slices.Contains(done, path) {
			return true
		}
		done = append(done, path)
		if path != start {
			if served := servedIn(filepath.Dir(path)); len(served) > 0 && !Serves(served, p.State()) {
				return true
			}
		}
		return yield(Candidate{path, origin})
	}
	if start == earlier && !next(earlier, "the daemon before") {
		return
	}
	if p.runtime != "" && !next(p.runtime, "XDG_RUNTIME_DIR") {
		return
	}
	for _, file := range p.pointers {
		if path, err := readPointer(file); err == nil && !next(path, "pointer "+file) {
			return
		}
	}
	for _, c := range p.fallback {
		if !next(c.Path, c.Origin) {
			return
		}
	}
}

// ownDir reports whether path is a directory of user uid.
func ownDir(path string, uid int) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir() && ownfile.Owner(info) == uid
}
