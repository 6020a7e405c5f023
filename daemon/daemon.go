package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/oklog/run"

	"holdline/daemon/adapter/engines"
	"holdline/daemon/commands"
	"holdline/daemon/configfile"
	"holdline/daemon/consult"
	"holdline/daemon/events"
	"holdline/daemon/footprint"
	"holdline/daemon/guests"
	"holdline/daemon/heap"
	"holdline/daemon/hosted"
	"holdline/daemon/hosted/asklogin"
	"holdline/daemon/launch"
	"holdline/daemon/limits"
	"holdline/daemon/listener"
	"holdline/daemon/login"
	"holdline/daemon/place"
	"holdline/daemon/policy"
	"holdline/daemon/rollout"
	"holdline/daemon/service"
	"holdline/daemon/session"
	"holdline/daemon/session/executor"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/peer"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/daemon/tasks"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/daemon/userenv"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/faultpoint"
	"holdline/protocol/mcp"
	"holdline/protocol/socket"
)

// logDelay is how long a line of the call log may wait to be written.
const logDelay = 100 * time.Millisecond

// Options are what cmd resolved from flags, environment and files.
type Options struct {
	place.Options // but for Reclaim

	Level     *slog.LevelVar // follows the configuration
	Stderr    io.Writer      // for last words only
	FlushLog  func()         // writes what waits of the log; it takes a moment at most
	Listening func()         // called once the socket listens
	Ready     func()         // called once the daemon serves
	// LogTrouble returns for people why the log is not where it should be; "" if it is.
	LogTrouble func() string
	Exe        string   // the path that this program was started by, links kept; it is watched
	Image      string   // the path of the very file that runs, for workers
	Argv       []string // how this program was called, for its successor
	Units      service.Units
	Config     string // path of the configuration file
	// FindConfig returns that path for another environment.
	FindConfig func(getenv func(string) string) (string, error)
	Home       string
	Environ    []string       // the daemon's own environment, filtered before a child sees it
	Shell      *userenv.Shell // asked for the user's environment; nil if Environ is that already
	IdleExit   time.Duration  // ends the daemon after so long without a session or a consult; 0 never
	// Signals delivers SIGTERM, SIGINT and SIGHUP.
	Signals <-chan os.Signal
}

