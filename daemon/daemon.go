package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/oklog/run"

	"holdline/daemon/commands"
	"holdline/daemon/config"
	"holdline/daemon/configfile"
	"holdline/daemon/consult"
	"holdline/daemon/heap"
	"holdline/daemon/hosted"
	"holdline/daemon/launch"
	"holdline/daemon/listener"
	"holdline/daemon/place"
	"holdline/daemon/policy"
	"holdline/daemon/rollout"
	"holdline/daemon/service"
	"holdline/daemon/session"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/peer"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/daemon/userenv"
	"holdline/protocol"
	"holdline/protocol/faultpoint"
	"holdline/protocol/mcp"
)

// logDelay is how long a line of the call log may wait to be written.
const logDelay = 100 * time.Millisecond

// Options are what cmd resolved from flags, environment and files.
type Options struct {
	place.Options // but for Reclaim

	Level  *slog.LevelVar // follows the configuration
	Stderr io.Writer      // for last words only
	Ready  func()         // called once the daemon serves
	Exe    string         // the path that this program was started by, links kept; it is watched
	Image  string         // the path of the very file that runs, for workers
	Argv   []string       // how this program was called, for its successor
	Units  service.Units
	Config string // path of the configuration file
	// FindConfig returns that path for another environment.
	FindConfig func(getenv func(string) string) (string, error)
	Home       string
	Environ    []string       // the daemon's own environment, filtered before a child sees it
	Shell      *userenv.Shell // asked for the user's environment; nil if Environ is that already
	IdleExit   time.Duration  // ends the daemon after so long without a session or a consult; 0 never
	// Signals delivers SIGTERM, SIGINT and SIGHUP.
	Signals <-chan os.Signal
}

// Times of a life.
const (
	watchEvery  = 5 * time.Second  // the paths are looked at so often
	stopGrace   = 10 * time.Second // for consults to end politely
	stopLimit   = 20 * time.Second // then the process is ended whatever hangs
	byeTime     = 300 * time.Millisecond
	tidyTimeout = 5 * time.Second
)

// Why a daemon stops.
var (
	errSignal   = errors.New("stopped by a signal")
	errAsked    = errors.New("stopped by command")
	errIdle     = errors.New("idle for long enough")
	errDisowned = errors.New("the socket or the lock is not there any more, or another's")
)

// life is one running daemon.
type life struct {
	Options
	begin     time.Time
	place     *place.Place
	dirs      statedir.Dirs
	file      *configfile.File
	env       *userenv.Environ
	telemetry *telemetry.Recorder
	workers   *supervisor.Supervisor
	crashes   *place.CrashLoop
	programs  *launch.Programs
	audit     *telemetry.Records
	consults  *consult.Manager
	launcher  launch.Launcher
	servers   *hosted.Manager
	sessions  *session.Server
	listener  *listener.Server
	rollout   *rollout.Watcher
	commands  *commands.Daemon
	asked     chan error  // why to stop
	endAll    atomic.Bool // workers and consults are to end, too

	leave   sync.Mutex // held while it is decided whether to stop or to hand over
	leaving bool       // guarded by leave
}

// Run is the daemon: it starts, serves until it is stopped, and stops in
// order. Being stopped is no error; [place.ErrRunning] is returned if another daemon
// serves the socket already, [*place.InUseError] if one at another socket uses the
// state directory.
func Run(ctx context.Context, o Options) (err error) {
	l := &life{Options: o, begin: time.Now(), asked: make(chan error, 1)}
	l.file, err = configfile.Open(ctx, configfile.Options{
		Log: o.Log, Path: o.Config, Home: o.Home, StateDir: o.StateDir, Apply: l.apply,
	})
	if err != nil {
		return err
	}
	o.Level.Set(l.file.Current().Log.Level)
	if l.dirs, err = statedir.Open(o.StateDir); err != nil {
		return err
	}
	l.env = userenv.New(userenv.Options{
		Log: l.Log.With("component", "environment"), StateDir: l.dirs.Root, Keep: true, Own: l.Environ, Shell: l.Shell,
		OwnFirst: l.Notifier.Managed() != service.Nobody, Changed: l.environChanged,
	})
	o.Reclaim = l.reclaim
	if l.place, err = place.Take(ctx, o.Options); err != nil {
		return err
	}
	defer l.place.Release()
	for _, dir := range []string{l.dirs.Root, l.dirs.Config, l.dirs.Catalog, l.dirs.Servers} {
		statedir.Sweep(dir, true)
	}
	l.file.Keep(ctx)
	if err := l.build(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.telemetry.Close(), l.audit.Close()) }()
	err = l.serve(ctx)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	if cerr := l.workers.Close(ctx); cerr != nil {
		o.Log.WarnContext(ctx, "letting go of workers", "err", cerr)
	}
	if l.endAll.Load() { // a worker may have come up meanwhile, whom nobody ends
		if _, cerr := l.workers.EndAll(ctx); cerr != nil {
			o.Log.WarnContext(ctx, "ending what is left of workers", "err", cerr)
		}
	}
	faultpoint.At("stop.alone")
	l.crashes.End()
	l.place.Clean(l.Paths)
	faultpoint.At("stop.swept")
	for _, wanted := range []error{errSignal, errAsked, errIdle} {
		if errors.Is(err, wanted) {
			o.Log.InfoContext(ctx, "daemon stopped", "why", wanted, "up", time.Since(l.begin))
			return nil
		}
	}
	return err
}

