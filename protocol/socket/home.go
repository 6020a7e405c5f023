package socket

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdline/protocol/bootclock"
	"holdline/protocol/ownfile"
)

// A home is what a state directory belongs to: a user may have several, as in a test or for an agent
// that gets a HOME of its own. A daemon serves one home.
//
// placeFile lies in the state directories, and says where the home's daemon was started last; see
// [Paths.Earlier].
const placeFile = "daemon.place"

// HomeFile lies beside the socket. It has the state directories of the home whose daemon has served
// there last, each on a line; see [Paths.States].
const HomeFile = "home"

// ErrOtherHome is wrapped by [Paths.CheckHome].
var ErrOtherHome = errors.New("it serves another home")

// States lists the state directories by which the daemon of this environment is found: first the
// one that it serves, then the one that a process without XDG_STATE_HOME would take for it.
func (p Paths) States() []string {
	if p.env == nil {
		return nil
	}
	return stateDirs(p.env)
}

// State returns the state directory of this environment; "" if no variable says it.
func (p Paths) State() string {
	if states := p.States(); len(states) > 0 {
		return states[0]
	}
	return ""
}

// Serves reports whether a daemon with these state directories serves one whose state directory is
// state. An empty state is that of a process which does not know its home.
func Serves(states []string, state string) bool {
	return state == "" || slices.ContainsFunc(states, func(dir string) bool { return sameDir(dir, state) })
}

// sameDir reports whether two paths lead to one directory.
func sameDir(a, b string) bool {
	if a == b {
		return true
	}
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// OtherHome returns the words about a daemon that serves the state directory served, for somebody whose
// state directory is mine.
func OtherHome(at, served, mine string) string {
	return fmt.Sprintf("the daemon at %s serves the state directory %s, and yours is %s", at, served, mine)
}

// CheckHome returns an error, which wraps [ErrOtherHome] and names both homes, if the runtime directory
// of [Paths.Start] is that of another home. A command that would act on what lies there must not.
func (p Paths) CheckHome() error {
	served := servedIn(filepath.Dir(p.Start()))
	if len(served) == 0 || Serves(served, p.State()) || p.guest {
		return nil
	}
	return &otherHomeError{OtherHome(p.Start(), served[0], p.State())}
}

// otherHomeError is the error of [Paths.CheckHome].
type otherHomeError struct{ what string }

func (e *otherHomeError) Error() string { return e.what }

func (e *otherHomeError) Unwrap() error { return ErrOtherHome }

// HomeHint says what to do about a daemon of another home.
const HomeHint = "to use that daemon, set XDG_STATE_HOME to the directory above the state directory that it " +
	"serves; for one of your own, set XDG_RUNTIME_DIR or " + Env + " to another place"

// servedIn returns the state directories of the home whose daemon has served in the runtime directory dir
// last. There are none if that cannot be known.
func servedIn(dir string) []string {
	text, ok := readSealed(filepath.Join(dir, HomeFile))
	if !ok {
		return nil
	}
	return slices.DeleteFunc(strings.Split(text, "\n"), func(dir string) bool { return !filepath.IsAbs(dir) })
}

// HomeText is what [HomeFile] holds in the runtime directory of a daemon with this environment.
func (p Paths) HomeText() []byte { return sealed(strings.Join(p.States(), "\n") + "\n") }

// sealed returns a text with a last line by which [readSealed] knows that it is whole: a damaged path would
// look like that of another home.
func sealed(text string) []byte {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(text))
	return fmt.Appendf(nil, "%s%016x\n", text, sum.Sum64())
}

// readSealed returns the text of a file that [sealed] has made. ok is false, and there is no text, if there is no
// such file, or if it is damaged.
func readSealed(path string) (text string, ok bool) {
	b, err := ownfile.Read(path, maxPointer)
	if err != nil {
		return "", false
	}
	last := strings.LastIndexByte(strings.TrimSuffix(string(b), "\n"), '\n') + 1
	text = string(b[:last])
	if string(b) != string(sealed(text)) {
		return "", false
	}
	return text, true
}

