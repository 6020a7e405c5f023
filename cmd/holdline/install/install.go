package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"holdline/daemon/userenv"
)

// Manager is the service manager that starts the daemon.
type Manager string

// The managers. With Nobody the first agent's proxy starts the daemon.
const (
	Nobody  Manager = ""
	Systemd Manager = "systemd"
	Launchd Manager = "launchd"
)

// Runner runs a program to its end and returns what it printed on stdout. The
// error says what it printed on stderr; it wraps exec.ErrNotFound if there is
// no such program.
type Runner func(ctx context.Context, name string, args ...string) (string, error)

// Options say where and how to install.
type Options struct {
	OS   string // as GOOS
	UID  int
	Exe  string // this program as it was called, absolute, links kept
	Home string

	BinDir     string // ~/.local/bin
	UnitDir    string // of systemd's user manager
	StateDir   string
	ConfigDir  string
	RuntimeDir string // "" if it is not to be removed by a purge
	// Variables that decide where holdline's files lie and that are set here:
	// a daemon of the service manager's must see them, too.
	Variables map[string]string

	Run Runner
	// Stop ends the daemon and all that it runs. It is no error that none runs.
	Stop   func(context.Context) error
	Out    io.Writer
	DryRun bool
}

// Wish says what is to be installed.
type Wish struct {
	Manager Manager
	Bin     bool   // the binary into BinDir
	Link    bool   // as a link
	Force   bool   // also over files that install has not put there
	Path    string // captured; "" leaves the PATH as it is
}

// hintedError is an error with a way out; see [Hint].
type hintedError struct {
	err  error
	hint string
}

// Error returns the message without the hint.
func (h *hintedError) Error() string { return h.err.Error() }

// Unwrap returns the error itself.
func (h *hintedError) Unwrap() error { return h.err }

// Hint returns the way out that an error of this package has, or "".
func Hint(err error) string {
	if h, ok := errors.AsType[*hintedError](err); ok {
		return h.hint
	}
	if f, ok := errors.AsType[*ForeignError](err); ok {
		return fmt.Sprintf("look at %s, then move it away; or: holdline install --force replaces it, "+
			"and uninstall will remove it", f.Path)
	}
	return ""
}

// report writes a line for the user.
func (o *Options) report(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }

// BinPath returns where the binary is put.
func (o *Options) BinPath() string { return filepath.Join(o.BinDir, "holdline") }

// Install makes the machine what w says and reports each step on Out. It checks all that
// can be checked before it changes anything. A second call changes nothing.
func (o *Options) Install(ctx context.Context, w Wish) error {
	unlock, err := o.lockHome(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	old, err := ReadManifest(o.StateDir)
	if err != nil {
		return err
	}
	p := &plan{o: o, old: old, next: old.clone()}
	bin := o.Exe
	if w.Bin {
		if err := p.planBinary(w); err != nil {
			return err
		}
		bin = o.BinPath()
	}
	switch w.Manager {
	case Systemd:
		err = p.planSystemd(ctx, bin, w.Force)
	case Launchd:
		err = p.planLaunchd(ctx, bin, w.Force)
	case Nobody:
	}
	if err != nil {
		return err
	}
	if w.Path != "" {
		want := content{exists: true, data: []byte(w.Path + "\n"), mode: 0o600}
		if _, err := p.addFile(Path, userenv.PathFile(o.StateDir), want, true); err != nil { // the file is always ours
			return err
		}
	}
	if len(p.steps) == 0 && old.Manager == p.next.Manager {
		return nil
	}
	p.recordMissing(o.ConfigDir) // the first server that is configured creates it
	return p.carryOut(ctx)
}

// planBinary plans this program in BinDir.
func (p *plan) planBinary(w Wish) error {
	path := p.o.BinPath()
	if path == p.o.Exe {
		p.o.report("unchanged: %s is this program", path)
		return nil
	}
	if w.Link {
		if err := Lasting(p.o.Exe); err != nil {
			return err
		}
		if there, err := filepath.EvalSymlinks(p.o.Exe); err == nil && there == path {
			p.o.report("unchanged: %s is what %s leads to", path, p.o.Exe)
			return nil
		}
		_, err := p.addFile(Binary, path, content{exists: true, link: p.o.Exe}, w.Force)
		return err
	}
	data, err := os.ReadFile(p.o.Exe)
	if err != nil {
		return fmt.Errorf("this program: %w", err)
	}
	_, err = p.addFile(Binary, path, content{exists: true, data: data, mode: 0o755}, w.Force)
	return err
}

// buildCache matches the end of the path of a program in Go's build cache.
var buildCache = regexp.MustCompile(`/[0-9a-f]{2}/[0-9a-f]{64}-d/[^/]+$`)

// Lasting returns an error with a [Hint] if nothing may name the program by its path,
// since it will soon not be there: one that `go run` has built, in a temporary directory
// or in the build cache, or one whose file is gone.
func Lasting(bin string) error {
	if strings.Contains(bin, "/go-build") || buildCache.MatchString(bin) ||
		strings.HasSuffix(bin, " (deleted)") || !filepath.IsAbs(bin) {
		return &hintedError{
			fmt.Errorf("%s is there for a while only, and nothing can go on starting it", bin),
			"holdline install --bin puts a copy into ~/.local/bin",
		}
	}
	return nil
}

// commandLine returns a command line for people.
func commandLine(argv []string) string { return strings.Join(argv, " ") }

// setManager records in the manifest which manager starts the daemon from now on. The
// daemon must not have another one.
func (p *plan) setManager(by Manager) error {
	if before := cmp.Or(p.old.Manager, by); before != by {
		return &hintedError{fmt.Errorf("the daemon is installed for %s", before), "holdline uninstall, then install anew"}
	}
	p.next.Manager = by
	return nil
}
