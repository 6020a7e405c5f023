package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/pair"
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

// report writes a line for the user.
func (o *Options) report(format string, args ...any) { console.Line(o.Out, 4, format, args...) }

// binPath returns where the binary is put.
func (o *Options) binPath() string { return filepath.Join(o.BinDir, "holdline") }

// newPlan returns a plan that changes nothing yet, of an installation that is alone at work until unlock is called.
func (o *Options) newPlan(ctx context.Context) (p *plan, unlock func(), err error) {
	unlock, err = o.lockHome(ctx)
	if err != nil {
		return nil, nil, err
	}
	old, err := ReadManifest(o.StateDir)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return &plan{o: o, old: old, next: old.clone()}, unlock, nil
}

// Install makes the machine what w says and reports each step on Out. It checks all
// that can be checked before it changes anything. If a step fails, it undoes the steps
// before it. A second call changes nothing, and reports what is unchanged.
//
// Install blocks while another installation of this user is at work, for up to
// lockWait. The programs that it runs end with ctx; what was done by then is undone.
func (o *Options) Install(ctx context.Context, w Wish) error {
	p, unlock, err := o.newPlan(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	bin := o.Exe
	if w.Bin {
		if err := p.planBinary(w); err != nil {
			return err
		}
		bin = o.binPath()
	}
	if w.Manager != Nobody {
		if err := p.planManager(ctx, w.Manager, bin, w.Force); err != nil {
			return err
		}
	}
	if w.Path != "" {
		if _, err := p.addPath(w.Path); err != nil {
			return err
		}
	}
	if len(p.steps) == 0 && p.old.Manager == p.next.Manager {
		return nil
	}
	p.recordMissing(o.ConfigDir) // the first server that is configured creates it
	return p.carryOut(ctx)
}

// beside are the programs that lie beside this one, and are installed with it if they are
// there: `holdline mcp-stdio` becomes holdline-stdio, and `holdline top` becomes holdline-top.
// They are replaced one after the other: package pair knows two that do not belong together.
var beside = []string{pair.Small, pair.Top}

// planBeside plans copies of the programs beside this one in BinDir. A link to this program
// finds them where they are.
func (p *plan) planBeside(force bool) error {
	exe, err := filepath.EvalSymlinks(p.o.Exe)
	if err != nil {
		return fmt.Errorf("this program: %w", err)
	}
	for _, name := range beside {
		from, to := filepath.Join(filepath.Dir(exe), name), filepath.Join(p.o.BinDir, name)
		data, err := os.ReadFile(from)
		if from == to || errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := p.addFile(Binary, to, content{exists: true, data: data, mode: 0o755}, force); err != nil {
			return err
		}
	}
	return nil
}

// planBinary plans this program in BinDir, as a copy or as a link. There is nothing to
// do if this program is the installed one, or if the installed one is what a link
// would lead to.
func (p *plan) planBinary(w Wish) error {
	path := p.o.binPath()
	if path == p.o.Exe {
		p.o.report("unchanged: %s is this program", path)
		return nil
	}
	if w.Link {
		if err := Lasting(p.o.Exe); err != nil {
			return err
		}
		there, err := filepath.EvalSymlinks(p.o.Exe)
		dir, derr := filepath.EvalSymlinks(p.o.BinDir) // the home may be a link
		if err == nil && derr == nil && there == filepath.Join(dir, filepath.Base(path)) {
			p.o.report("unchanged: %s is what %s leads to", path, p.o.Exe)
			return nil
		}
		_, err = p.addFile(Binary, path, content{exists: true, link: p.o.Exe}, w.Force)
		return err
	}
	data, err := os.ReadFile(p.o.Exe)
	if err != nil {
		return fmt.Errorf("this program: %w", err)
	}
	if err := p.planBeside(w.Force); err != nil {
		return err
	}
	_, err = p.addFile(Binary, path, content{exists: true, data: data, mode: 0o755}, w.Force)
	return err
}

// buildCache matches the end of the path of a program in Go's build cache.
var buildCache = regexp.MustCompile(`/[0-9a-f]{2}/[0-9a-f]{64}-d/[^/]+$`)

// Lasting returns an error with a hint if no unit, link or client may name the program
// by its path, since the path will soon lead nowhere: a program that `go run` has
// built, in a temporary directory or in the build cache, or one whose file is gone. A
// relative path is refused, too.
func Lasting(bin string) error {
	if strings.Contains(bin, "/go-build") || buildCache.MatchString(bin) ||
		strings.HasSuffix(bin, " (deleted)") || !filepath.IsAbs(bin) {
		return cmdenv.WithHint(fmt.Errorf("%s exists for a short time only, and cannot be started later", bin),
			"holdline install --bin puts a copy into ~/.local/bin")
	}
	return nil
}

// commandLine returns a command line for people.
func commandLine(argv []string) string { return strings.Join(argv, " ") }

// runProgram runs a program.
func (o *Options) runProgram(ctx context.Context, argv []string) error {
	_, err := o.Run(ctx, argv[0], argv[1:]...)
	return err
}