// place is where the home's daemon was started last, as placeFile has it: each field on a line, and each
// variable. Every proxy reads it as it starts.
type place struct {
	boot    string   // of the machine: the place means nothing in another one
	socket  string   // path
	environ []string // variables that say where the files of the home lie
}

// environNames are the variables of a [place].
var environNames = []string{
	"XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "HOLDLINE_CONFIG",
}

// readPlace returns the first record of an earlier place in this boot; ok is false if there is none.
func (p Paths) readPlace() (pl place, ok bool) {
	boot := bootclock.ID()
	for _, dir := range p.States() {
		text, ok := readSealed(filepath.Join(dir, placeFile))
		if !ok {
			continue
		}
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if len(lines) >= 2 && lines[0] == boot && boot != "" && CheckPath(lines[1]) == nil {
			return place{boot, lines[1], lines[2:]}, true
		}
	}
	return place{}, false
}

// Earlier returns where the home's daemon was started last, and so where the next one starts: what the
// one before has left lies there, and agents whose environment says another place look there, too. It
// returns "" if there is no such place in this boot of this machine. The error says why one cannot be
// used any more: then the next daemon takes a place of its own.
func (p Paths) Earlier() (path string, err error) {
	if p.explicit != nil {
		return "", nil
	}
	pl, ok := p.readPlace()
	if !ok {
		return "", nil
	}
	dir := filepath.Dir(pl.socket)
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return "", fmt.Errorf("the daemon before served at %s, and %w", pl.socket, bareGone(err))
	case !info.IsDir() || ownfile.Owner(info) != p.uid || info.Mode().Perm() != 0o700:
		return "", fmt.Errorf("the daemon before served at %s, and that directory is not yours alone any more", pl.socket)
	}
	if served := servedIn(dir); len(served) > 0 && !Serves(served, p.State()) {
		return "", fmt.Errorf("the daemon before served at %s, and that directory belongs to another home now", pl.socket)
	}
	return pl.socket, nil
}

// bareGone returns the error about a directory that cannot be looked at.
func bareGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("that directory is gone")
	}
	return fmt.Errorf("that directory cannot be used: %w", bare(err))
}

// Lost returns the variables that say where the files of the home lie, as its daemon had them that was
// killed: the next one needs the same, whoever starts it. There are none if no daemon was killed.
func (p Paths) Lost() []string {
	at, err := p.Earlier()
	if at == "" || err != nil {
		return nil
	}
	for _, file := range p.pointers { // a daemon that stops removes it
		if path, err := readPointer(file); err == nil && path == at {
			pl, _ := p.readPlace()
			return slices.DeleteFunc(pl.environ, func(kv string) bool {
				name, _, _ := strings.Cut(kv, "=")
				return !slices.Contains(environNames, name)
			})
		}
	}
	return nil
}

// WritePlace notes in the state directories that the home's daemon listens at path. It does nothing if
// the path is explicit, as [Paths.WritePointer]. getenv is the daemon's environment.
func (p Paths) WritePlace(path string, getenv func(string) string) error {
	if p.explicit != nil {
		return nil
	}
	lines := []string{bootclock.ID(), path}
	for _, name := range environNames {
		if value := getenv(name); value != "" {
			lines = append(lines, name+"="+value)
		}
	}
	if slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "\n") }) {
		return errors.New("note the place of the daemon: one of its paths has a line break")
	}
	text := strings.Join(lines, "\n") + "\n"
	var errs []error
	for _, dir := range p.States() {
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			pattern := fmt.Sprintf(".%s.%d-*", placeFile, os.Getpid())
			err = ownfile.Replace(filepath.Join(dir, placeFile), pattern, sealed(text), 0o600, false, func() {})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("note the place of the daemon: %w", err))
		}
	}
	return errors.Join(errs...)
}
