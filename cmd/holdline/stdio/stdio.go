// Package stdio has the command mcp-stdio: the proxy that an agent starts. It makes the
// options of package proxy from flags and variables. [Main] is the program holdline-stdio,
// which is that command alone; [Run] is the command of both programs.
//
// Flags are declared with package flag of the standard library, since the proxy does not
// build the command tree. The tree gets the same flags for help and completions.
//
// Many proxies run at once. What this package imports is in every one of them: cmd/e2e
// TestSmallProgram holds the list.
package stdio

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/pair"
	"holdline/cmd/holdline/screen"
	"holdline/cmd/holdline/starter"
	"holdline/daemon/shellword"
	"holdline/daemon/spelling"
	"holdline/protocol"
	"holdline/protocol/project"
	"holdline/protocol/rawio"
	"holdline/protocol/socket"
	"holdline/proxy"
	"holdline/proxy/stream"
)

// maxToken bounds a token file, in bytes.
const maxToken = 4 << 10

// Options are the flags of mcp-stdio, with variables in place of those that were not given.
type Options struct {
	identity, project, server string
	view                      string
	direct                    string // server that this process becomes; "" for the proxy
	socket, tokenFile, token  string // token is the content of tokenFile, or of a variable
	guest                     string // socket of a daemon that may be another user's; "" for the user's own
	drain, reconnect          time.Duration
	noAutostart               bool
}

// Whole is what the proxy needs of the whole program, which holdline-stdio has to execute.
type Whole struct {
	Path   func() (string, error)    // returns the path of holdline, which can start a daemon
	Help   func() int                // prints how to use the proxy, and returns the exit code
	Direct func(server string) error // makes this process a server; it returns only if that fails
}

// Main runs this process as holdline-stdio, with its own arguments, environment and
// standard streams, and returns the exit code.
func Main() int {
	cmdenv.KeepOwnerBits()
	proc := cmdenv.Process{
		Getenv: os.Getenv, Environ: os.Environ, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	path, args, err := pair.OfSmall(os.Args)
	if err != nil {
		return cmdenv.Report(proc.Stderr, err)
	}
	return Run(args, &proc, Whole{
		Path:   func() (string, error) { return path, nil },
		Help:   func() int { return cmdenv.Report(proc.Stderr, pair.BecomeWhole(path, args)) },
		Direct: func(string) error { return pair.BecomeWhole(path, args) },
	})
}

// Run runs the proxy until its client or its line ends, and returns the exit code. With --direct
// it returns only if it fails: the process becomes the server. It is called before the command
// tree is built: many proxies run at the same time, so each links and does little.
func Run(args []string, proc *cmdenv.Process, whole Whole) int {
	env, stderr := proc.Getenv, screen.NewWriter(proc.Stderr)
	// The live heap of a proxy is tiny: collect early rather than grow to the runtime's
	// 4 MiB. One processor is enough, and each one has caches of its own.
	debug.SetGCPercent(20)
	runtime.GOMAXPROCS(1)

	o, err := parseMCPStdio(args, env)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return whole.Help()
	case errors.Is(err, cmdenv.ErrUsage):
		err = cmdenv.WithHint(err, "see holdline mcp-stdio --help")
	}
	if err != nil {
		return cmdenv.Report(stderr, err)
	}
	// The process becomes the server, so nothing of the proxy may have begun.
	if o.direct != "" {
		return cmdenv.Report(stderr, whole.Direct(o.direct))
	}
	// The paths decide both where the daemon is found and where one is started.
	paths, err := socket.Resolve(o.socket, env)
	if o.guest != "" {
		paths, err = socket.ResolveGuest(o.guest, env)
		o.noAutostart = true
	}
	if err != nil {
		return cmdenv.Report(stderr, err)
	}
	in, out, err := stdio(proc.Stdin, proc.Stdout)
	if err != nil {
		return cmdenv.Report(stderr, err)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer exitWhenStuck(ctx, in, out)()
	// A closed stdout is to be an error of the write, not the process's death;
	// notifying, unlike ignoring, is not inherited by a daemon started here.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	var at string // where the daemon was found last; the proxy makes one dial at a time
	start := starter.New(paths, env, whole.Path)
	po := proxy.Options{
		Stopped: func() string {
			start.Want()
			mark := paths.Stopped()
			if mark == nil && at != "" && o.guest == "" {
				mark = socket.ReadStop(filepath.Dir(at))
			}
			if mark == nil {
				return ""
			}
			return mark.Words()
		},
		In: in, Out: out, Err: stderr, Greeting: greet(o, paths.State()),
		Drain: o.drain, ReconnectTimeout: o.reconnect,
		Log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Dial: func(ctx context.Context) (net.Conn, error) {
			conn, path, err := paths.Dial(ctx)
			if err != nil {
				return nil, err // not a nil *net.UnixConn in an interface
			}
			at = path
			return rawio.Quiet(conn), nil
		},
		HungUp: func(conn net.Conn) bool {
			c, ok := conn.(syscall.Conn)
			return ok && socket.HungUp(c)
		},
		Down: func(err error) proxy.Down {
			if o.guest != "" { // the daemon, or what forwards its socket, comes back by itself
				return proxy.DownBusy
			}
			return sortDial(err, at != "" && at != paths.Start())
		},
	}
	po.Absent = start.Absent
	if !o.noAutostart {
		po.Autostart = func(context.Context) (<-chan error, error) { return start.Start() }
		po.Settled = start.Settled
	}
	return proxy.Run(ctx, po)
}

// stuckAfter bounds the end of a proxy after its signal. It is ten times what the end takes.
const stuckAfter = time.Second

// exitWhenStuck ends this process if it still runs [stuckAfter] after the end of ctx. The
// caller calls ended when the proxy has ended by itself.
//
// A write to a terminal that is stopped, or does not read, blocks in the kernel. Only the end
// of the process ends that.
func exitWhenStuck(ctx context.Context, in, out io.Closer) (ended func()) {
	done := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		limit := time.NewTimer(stuckAfter)
		defer limit.Stop()
		select {
		case <-done:
			return
		case <-limit.C:
		}
		_ = in.Close() // Close restores the flags of the streams, which other processes share
		_ = out.Close()
		os.Exit(cmdenv.ExitOK)
	})
	return func() {
		unregister()
		close(done)
	}
}