// Times of a daemon.
const (
	watchEvery  = 5 * time.Second  // the paths are looked at so often
	stopGrace   = 10 * time.Second // for consults to end politely
	stopLimit   = 20 * time.Second // then the process is ended whatever hangs
	lastWords   = time.Second      // for those of a process that is ended so
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

// daemon is one running daemon: its parts, and why it stops.
type daemon struct {
	Options
	begin     time.Time
	place     *place.Place
	dirs      statedir.Dirs
	file      *configfile.File
	env       *userenv.Environ
	telemetry *telemetry.Recorder
	events    *events.Ring
	workers   *supervisor.Supervisor
	crashes   *place.CrashLoop
	programs  *launch.Programs
	audit     *telemetry.Records
	consults  *consult.Manager
	launcher  *launch.Launcher
	asker     *asklogin.Asker
	servers   *hosted.Manager
	sessions  *session.Server
	listener  *listener.Server
	guests    *guests.Manager
	rollout   *rollout.Watcher
	commands  *commands.Daemon
	asked     chan error  // why to stop
	endAll    atomic.Bool // workers and consults are to end, too
	removed   atomic.Bool // holdline is being uninstalled

	leave   sync.Mutex // held while it is decided whether to stop or to hand over
	leaving bool       // guarded by leave
}

// Run starts a daemon, serves until it is stopped, and stops it in order. It returns nil if
// the daemon was stopped by a signal or a command, or was idle for long enough. It returns
// [place.ErrRunning] if another daemon serves the socket already, and [*place.InUseError] if
// a daemon at another socket uses the state directory.
func Run(ctx context.Context, o Options) (err error) {
	ring := events.NewRing()
	o.Log = slog.New(ring.Handler(o.Log.Handler()))
	d := &daemon{Options: o, begin: time.Now(), events: ring, asked: make(chan error, 1)}
	d.file, err = configfile.Open(ctx, configfile.Options{
		Log: o.Log, Path: o.Config, Home: o.Home, StateDir: o.StateDir, Apply: d.apply,
	})
	if err != nil {
		return err
	}
	o.Level.Set(d.file.Current().Log.Level)
	if d.dirs, err = statedir.Open(o.StateDir); err != nil {
		return err
	}
	d.env = userenv.New(userenv.Options{
		Log: d.Log.With("component", "environment"), StateDir: d.dirs.Root, Keep: true, Own: d.Environ, Shell: d.Shell,
		OwnFirst: d.Notifier.Managed() != service.Nobody, Changed: d.environChanged,
	})
	o.Reclaim = d.reclaim
	if d.place, err = place.Take(ctx, o.Options); err != nil {
		return err
	}
	defer d.place.Release()
	d.Listening()
	for _, dir := range []string{d.dirs.Root, d.dirs.Config, d.dirs.Catalog, d.dirs.Servers} {
		statedir.Sweep(dir, true)
	}
	login.Open(d.dirs.Logins, nil).Sweep()
	d.file.Keep(ctx)
	if err := d.build(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.telemetry.Close(), d.audit.Close()) }()
	err = d.serve(ctx)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout+d.endTime())
	defer cancel()
	if cerr := d.workers.Close(ctx); cerr != nil {
		o.Log.WarnContext(ctx, "detaching from workers", "err", cerr)
	}
	if d.endAll.Load() { // also workers that came up while the others were ended
		if _, cerr := d.workers.EndAll(ctx); cerr != nil {
			o.Log.WarnContext(ctx, "ending what is left of workers", "err", cerr)
		}
	}
	faultpoint.At("stop.alone")
	d.crashes.End()
	d.place.Clean(d.Paths)
	faultpoint.At("stop.swept")
	for _, wanted := range []error{errSignal, errAsked, errIdle} {
		if errors.Is(err, wanted) {
			o.Log.InfoContext(ctx, "daemon stopped", "why", wanted, "up", time.Since(d.begin))
			return nil
		}
	}
	return err
}

