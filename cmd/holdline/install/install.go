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

	"holdline/daemon/config"
)

// Manager is who starts the daemon.
type Manager string

// The managers. With Nobody the first agent's proxy starts it.
const (
	Nobody  Manager = ""
	Systemd Manager = "systemd"
	Launchd Manager = "launchd"
)

// Runner runs a program to its end and returns what it printed on stdout. The
// error says what it printed on stderr; it wraps exec.ErrNotFound if there is
// no such program.
type Runner func(ctx context.Context, name string, args ...string) (string, error)

// Options are where and how.
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
	// Stop ends the daemon and all that it runs. Nothing runs is no error.
	Stop   func(context.Context) error
	Out    io.Writer
	DryRun bool
}

// Wish is what an installation is to be.
type Wish struct {
	Manager Manager
	Bin     bool   // the binary into BinDir
	Link    bool   // as a link
	Force   bool   // also over what somebody else has put there
	Path    string // captured; "" leaves the PATH as it is
}

// hinted errors name a way out; see [Hint].
type hintedError struct {
	err  error
	hint string
}

func (h *hintedError) Error() string { return h.err.Error() }
func (h *hintedError) Unwrap() error { return h.err }

// Hint is the way out that an error of this package knows, or "".
func Hint(err error) string {
	if h, ok := errors.AsType[*hintedError](err); ok {
		return h.hint
	}
	if f, ok := errors.AsType[*ForeignError](err); ok {
		return fmt.Sprintf("look at %s, then move it away; or: holdline install --force replaces it, and uninstall will remove it", f.Path)
	}
	return ""
}

func (o *Options) say(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }

// BinPath is where the binary is put.
func (o *Options) BinPath() string { return filepath.Join(o.BinDir, "holdline") }

// Install brings the machine to what w says and tells each step on Out. All
// that can be checked is checked first; done a second time it changes nothing.
func (o *Options) Install(ctx context.Context, w Wish) error {
	release, err := o.alone(ctx)
	if err != nil {
		return err
	}
	defer release()
	old, err := ReadManifest(o.StateDir)
	if err != nil {
		return err
	}
	p := &plan{o: o, old: old, next: old.clone()}
	bin := o.Exe
	if w.Bin {
		if err := p.binary(w); err != nil {
			return err
		}
		bin = o.BinPath()
	}
	switch w.Manager {
	case Systemd:
		err = p.systemd(ctx, bin, w.Force)
	case Launchd:
		err = p.launchd(ctx, bin, w.Force)
	case Nobody:
	}
	if err != nil {
		return err
	}
	if w.Path != "" {
		// Ours alone, whatever is in it.
		if _, err := p.put(Path, config.PathFile(o.StateDir), 0o600, []byte(w.Path+"\n"), true); err != nil {
			return err
		}
	}
	if len(p.steps) == 0 && old.Manager == p.next.Manager {
		return nil
	}
	p.owe(o.ConfigDir) // made by the first server or client that is configured
	return p.run(ctx)
}

// binary puts this program into BinDir.
func (p *plan) binary(w Wish) error {
	path := p.o.BinPath()
	if path == p.o.Exe {
		p.o.say("unchanged: %s is this program", path)
		return nil
	}
	if w.Link {
		if err := Lasting(p.o.Exe); err != nil {
			return err
		}
		return p.link(Binary, path, p.o.Exe, w.Force)
	}
	data, err := os.ReadFile(p.o.Exe)
	if err != nil {
		return fmt.Errorf("this program: %w", err)
	}
	_, err = p.put(Binary, path, 0o755, data, w.Force)
	return err
}

// buildCache is how the path of a program ends that Go's build cache keeps.
var buildCache = regexp.MustCompile(`/[0-9a-f]{2}/[0-9a-f]{64}-d/[^/]+$`)

// Lasting refuses a program that is soon not where it is now, so that nothing may
// name it: one that `go run` has built, in a temporary directory or in the build
// cache, or one whose file is gone. The error has a [Hint].
func Lasting(bin string) error {
	if strings.Contains(bin, "/go-build") || buildCache.MatchString(bin) || strings.HasSuffix(bin, " (deleted)") || !filepath.IsAbs(bin) {
		return &hintedError{fmt.Errorf("%s is there for a while only, and nothing can go on starting it", bin), "holdline install --bin puts a copy into ~/.local/bin"}
	}
	return nil
}

// words is a command line for people.
func words(argv []string) string { return strings.Join(argv, " ") }

// managed notes in the manifest who manages the daemon from now on.
func (p *plan) managed(by Manager) error {
	if before := cmp.Or(p.old.Manager, by); before != by {
		return &hintedError{fmt.Errorf("the daemon is installed for %s", before), "holdline uninstall, then install anew"}
	}
	p.next.Manager = by
	return nil
}