// sortDial says what an error of [socket.Paths.Dial] means for the proxy. elsewhere is true if
// the daemon was found before at another path than that where this proxy would start one. Then
// the next daemon listens there, too, and a refusal at the other path does not matter.
func sortDial(err error, elsewhere bool) proxy.Down {
	switch {
	case errors.Is(err, socket.ErrNoDaemon):
		return proxy.DownAbsent
	case !elsewhere && (errors.Is(err, socket.ErrOtherUser) || errors.Is(err, os.ErrPermission)):
		return proxy.DownRefused
	}
	return proxy.DownBusy
}

// Flags returns the flags, which set o, and the value of the flag --drain. The variables of
// env are the defaults of flags.
func Flags(o *Options, env func(string) string) (f *flag.FlagSet, drain *string) {
	f = flag.NewFlagSet("mcp-stdio", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the caller prints help and errors
	f.StringVar(&o.identity, "identity", env("HOLDLINE_IDENTITY"),
		"who the agent is, for permissions and reports\n(default $HOLDLINE_IDENTITY, else the client's name)")
	f.StringVar(&o.project, "project", env("HOLDLINE_PROJECT"),
		"key of the project to share servers with\n(default $HOLDLINE_PROJECT, else derived from the nearest\n"+
			"directory with .git)")
	f.StringVar(&o.server, "server", "",
		"offer this hosted server alone, under its own tool names;\n\"holdline\" offers holdline's own tools alone")
	f.StringVar(&o.view, "view", env("HOLDLINE_VIEW"),
		"offer only what this view of the configuration has\n(default $HOLDLINE_VIEW)")
	f.StringVar(&o.direct, "direct", "",
		"run this hosted server itself, without the daemon: nothing is\nshared, and nothing outlives a crash")
	f.StringVar(&o.socket, "socket", "", "the daemon's socket (default $HOLDLINE_SOCKET, else found)")
	f.StringVar(&o.guest, "guest", "",
		"socket that a daemon elsewhere, perhaps another user's, has for\nguests: agents in containers and on other "+
			"machines\n(default $HOLDLINE_GUEST)")
	f.StringVar(&o.tokenFile, "token-file", "",
		"file with the identity's token, mode 0600\n(default the token in $HOLDLINE_TOKEN)")
	drain = f.String("drain", "5s",
		"how long to wait for answers once stdin is closed;\n\"inf\" for as long as they take")
	f.DurationVar(&o.reconnect, "reconnect-timeout", protocol.ReconnectWindow,
		"how long to look for a daemon; when one was lost,\ncut to the 1m30s that the next one waits for its sessions")
	f.BoolVar(&o.noAutostart, "no-autostart", false, "never start a daemon")
	return f, drain
}

// parseMCPStdio returns the options that the arguments and the variables of env give. It reads
// the token file, if one is named. The error is [flag.ErrHelp] if the user wants help, and else
// a usage error or one about the token file.
func parseMCPStdio(args []string, env func(string) string) (Options, error) {
	var o Options
	f, drain := Flags(&o, env)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, wrongFlag(f, err)
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%w: mcp-stdio takes no argument, got %q", cmdenv.ErrUsage, f.Arg(0))
	}
	// The flag is a string, since package flag has no duration without an end.
	if *drain == "inf" {
		o.drain = proxy.NoDrainLimit
	} else {
		var err error
		if o.drain, err = time.ParseDuration(*drain); err != nil || o.drain < 0 {
			return o, fmt.Errorf(`%w: --drain %q is neither a duration such as 5s nor "inf"`, cmdenv.ErrUsage, *drain)
		}
	}
	if o.direct != "" && o.server != "" {
		return o, fmt.Errorf("%w: --direct and --server do not go together", cmdenv.ErrUsage)
	}
	switch elsewhere := o.direct != "" || o.socket != ""; {
	case o.guest != "" && elsewhere:
		return o, fmt.Errorf("%w: --guest goes neither with --direct nor with --socket", cmdenv.ErrUsage)
	case !elsewhere:
		o.guest = cmp.Or(o.guest, env("HOLDLINE_GUEST"))
	}
	if o.reconnect < 0 {
		return o, fmt.Errorf("%w: --reconnect-timeout %v is negative", cmdenv.ErrUsage, o.reconnect)
	}
	if o.tokenFile == "" {
		o.token = env("HOLDLINE_TOKEN")
		return o, nil
	}
	path, err := socket.Absolute(o.tokenFile, env)
	if err == nil {
		o.token, err = readToken(path)
	}
	return o, err
}