// build makes the parts, from the inside out. It also ends what dead workers left running,
// and reads the records of consults and servers.
func (d *daemon) build(ctx context.Context) error {
	cfg := d.file.Current()
	var err error
	d.workers = supervisor.New(supervisor.Options{
		Exe: d.Image, RuntimeDir: d.place.Dir(), StateDir: d.dirs.Root, Epoch: d.place.Generation(),
		RaiseEpoch: d.place.RaiseGeneration,
		Program:    d.Version, Log: d.Log, Limits: limits.For(d.Environ), Still: d.alone,
		Environ: func(ctx context.Context) []string {
			_ = d.env.Await(ctx, "ssh") // its agent, and what its configuration names
			return d.env.List()
		},
	})
	d.telemetry = telemetry.New(telemetry.Options{
		Log:        d.Log.With("component", "telemetry"),
		Daemon:     telemetry.Daemon{PID: d.PID, Version: d.Version, Epoch: d.place.Generation()},
		Executable: d.Exe, Generation: d.workers.Generation(), Rollouts: d.rollouts(),
		Path: d.dirs.Telemetry, MaxBytes: int64(cfg.Telemetry.MaxBytes), Keep: cfg.Telemetry.Keep,
		Paths: cfg.Telemetry.Paths, LogDelay: logDelay,
	})
	d.crashes = d.place.WatchCrashes(ctx, d.Log, d.workers.SetAside)
	// What dead workers left running must be ended before a call is answered with
	// outcome_unknown: see the law of recovery, 8.
	if err := d.workers.HuntAll(ctx); err != nil {
		d.Log.WarnContext(ctx, "hunting what earlier workers left", "err", err)
	}
	faultpoint.At("start.hunted")
	if err := d.buildConsults(ctx, cfg); err != nil {
		return err
	}
	if err := d.buildServers(ctx, cfg); err != nil {
		return err
	}
	d.workers.SweepAway()
	d.commands = &commands.Daemon{
		Log: d.Log.With("component", "control"), PID: d.PID, Version: d.Version, StartedBy: d.StartedBy,
		Begin: d.begin, File: d.file, Place: d.place, Env: d.env, Telemetry: d.telemetry, Workers: d.workers,
		Events: d.events, Servers: d.servers, Consults: d.consults, Rules: d.rules(),
		Stop: d.stopAsked, Upgrade: d.upgrade, Memory: new(footprint.Meter), Leaves: d.launcher.Leaves,
		Login: d.launcher.Login, Asker: d.asker, Troubles: d.troubles,
	}
	tools := append(d.consults.Tools(), tool.NewHealth(d.commands.Health), tool.NewTelemetry(d.commands.Snapshot),
		tool.NewFindTools(d.servers.Discover), tool.NewCallTool())
	cat, err := tool.NewCatalog(d.rules(), d.servers, tools...)
	if err != nil {
		return err
	}
	cat.LeftOut = d.file.LeftOut
	d.sessions = session.New(session.Options{
		Log: d.Log.With("component", "session"), Catalog: cat, Telemetry: d.telemetry,
		Info:         mcp.Implementation{Name: "holdline", Title: "Holdline", Version: d.Version},
		Instructions: instructions,
		CheckView:    d.rules().CheckView,
		Authorise:    d.rules().Authorise,
		Reserved:     d.rules().Reserved,
		Came:         d.launcher.Grants.Came,
		Welcome:      d.welcome,
		Lost:         d.place.Lost,
		MaxInFlight:  cfg.Limits.InFlight,
		MaxKept:      outbox.MaxBytes,
		Client:       peer.ClientOf,
		Alive:        peer.Peer.Alive,
		Executors:    executor.List{d.consults, d.servers},
		Hosted:       d.servers,
		Tasks:        tasks.Stores{d.consults, d.servers.Tasks()},
		RuntimeDir:   d.place.File(""),
		Still:        d.alone,
		Begun:        d.begin, // before the records are read: what they tell is kept longer than it is trusted
		Ended:        d.servers.Deserted(),
	})
	d.buildGuests()
	d.commands.Sessions, d.commands.Guests = d.sessions, d.guests
	d.buildRollout()
	return nil
}

// troubles returns for people what keeps the daemon itself from working as it should.
func (d *daemon) troubles() (list []string) {
	if log := d.LogTrouble(); log != "" {
		list = append(list, log)
	}
	if refused := d.listener.Trouble(); refused != "" {
		list = append(list, refused)
	}
	return list
}

// rules returns the rules of the configuration in force at each question.
func (d *daemon) rules() policy.Rules { return policy.CurrentRules(d.file.Current) }

// instructions tell a model when to look for our tools. Clients that load tools only when
// they are needed show nothing else of them.
var instructions = [][2]string{
	{"consult", "consult asks " + engines.Titles() + " on this machine for a second opinion on the project at " +
		"hand, read-only: use it for reviews, hard bugs and design questions. A long consult goes on in the " +
		"background: fetch it with consult_result."},
	{"health_snapshot", "health_snapshot says whether holdline is well."},
	{tool.FindTools, "More tools, of the MCP servers that are shared on this machine, are not listed: find_tools " +
		"finds them by words, call_tool calls them."},
}

// welcome returns the answer to a greeting.
func (d *daemon) welcome() protocol.Welcome {
	return protocol.Welcome{
		Store:          d.place.Store(),
		ResumeWindowMS: protocol.StartWindow.Milliseconds(),
		Daemon: protocol.DaemonInfo{
			Version: d.Version, PID: d.PID, Epoch: d.place.Generation(), Managed: d.Notifier.Managed(),
			State: d.StateDir,
		},
	}
}

// getenv returns a variable of the daemon's own environment.
func (d *daemon) getenv(name string) string {
	for _, kv := range d.Environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// serve runs the actors until the first one ends, stops the others, and returns the error of
// the first.
func (d *daemon) serve(ctx context.Context) error {
	d.listener = listener.New(listener.Options{
		Log: d.Log.With("component", "listener"), UIDs: []int{os.Geteuid()},
		MaxConns: d.file.Current().Limits.Connections, States: d.Paths.States(),
		Handlers: map[string]listener.Handler{
			protocol.RoleMCP: d.sessions.ServeConn,
			protocol.RoleControl: (&commands.Server{
				Log: d.Log.With("component", "control"), Welcome: d.welcome, Handlers: d.commands.Handlers(),
			}).ServeConn,
		},
	})
	if err := d.Paths.WritePlace(d.place.Socket(), d.getenv); err != nil {
		d.Log.WarnContext(ctx, "the next daemon may listen elsewhere, and not find what this one leaves", "err", err)
	}
	if err := d.Paths.WritePointer(d.place.Socket()); err != nil {
		d.Log.WarnContext(ctx, "proxies without XDG_RUNTIME_DIR will not find this daemon", "err", err)
	}
	var g run.Group
	addActor(ctx, &g, d.Log, "listener", func(ctx context.Context) error {
		return d.listener.Serve(ctx, d.place.Listener())
	})
	addActor(ctx, &g, d.Log, "guests", d.guests.Run)
	addActor(ctx, &g, d.Log, "control", d.control)
	addActor(ctx, &g, d.Log, "signals", d.signals)
	addActor(ctx, &g, d.Log, "environment", d.env.Run)
	addActor(ctx, &g, d.Log, "configuration", d.file.Watch)
	addActor(ctx, &g, d.Log, "watch", d.watch)
	addActor(ctx, &g, d.Log, "consults", func(ctx context.Context) error { return stopAfter(ctx, d.stopConsults) })
	addActor(ctx, &g, d.Log, "servers", func(ctx context.Context) error { return stopAfter(ctx, d.stopServers) })
	addActor(ctx, &g, d.Log, "rollout", d.rollout.Run)
	addActor(ctx, &g, d.Log, "reaper", d.reap)
	addActor(ctx, &g, d.Log, "pings", d.ping)
	addActor(ctx, &g, d.Log, "starts", d.forgetStarts)
	addActor(ctx, &g, d.Log, "notifications", d.notifier().Run)

	faultpoint.At("start.serving")
	d.telemetry.SetServing(true)
	d.Ready()
	if err := d.Notifier.Ready("serving at " + d.place.Socket()); err != nil {
		d.Log.WarnContext(ctx, "service manager not told", "err", err)
	}
	d.Log.InfoContext(ctx, "daemon ready", "socket", d.place.Socket(), "pid", d.PID, "version", d.Version,
		"epoch", d.place.Generation(), "started_by", d.StartedBy, "event", d.started())
	return g.Run()
}

// stopServers detaches the hosted servers, for the next daemon, or ends them if the
// user wants all to end.
func (d *daemon) stopServers(ctx context.Context) error {
	var err error
	if d.endAll.Load() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace+d.endTime())
		err = d.servers.EndAll(ending)
		cancel()
	}
	d.asker.Close()
	return errors.Join(err, d.servers.Close(ctx))
}

// control blocks until some part of the daemon asks it to stop, or ctx is done, and begins
// the stop. It returns why.
func (d *daemon) control(ctx context.Context) error {
	var why error
	select {
	case <-ctx.Done():
		why = context.Cause(ctx)
	case why = <-d.asked:
	}
	d.stopping(ctx, why)
	return why
}

// stopping is the first step of every stop: it starts the watchdog and informs the
// service manager. If the user has asked for the stop it also informs the proxies, and
// waits a moment for them to disconnect.
func (d *daemon) stopping(ctx context.Context, why error) {
	watchdog(stopLimit+d.endTime(), d.Stderr, d.FlushLog)
	_ = d.Notifier.Stopping()
	d.Log.InfoContext(ctx, "stopping", "why", why)
	faultpoint.At("stop.begun")
	if errors.Is(why, errAsked) {
		if err := place.MarkStopped(d.place.Dir()); err != nil {
			d.Log.WarnContext(ctx, "proxies may start a daemon again", "err", err)
		}
		faultpoint.At("stop.marked")
		if d.removed.Load() {
			d.sessions.Farewell(protocol.ByeRemoved, "Holdline was uninstalled; restart the agent")
		} else {
			d.sessions.Farewell(protocol.ByeStopped, socket.StoppedWords)
		}
		faultpoint.At("stop.told")
		// The proxies answer what is outstanding and disconnect. The listener closes
		// the connections of those that do not.
		poll(context.WithoutCancel(ctx), 10*time.Millisecond, byeTime, func() bool {
			return len(d.sessions.Sessions()) == 0
		})
	}
}

// stopAsked begins to stop because the user wants that, and ends workers and consults, too, if that is
// asked for.
func (d *daemon) stopAsked(p control.StopParams) {
	if p.All {
		d.endAll.Store(true)
	}
	if p.Uninstall {
		d.removed.Store(true)
	}
	d.beginStop(errAsked)
}

// beginStop begins to stop; only the first reason counts.
func (d *daemon) beginStop(why error) {
	d.leave.Lock()
	defer d.leave.Unlock()
	d.leaving = true
	select {
	case d.asked <- why:
	default:
	}
}

// signals stops the daemon at SIGTERM and SIGINT, and reloads it at SIGHUP.
func (d *daemon) signals(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case sig := <-d.Signals:
			if sig != syscall.SIGHUP {
				d.beginStop(fmt.Errorf("%w: %v", errSignal, sig))
				continue
			}
			d.env.Refresh()
			d.reload(ctx)
		}
	}
}

// still reports whether clients still find this daemon. If not, the daemon stops.
func (d *daemon) still() bool { return d.stopUnless(d.place.OwnsPaths()) }

// alone reports whether no other daemon can be at work. If one can, this one stops.
func (d *daemon) alone() bool { return d.stopUnless(d.place.OwnsLock()) }

// stopUnless begins to stop the daemon if still is false. It returns still.
func (d *daemon) stopUnless(still bool) bool {
	if !still {
		d.beginStop(errDisowned)
	}
	return still
}

// watch checks every few seconds that clients still find this daemon, stops it when it
// was idle for long enough, and gives memory back when little happens.
func (d *daemon) watch(ctx context.Context) error {
	every := watchEvery
	if d.IdleExit > 0 {
		every = min(every, max(d.IdleExit/4, 10*time.Millisecond))
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	busy := time.Now()
	lost := false // the pointer to this daemon cannot be written
	var memory sync.WaitGroup
	memory.Go(func() { heap.GiveBack(ctx, 0) })
	defer memory.Wait()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if !d.still() {
			continue
		}
		err := d.Paths.KeepPointer(d.place.Socket())
		if err != nil && !lost {
			d.Log.WarnContext(ctx, "proxies without XDG_RUNTIME_DIR will not find this daemon", "err", err)
		}
		lost = err != nil
		running, queued, _ := d.consults.Counts()
		if running+queued+len(d.sessions.Sessions())+d.servers.Tasks().Working() > 0 {
			busy = time.Now()
		}
		if d.IdleExit > 0 && time.Since(busy) >= d.IdleExit {
			d.beginStop(errIdle)
		}
	}
}