// build makes the parts, inside out.
func (l *life) build(ctx context.Context) error {
	cfg := l.file.Current()
	var err error
	l.workers = supervisor.New(supervisor.Options{
		Exe: l.Image, RuntimeDir: l.place.Dir(), StateDir: l.dirs.Root, Epoch: l.place.Generation(),
		Program: l.Version, Log: l.Log,
	})
	l.telemetry = telemetry.New(telemetry.Options{
		Log:        l.Log.With("component", "telemetry"),
		Daemon:     telemetry.Daemon{PID: l.PID, Version: l.Version, Epoch: l.place.Generation()},
		Executable: l.Exe, Generation: l.workers.Generation(), Rollouts: l.rollouts(),
		Path: l.dirs.Telemetry, MaxBytes: int64(cfg.Telemetry.MaxBytes), Keep: cfg.Telemetry.Keep,
		Paths: cfg.Telemetry.Paths, LogDelay: logDelay,
	})
	l.crashes = l.place.WatchCrashes(ctx, l.Log, l.workers.SetAside)
	// What a dead worker left running is ended before anything else is said.
	if err := l.workers.HuntAll(ctx); err != nil {
		l.Log.WarnContext(ctx, "hunting what earlier workers left", "err", err)
	}
	faultpoint.At("start.hunted")
	if err := l.buildConsults(ctx, cfg); err != nil {
		return err
	}
	if err := l.buildServers(ctx, cfg); err != nil {
		return err
	}
	l.commands = &commands.Daemon{
		Log: l.Log.With("component", "control"), PID: l.PID, Version: l.Version, Exe: l.Exe, StartedBy: l.StartedBy,
		Begin: l.begin, File: l.file, Place: l.place, Env: l.env, Telemetry: l.telemetry, Workers: l.workers,
		Servers: l.servers, Consults: l.consults, Rules: l.rules(), Stop: l.stopAsked, Upgrade: l.upgrade,
	}
	tools := append(l.consults.Tools(), tool.NewHealth(l.commands.Health), tool.NewTelemetry(l.commands.Snapshot),
		tool.NewFindTools(l.discover), tool.NewCallTool())
	cat, err := tool.NewCatalog(l.rules(), l.servers, tools...)
	if err != nil {
		return err
	}
	l.sessions = session.New(session.Options{
		Log: l.Log.With("component", "session"), Catalog: cat, Telemetry: l.telemetry,
		Info:         mcp.Implementation{Name: "holdline", Title: "Holdline", Version: l.Version},
		Instructions: instructions,
		Searching:    searching,
		Authorise:    func(identity, token string) error { return l.file.Current().Authorise(identity, token) },
		Reserved:     func(identity string) bool { return l.file.Current().Reserved(identity) },
		Welcome:      l.welcome,
		MaxInFlight:  cfg.Limits.InFlight,
		MaxKept:      outbox.MaxBytes,
		Client:       peer.ClientOf,
		Alive:        peer.Peer.Alive,
		Executors:    []session.Executor{l.consults, l.servers},
		Hosted:       l.servers,
		Still:        l.alone,
		Begun:        l.begin, // before the records are read: what they tell is kept longer than it is trusted
	})
	l.commands.Sessions = l.sessions
	l.buildRollout()
	return nil
}