// wrongFlag returns the usage error of flags that cannot be used. Of a flag that does not exist it says which one
// may be meant.
func wrongFlag(f *flag.FlagSet, err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return fmt.Errorf("%w: %w", cmdenv.ErrUsage, err)
	}
	var names []string
	f.VisitAll(func(one *flag.Flag) { names = append(names, one.Name) })
	words := "holdline mcp-stdio has no flag --" + name
	if near := spelling.Nearest(name, names); near != "" {
		words += "; did you mean --" + near + "?"
	}
	return fmt.Errorf("%w: %s", cmdenv.ErrUsage, words)
}

// readToken returns the token in a file, without white space around it. It refuses a file that
// other users can read, and one that is empty or has more than [maxToken] bytes.
func readToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // to open a pipe must not wait for its writer
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", cmdenv.WithHint(
			fmt.Errorf("token file %s has mode %v, want a file of mode 0600", path, info.Mode()),
			"chmod 600 "+shellword.Quote(path))
	}
	// One byte more than allowed shows that the file is too long.
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(b) > maxToken {
		return "", fmt.Errorf("token file %s is empty or has more than %d bytes", path, maxToken)
	}
	return token, nil
}

// greet returns the greeting of a new session, which says what the daemon must know of this
// process: its directory, its project and its logins.
func greet(o Options, state string) protocol.Greeting {
	// A working directory that was removed under us is no reason to fail. Without links it stays
	// the same directory for all daemons, whatever a link in its path leads to later.
	cwd, _ := os.Getwd()
	named := ""
	if resolved, err := filepath.EvalSymlinks(cwd); err == nil && cwd != "" && resolved != cwd {
		cwd, named = resolved, cwd
	}
	key := o.project
	if key == "" && cwd != "" {
		key = project.Key(cwd)
	}
	if o.guest != "" { // the daemon there takes no more of it
		return protocol.Greeting{Session: newSession(), Cwd: cwd, Server: o.server, Version: cmdenv.Version}
	}
	return protocol.Greeting{
		Session: newSession(), Identity: o.identity, Token: o.token, Project: key, Cwd: cwd, Named: named,
		Server: o.server, State: state, View: o.view, Version: cmdenv.Version, Logins: protocol.LoginVariables(os.Environ()),
	}
}

// newSession returns a random UUID (version 4). It is a secret: it is all that is needed to
// resume the session.
func newSession() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	// Version and variant (RFC 9562).
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// stdio returns both streams in a form whose Close ends a read or write that blocks.
func stdio(stdin io.Reader, stdout io.Writer) (io.ReadCloser, io.WriteCloser, error) {
	in := io.NopCloser(stdin)
	var out io.WriteCloser = nopWriteCloser{stdout}
	if f, ok := stdin.(*os.File); ok {
		s, err := stream.New(f)
		if err != nil {
			return nil, nil, fmt.Errorf("stdin: %w", err)
		}
		in = s
	}
	if f, ok := stdout.(*os.File); ok {
		s, err := stream.New(f)
		if err != nil {
			_ = in.Close() // which restores its flags
			return nil, nil, fmt.Errorf("stdout: %w", err)
		}
		out = s
	}
	return in, out, nil
}

// nopWriteCloser is a writer that never blocks, such as a buffer. Close does nothing.
type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }
