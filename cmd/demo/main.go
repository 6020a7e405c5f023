// Command demo shows holdline's main job with a private daemon. Two agents with
// different identities run a consult each at the same time. While both run, it
// shows health and status, kills the daemon and starts another one, which adopts
// both. Then it crashes an MCP server that two agents share, and shows that the
// daemon restarts it. At the end it checks that nothing is left.
//
// It spends no money without -real: the model behind the consults is a stand-in
// on loopback. The consults run the claude on PATH if there is one, else a
// built-in imitation.
//
// All that it does to holdline it does by commands and by signals, as a user or a machine
// would: it prepares the place (main.go), starts and kills daemons (daemon.go), and plays the
// agents (story.go) and the server that they share (counter.go). With -top it records the screen of
// holdline top instead (top.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
)

// main chooses its role by the name of the program: the demo starts itself again as the
// imitation of claude and as the counter.
func main() {
	scriptModel()
	if filepath.Base(os.Args[0]) == "claude" {
		os.Exit(claudetest.FakeMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	}
	if filepath.Base(os.Args[0]) == "counter" {
		if err := serveCounter(context.Background()); err != nil {
			os.Exit(1)
		}
		return
	}
	bin := flag.String("bin", "bin/holdline", "the program to show")
	isReal := flag.Bool("real", false, "use your own Claude Code and login; this may cost money")
	isTop := flag.Bool("top", false, "tell no story; write what holdline top sends to its terminal to stdout")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := demo{out: os.Stdout, bin: *bin, real: *isReal, top: *isTop, begin: time.Now(), pids: map[int]string{}}
	if d.top {
		d.out = io.Discard
	}
	if err := d.show(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		stop() // Exit makes no deferred calls
		os.Exit(1)
	}
}

// demo is one run of the demonstration, with its daemon and its files. The goroutines of the
// agents use only say; everything else belongs to the goroutine of show.
type demo struct {
	out    io.Writer
	bin    string // path of the holdline program to show
	real   bool   // with the user's own claude and login
	top    bool   // record holdline top in place of the story
	begin  time.Time
	dir    string // of everything that the demo makes
	socket string
	daemon *daemonProcess // the latest one; nil before the first
	env    []string
	// pids has the names of the processes that were seen, by pid. At the end all must
	// have ended.
	pids map[int]string
	mu   sync.Mutex // guards out
}

// printLine prints one line of the story, with the time since the beginning. Further lines of the text
// are indented. Any goroutine may call it.
func (d *demo) printLine(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n         ")
	fmt.Fprintf(d.out, "[%6.2fs] %s\n", time.Since(d.begin).Seconds(), text)
}

// show starts the private daemon, tells the story and cleans up. It ends all processes and
// removes all files of the demo in any case. The deferred calls run from the last to the first:
// the daemon ends, then the stand-in for the model, then the proxies, and what is left then is
// an error.
func (d *demo) show(ctx context.Context) (err error) {
	// Commands run in another directory than this one.
	if d.bin, err = filepath.Abs(d.bin); err != nil {
		return err
	}
	// The path is short, since that of a socket is limited to about a hundred bytes.
	if d.dir, err = os.MkdirTemp("/tmp", "holdline-demo-"); err != nil {
		return err
	}
	// It runs last, when all processes should have ended.
	defer func() { err = errors.Join(err, d.checkNothingLeft()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the proxies if the story fails halfway
	if err := d.prepare(); err != nil {
		return err
	}
	// The daemon inherits which claude and which model to use, so this comes before it.
	api, err := d.chooseClaude()
	if err != nil {
		return err
	}
	if api != nil {
		defer api.Close()
	}
	// The story replaces the daemon, so this ends the latest one.
	defer func() {
		if d.daemon != nil {
			d.daemon.terminate()
			<-d.daemon.ended
		}
	}()
	counter, err := d.linkSelf("counter")
	if err != nil {
		return err
	}
	servers, tell := []string{"counter"}, d.tellStory
	if d.top {
		servers, tell = watchedServers, d.recordTop
	}
	for _, name := range servers {
		if err := d.showCommand(ctx, "servers", "add", name, "--scope", "shared", "--", counter); err != nil {
			return err
		}
	}
	if err := d.startDaemon(ctx); err != nil {
		return err
	}
	if err := tell(ctx); err != nil {
		return fmt.Errorf("%w\nlog of the daemon:\n%s", err, d.readLog())
	}
	return nil
}

// reviewed is the Go file that the agents ask about. It has flaws that a consult can find.
const reviewed = "package main\n\nfunc main() { println(fib(40)) }\n\n" +
	"func fib(n int) int {\n\tif n < 2 {\n\t\treturn n\n\t}\n\treturn fib(n-1) + fib(n-2)\n}\n"

// prepare makes the directories and the environment of a private daemon, and sets d.socket and
// d.env. The project has a Go file for the consults to look at.
func (d *demo) prepare() error {
	d.socket = filepath.Join(d.dir, "run", "daemon.sock")
	project := filepath.Join(d.dir, "project")
	for _, dir := range []string{"project/.git", "state", "bin"} {
		if err := os.MkdirAll(filepath.Join(d.dir, dir), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(project, "main.go"), []byte(reviewed), 0o600); err != nil {
		return err
	}
	// Nothing of the user's own holdline may reach the private one.
	drop := []string{"HOLDLINE_", "XDG_STATE_HOME=", "XDG_CONFIG_HOME="}
	if !d.real { // variables that could connect the real claude to a model that costs money
		drop = append(drop, "ANTHROPIC_", "CLAUDE", "AWS_", "GOOGLE_", "GCLOUD_", "CLOUD_ML_", "VERTEX_", "AZURE_")
	}
	for _, v := range os.Environ() {
		if !slices.ContainsFunc(drop, func(prefix string) bool { return strings.HasPrefix(v, prefix) }) {
			d.env = append(d.env, v)
		}
	}
	d.env = append(d.env, "HOLDLINE_SOCKET="+d.socket,
		"XDG_STATE_HOME="+filepath.Join(d.dir, "state"), "XDG_CONFIG_HOME="+filepath.Join(d.dir, "config"))
	return nil
}

// chooseClaude decides which claude and which model the consults use, and prints it. It
// returns the stand-in for the model, or nil if there is none. The caller must close it.
func (d *demo) chooseClaude() (*claudetest.API, error) {
	found, notFound := exec.LookPath("claude")
	if d.real {
		if notFound != nil {
			return nil, fmt.Errorf("REAL=1 needs claude on PATH: %w", notFound)
		}
		d.printLine("consults use %s with your own login: THIS MAY COST MONEY", found)
		return nil, nil //nolint:nilnil // no stand-in is wanted
	}
	// A home of its own keeps claude from the user's login and settings, and so from the
	// model that the user pays for.
	home := filepath.Join(d.dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	d.env = append(d.env, "HOME="+home)
	// Without a claude, this program acts as one.
	if notFound != nil {
		fake, err := d.linkSelf("claude")
		if err != nil {
			return nil, err
		}
		d.env = append(d.env, "HOLDLINE_CLAUDE_BIN="+fake, "ANTHROPIC_API_KEY=stand-in")
		d.printLine("consults use a built-in imitation of claude (claude is not on PATH) and cost nothing")
		return nil, nil //nolint:nilnil // the imitation needs no stand-in behind it
	}
	api, err := claudetest.StartAPI()
	if err != nil {
		return nil, err
	}
	d.env = append(d.env, api.Env()...)
	d.printLine("consults use the real claude at %s with a stand-in model at %s and cost nothing", found, api.URL())
	return api, nil
}

// linkSelf makes a link to this program, which acts by the name of the link (see main), and
// returns its path.
func (d *demo) linkSelf(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(d.dir, "bin", name)
	return path, os.Symlink(self, path)
}

// command returns a holdline command in the demo's environment and project, which is not
// started. It is killed when ctx ends.
func (d *demo) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.bin, args...)
	cmd.Env = d.env
	cmd.Dir = filepath.Join(d.dir, "project")
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// showCommand runs a holdline command and prints its output, as a user would see it. A command
// that fails is an error of the demo.
func (d *demo) showCommand(ctx context.Context, args ...string) error {
	out, err := d.command(ctx, args...).CombinedOutput()
	d.printLine("$ holdline %s\n%s", strings.Join(args, " "), strings.TrimRight(string(out), "\n"))
	if err != nil {
		return fmt.Errorf("holdline %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