// buildServers makes the part that hosts other MCP servers, and reads what earlier
// daemons have recorded of it.
func (l *life) buildServers(ctx context.Context, cfg *config.Config) error {
	l.launcher = launch.Launcher{Log: l.Log, File: l.file, Env: l.env, Home: l.Home, Image: l.Image}
	l.servers = hosted.New(hosted.Options{
		Log: l.Log, Workers: l.workers, Watch: l.telemetry,
		WorkersDir: l.place.File(place.WorkersDir), CatalogDir: l.dirs.Catalog, StateDir: l.dirs.Servers,
		Info:    mcp.Implementation{Name: "holdline", Title: "Holdline", Version: l.Version},
		Servers: l.launcher.Specs(ctx, cfg), Gone: l.launcher.GoneSpec(), Touch: l.crashes.Touch,
		Careful:  l.crashes.Crashed(),
		Prepared: l.env.Known,
		Budget:   func(identity string) int { return l.file.Current().Identities[identity].Budget.Calls },
		Rules:    l.rules(),
	})
	if err := l.servers.Load(ctx); err != nil {
		return err
	}
	if l.servers.Unread() {
		return l.place.RenewStore()
	}
	return nil
}

// rules are those of the configuration that is in force when they are asked.
func (l *life) rules() policy.Rules { return policy.CurrentRules(l.file.Current) }

// instructions tell a model when to look for our tools; clients that defer
// tools show nothing else.
const instructions = "consult asks Claude Code or Codex on this machine for a second opinion on the project at " +
	"hand, read-only: use it for reviews, hard bugs and design questions. A long consult goes on in the background: " +
	"fetch it with consult_result. health_snapshot says whether holdline is well."

// searching is the same for those that do not see the tools of hosted servers.
const searching = " More tools, of the MCP servers that are shared on this machine, are not listed: find_tools " +
	"finds them by words, call_tool calls them."

// welcome returns what a client is greeted with.
func (l *life) welcome() protocol.Welcome {
	return protocol.Welcome{
		Store:          l.place.Store(),
		ResumeWindowMS: protocol.StartWindow.Milliseconds(),
		Daemon: protocol.DaemonInfo{
			Version: l.Version, PID: l.PID, Epoch: l.place.Generation(), Managed: l.Notifier.Managed(),
		},
	}
}

// serve runs the actors until the first ends.
func (l *life) serve(ctx context.Context) error {
	l.listener = listener.New(listener.Options{
		Log: l.Log.With("component", "listener"), UID: os.Geteuid(), MaxConns: l.file.Current().Limits.Connections,
		Handlers: map[string]listener.Handler{
			protocol.RoleMCP: l.sessions.ServeConn,
			protocol.RoleControl: (&commands.Server{
				Log: l.Log.With("component", "control"), Welcome: l.welcome, Handlers: l.commands.Handlers(),
			}).ServeConn,
		},
	})
	if err := l.Paths.WritePointer(l.place.Socket()); err != nil {
		l.Log.WarnContext(ctx, "proxies without XDG_RUNTIME_DIR will not find this daemon", "err", err)
	}
	var g run.Group
	addActor(ctx, &g, l.Log, "listener", func(ctx context.Context) error {
		return l.listener.Serve(ctx, l.place.Listener())
	})
	addActor(ctx, &g, l.Log, "control", l.control)
	addActor(ctx, &g, l.Log, "signals", l.signals)
	addActor(ctx, &g, l.Log, "environment", l.env.Run)
	addActor(ctx, &g, l.Log, "configuration", l.file.Watch)
	addActor(ctx, &g, l.Log, "watch", l.watch)
	addActor(ctx, &g, l.Log, "consults", func(ctx context.Context) error { return stopAfter(ctx, l.stopConsults) })
	addActor(ctx, &g, l.Log, "servers", func(ctx context.Context) error { return stopAfter(ctx, l.stopServers) })
	addActor(ctx, &g, l.Log, "rollout", l.rollout.Run)
	addActor(ctx, &g, l.Log, "reaper", l.reap)
	addActor(ctx, &g, l.Log, "pings", l.ping)
	addActor(ctx, &g, l.Log, "starts", l.forgetStarts)

	faultpoint.At("start.serving")
	l.telemetry.SetServing(true)
	l.Ready()
	if err := l.Notifier.Ready("serving at " + l.place.Socket()); err != nil {
		l.Log.WarnContext(ctx, "service manager not told", "err", err)
	}
	l.Log.InfoContext(ctx, "daemon ready", "socket", l.place.Socket(), "pid", l.PID, "version", l.Version,
		"epoch", l.place.Generation(), "started_by", l.StartedBy)
	return g.Run()
}

// stopServers detaches the hosted servers, for the next daemon, or ends them if the
// user wants all to end.
func (l *life) stopServers(ctx context.Context) error {
	var err error
	if l.endAll.Load() {
		err = l.servers.EndAll(ctx)
	}
	return errors.Join(err, l.servers.Close(ctx))
}

// control waits for a reason to stop that a part of the daemon gives.
func (l *life) control(ctx context.Context) error {
	var why error
	select {
	case <-ctx.Done():
		why = context.Cause(ctx)
	case why = <-l.asked:
	}
	l.stopping(ctx, why)
	return why
}

// stopping is the first step of every stop: it starts the watchdog and informs the
// service manager. If the user has asked for the stop it also informs the proxies, and
// waits a moment for them to disconnect.
func (l *life) stopping(ctx context.Context, why error) {
	watchdog(stopLimit, l.Stderr)
	_ = l.Notifier.Stopping()
	l.Log.InfoContext(ctx, "stopping", "why", why)
	faultpoint.At("stop.begun")
	if errors.Is(why, errAsked) {
		if err := place.MarkStopped(l.place.Dir()); err != nil {
			l.Log.WarnContext(ctx, "proxies may start a daemon again", "err", err)
		}
		faultpoint.At("stop.marked")
		l.sessions.Farewell(protocol.ByeStopped, "holdline was stopped")
		faultpoint.At("stop.told")
		// The proxies answer what is outstanding and go; those that do not are
		// cut off.
		limit := time.After(byeTime)
		for len(l.sessions.Sessions()) > 0 {
			select {
			case <-limit:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// stopAsked begins to stop because the user wants that, and ends workers and consults, too,
// if all is set.
func (l *life) stopAsked(all bool) {
	if all {
		l.endAll.Store(true)
	}
	l.beginStop(errAsked)
}

// beginStop begins to stop; only the first reason counts.
func (l *life) beginStop(why error) {
	l.leave.Lock()
	defer l.leave.Unlock()
	l.leaving = true
	select {
	case l.asked <- why:
	default:
	}
}

// signals stops the daemon at SIGTERM and SIGINT, and reloads it at SIGHUP.
func (l *life) signals(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case sig := <-l.Signals:
			if sig != syscall.SIGHUP {
				l.beginStop(fmt.Errorf("%w: %v", errSignal, sig))
				continue
			}
			l.env.Refresh()
			l.reload(ctx)
		}
	}
}

// still reports whether clients still find this daemon. If not, the daemon stops.
func (l *life) still() bool { return l.stopUnless(l.place.OwnsPaths()) }

// alone reports whether no other daemon can be at work. If one can, this one stops.
func (l *life) alone() bool { return l.stopUnless(l.place.OwnsLock()) }

// stopUnless begins to stop the daemon if still is false. It returns still.
func (l *life) stopUnless(still bool) bool {
	if !still {
		l.beginStop(errDisowned)
	}
	return still
}

// watch checks every few seconds that clients still find this daemon, and stops it
// when it was idle for long enough.
func (l *life) watch(ctx context.Context) error {
	every := watchEvery
	if l.IdleExit > 0 {
		every = min(every, max(l.IdleExit/4, 10*time.Millisecond))
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	busy := time.Now()
	lost := false // a pointer, that cannot be written
	memory := heap.NewReleaser()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		memory.Check()
		if !l.still() {
			continue
		}
		err := l.Paths.KeepPointer(l.place.Socket())
		if err != nil && !lost {
			l.Log.WarnContext(ctx, "proxies without XDG_RUNTIME_DIR will not find this daemon", "err", err)
		}
		lost = err != nil
		if running, queued, _ := l.consults.Counts(); running+queued+len(l.sessions.Sessions()) > 0 {
			busy = time.Now()
		}
		if l.IdleExit > 0 && time.Since(busy) >= l.IdleExit {
			l.beginStop(errIdle)
		}
	}
}

// reclaim removes what dead workers left in a runtime directory that is full.
func (l *life) reclaim(dir string) int {
	return supervisor.New(supervisor.Options{RuntimeDir: dir, StateDir: l.StateDir, Log: l.Log}).ReapSettled()
}
