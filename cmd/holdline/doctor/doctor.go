// Package doctor checks everything that a user could have wrong. It changes nothing.
//
// Each check returns a [Finding], or several: what is the case, and, if that is not as it
// should be, why it matters and what fixes it. The files are sorted by what they look at:
//
//	doctor.go    configuration, directories, the running daemon
//	machine.go   PATH and programs of hosted servers, disks, locks, orphaned processes
//	systemd.go   units of systemd; launchd.go: the LaunchAgent of macOS
//	clients.go   configurations of MCP clients
//	engines.go   consult programs, and what enforces their levels
//	logins.go    logins of remote servers
//	servers.go   hosted servers of the running daemon
//	hosts.go     machines and containers on which servers run
//	consults.go  files of consults
//	others.go    other daemons of this user, workers that were put aside
//
// Checks do not depend on each other, with two exceptions: the programs of servers are
// looked for on the PATH that another check has found, and a server whose program or host
// is missing has one finding about that and no other.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/importer"
	"holdline/cmd/holdline/pair"
	"holdline/daemon/config"
	"holdline/daemon/configfile"
	"holdline/daemon/service"
	"holdline/daemon/shellword"
	"holdline/daemon/spelling"
	"holdline/daemon/statedir"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

// State is the severity of a finding.
type State string

// The states. Only a problem makes the command fail.
const (
	OK      State = "ok"
	Note    State = "note"
	Problem State = "problem"
)

// Finding is the outcome of one check. Its texts are for people; scripts go by Check and
// State.
type Finding struct {
	Check string `json:"check"`
	State State  `json:"state"`
	What  string `json:"what"`
	Why   string `json:"why,omitempty"` // why that matters; "" if it is OK
	Fix   string `json:"fix,omitempty"` // what the user does about it; "" if it is OK
	// Unused says that a note is about something that the user has not set up, such as a program
	// that no consult has asked for. People see it only if they ask for all.
	Unused bool `json:"-"`
}

// with returns the finding with an outcome that is not [OK]. Each must say why it matters and
// what to do about it.
func (f Finding) with(state State, what, why, fix string) Finding {
	return Finding{Check: f.Check, State: state, What: what, Why: why, Fix: fix}
}

// Options are what the checks need to know. Functions among them are called by the checks;
// tests replace them. The last four fields are set by checks, for those that come later.
type Options struct {
	Paths     socket.Paths
	StateDir  string
	Config    string         // path of the configuration file
	ConfigErr error          // of reading it
	Loaded    *config.Config // nil if it could not be read
	Home      string
	Environ   []string // of this process
	// LoginPath asks the login shell for its PATH, which may take seconds.
	LoginPath func(context.Context) (string, error)
	Units     service.Units
	Program   string // path of this program as it was called
	Linger    string // the file that exists if this user lingers (see logind.conf)
	// LaunchAgents is the directory of this user's LaunchAgents; "" on systems without
	// launchd. Launchctl runs a command of launchd.
	LaunchAgents string
	Launchctl    func(ctx context.Context, args ...string) error
	// Check checks the consult program of an engine as the next daemon will find it. It is
	// called if no daemon runs. It is nil if it is not known where the configuration is.
	Check func(ctx context.Context, engine string) control.CheckAnswer
	// Clients returns what an import of the MCP clients on this machine would do.
	Clients func() (*importer.Plan, error)

	refused     bool                       // there is a finding about the configuration file
	path        string                     // the PATH of hosted servers, as far as it is known
	missing     []string                   // servers whose program does not exist, or whose host cannot be reached
	environment *control.EnvironmentAnswer // what the running daemon says of it; nil if none runs
}

// limit bounds the checks of the machine, and those of the daemon: four times what a daemon
// has to greet.
func limit() time.Duration { return 4 * protocol.GreetingTimeout }

// Run makes all checks and returns their findings. It takes three times [limit] at most, and no
// error ends it: what cannot be found out is a finding, too. The checks of systemd come first: a
// later connection to the daemon may make systemd start it. A slow machine takes no time from
// the checks of the daemon: it would look as if the daemon hung.
func Run(ctx context.Context, o Options) []Finding {
	found := append(checkSurroundings(ctx, &o), o.checkHosts(ctx)...)
	ctx, cancel := context.WithTimeout(ctx, limit())
	defer cancel()
	conn, path, err := o.Paths.Dial(ctx)
	// Without a daemon it counts what the next one would find.
	if err != nil {
		found = append(found, checkSocketDir(o.Paths.Start()), noDaemon(o, err))
		if o.Check == nil {
			return found
		}
		ask := func(engine string) (control.CheckAnswer, error) { return o.Check(ctx, engine), nil }
		return append(found, o.checkEngines(ask, "the next daemon")...)
	}
	found = append(found, checkSocketDir(path))
	found = append(found, asideWorkers(filepath.Dir(path))...)
	return append(found, checkDaemon(ctx, o, conn, path)...)
}

// checkSurroundings makes the checks that need no daemon. It takes [limit] at most.
func checkSurroundings(ctx context.Context, o *Options) []Finding {
	ctx, cancel := context.WithTimeout(ctx, limit())
	defer cancel()
	found := append([]Finding{checkConfiguration(*o)}, checkLeftOut(o.Loaded)...)
	found = append(found, o.checkLaunchers()...)
	o.refused = found[0].State == Problem
	found = append(found, checkStateDir(*o), checkSmall(o.Program))
	found = append(found, checkSystemd(ctx, *o)...)
	found = append(found, checkLaunchd(ctx, *o)...)
	found = append(found, checkMachine(ctx, o)...)
	found = append(found, checkLogins(*o)...)
	return append(found, checkClients(*o)...)
}

// checkConfiguration checks that the configuration file can be read. A missing file is fine:
// then all defaults are in force.
func checkConfiguration(o Options) Finding {
	f := Finding{Check: "configuration", State: OK, What: o.Config}
	if o.ConfigErr != nil {
		why := "no daemon starts with it; one that runs goes on with the configuration before it"
		good := configfile.CopyPath(o.StateDir, o.Config)
		if _, err := os.Stat(good); err == nil {
			why = "a daemon that runs goes on with the configuration before it, and one that starts serves by the copy of " +
				"the file's last good state, " + good
		}
		return f.with(Problem, o.ConfigErr.Error(), why, "correct the file; a running daemon reads it by itself")
	}
	if err := configfile.CheckNothing(o.StateDir, o.Config); err != nil {
		return f.with(Problem, err.Error(), "the daemon serves by the copy of the file's last good state",
			"to have the settings back: cp "+shellword.Quote(configfile.CopyPath(o.StateDir, o.Config))+" "+
				shellword.Quote(o.Config))
	}
	if _, err := os.Stat(o.Config); errors.Is(err, os.ErrNotExist) {
		f.What += " (not there: all defaults)"
	}
	return f
}

// checkLeftOut returns a finding for each server that the daemon leaves out although nobody has switched it
// off. c is nil if the file could not be read.
func checkLeftOut(c *config.Config) (found []Finding) {
	if c == nil {
		return nil
	}
	wrong := c.Unusable()
	for _, name := range spelling.Sorted(maps.Keys(wrong)) {
		f := Finding{Check: "server " + name}
		found = append(found, f.with(Problem, wrong[name].Error(), "agents do not have its tools; the other servers are served",
			"correct its entry; a running daemon reads the file by itself"))
	}
	return found
}

// checkStateDir checks that the daemon can write into its state directory, and that other
// users cannot read it.
func checkStateDir(o Options) Finding {
	f := Finding{Check: "state directory", State: OK, What: o.StateDir}
	info, err := os.Stat(o.StateDir)
	// The daemon makes the directory at its start, if it can.
	switch at := nearest(o.StateDir); {
	case errors.Is(err, os.ErrNotExist) && unix.Access(at, unix.W_OK|unix.X_OK) != nil:
		return f.with(Problem, fmt.Sprintf("%s is not there, and cannot be made in %s", o.StateDir, at),
			"no daemon starts without it",
			"make "+at+" a directory that you can write to, or set XDG_STATE_HOME to one")
	case errors.Is(err, os.ErrNotExist):
		f.What += " (not there yet)"
	case err != nil:
		return f.with(Problem, err.Error(), "no daemon starts without it", "make it a directory that you own")
	case !info.IsDir():
		return f.with(Problem, o.StateDir+" is no directory", "no daemon starts without it",
			moveAway(o.StateDir)+", or set XDG_STATE_HOME to a directory")
	case info.Mode().Perm()&0o077 != 0:
		return f.with(Problem, fmt.Sprintf("%s has mode %v", o.StateDir, info.Mode()),
			"it holds consults and logs that others must not read", "chmod 700 "+shellword.Quote(o.StateDir))
	case unix.Access(o.StateDir, unix.W_OK|unix.X_OK) != nil:
		return f.with(Problem, o.StateDir+" cannot be written to", "the daemon keeps all that it knows there",
			"make it a directory that you can write to, or set XDG_STATE_HOME to one")
	}
	return f
}

// checkSmall checks that the proxies of agents that start the program at path, and the workers
// of its daemon, run the small program beside it.
func checkSmall(path string) Finding {
	f := Finding{Check: "holdline-stdio", State: OK}
	small, err := pair.SmallOf(path)
	if err != nil {
		return f.with(Note, err.Error(),
			"everything works, but the proxy of each agent and the worker of each server take twice the memory",
			"install both files of one release: ./holdline install --bin, where they were unpacked")
	}
	f.What = small
	return f
}

// nearest returns path if it exists, or else the nearest directory above it that does. That is
// where the daemon would have to make directories.
func nearest(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// checkSocketDir makes the daemon's own check of the directory of the socket at path: only this
// user may be able to change it. A daemon makes a directory that is missing.
func checkSocketDir(path string) Finding {
	dir := filepath.Dir(path)
	f := Finding{Check: "socket directory", State: OK, What: dir}
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		f.What += " (not there yet)"
		return f
	}
	d, err := socket.OpenDir(path)
	if err != nil {
		return f.with(Problem, err.Error(), "no daemon listens in a directory that others could change",
			"remove it, or set HOLDLINE_SOCKET to a path elsewhere")
	}
	d.Close()
	return f
}

// noDaemon returns the finding about a daemon that does not listen. err is that of the
// connection.
func noDaemon(o Options, err error) Finding {
	f := Finding{Check: "daemon"}
	if !errors.Is(err, socket.ErrNoDaemon) {
		return f.with(Problem, err.Error(), "agents cannot connect",
			"see holdline logs, or set HOLDLINE_SOCKET to a path elsewhere")
	}
	// A daemon that holds its lock and does not listen keeps others from starting.
	lock := filepath.Join(filepath.Dir(o.Paths.Start()), socket.LockFile)
	held, _ := statedir.Held(lock) // without that file there is none
	other, since, at, noOther := statedir.HolderOf(filepath.Join(o.StateDir, socket.LockFile))
	switch {
	case held:
		return f.with(Problem, statedir.WhoHolds(lock)+" holds the daemon's lock and does not listen",
			"no other daemon can start", "end that process, with kill -9 if need be")
	case noOther == nil && process.IsAlive(other, since):
		return f.with(Problem, fmt.Sprintf("no daemon runs, and daemon %d at %s uses the state directory", other, at),
			"no other daemon can start with that", fmt.Sprintf("holdline stop --socket %s; "+
				"or use that daemon: %s=%s; or set XDG_STATE_HOME to another directory", at, socket.Env, at))
	case o.Paths.Stopped() != nil:
		return f.with(Note, o.Paths.Stopped().Error()+", until holdline start",
			"agents get no tools from it", "holdline start")
	case o.Units.Enabled() && o.Units.Running():
		return f.with(Note, "no daemon runs",
			"systemd is to start it, and does not listen", "see the findings about systemd")
	}
	return f.with(Note, "no daemon runs", "it starts when an agent first connects", "holdline start")
}

// WayOut returns what to do about a daemon that hangs, for people.
func WayOut(pid int) string {
	return fmt.Sprintf("holdline stop --all kills it and ends what it runs; "+
		"or: kill -9 %d, after which the next daemon goes on with that", pid)
}

// checkDaemon asks the daemon behind conn for its status and judges that. path is that of its
// socket. It closes conn. If the daemon does not answer, the checks that need its status are
// left out.
func checkDaemon(ctx context.Context, o Options, conn net.Conn, path string) []Finding {
	f := Finding{Check: "daemon", State: OK}
	c, err := control.NewClientOf(ctx, conn, cmdenv.Version, o.Paths.State())
	if err != nil {
		return []Finding{noWelcome(f, path, err)}
	}
	defer c.Close()
	f.What = fmt.Sprintf("pid %d, version %s, at %s", c.Daemon.PID, c.Daemon.Version, path)
	found := append([]Finding{f}, otherDaemons(o, c.Daemon, path)...)
	running := o.workers(filepath.Dir(path)) // first: a daemon knows each worker before it starts
	var status control.StatusAnswer
	if err := c.Call(ctx, control.Status, nil, &status, nil); err != nil {
		return append(found, Finding{Check: "status"}.with(Problem, err.Error(),
			"the daemon does not answer", "holdline logs, then: "+WayOut(c.Daemon.PID)))
	}
	found = append(found, compareVersions(c.Daemon.Version, status.Sessions))
	found = append(found, checkServers(status.Servers, o.missing)...)
	found = append(found, checkConsultFiles(&status.Consults)...)
	found = append(found, checkWorkers(ctx, c, running, status.Workers)...)
	add := func(check, what, why, fix string) {
		found = append(found, Finding{Check: check, State: Problem, What: what, Why: why, Fix: fix})
	}
	if d := status.Daemon; d.Degraded != "" {
		add("daemon health", d.Degraded, "the daemon works with less than it should", "holdline logs")
	}
	for i := range status.Differs {
		what, fix := status.Differs[i].Words()
		add("environment of server "+status.Differs[i].Server, what,
			"the server may work on something else than the agent's user means", fix)
	}
	if d := status.Daemon; d.ConfigRefused != "" && (!o.refused || d.Config != o.Config) { // once
		why := "the daemon goes on with the configuration before it"
		if d.ConfigCopy != "" {
			why = "the daemon serves by the copy of the file's last good state, " + d.ConfigCopy
		}
		add("configuration in force", d.Config+" is refused: "+d.ConfigRefused, why,
			"correct the file; the daemon reads it by itself")
	}
	if d := status.Daemon; d.Refusal != "" {
		add("upgrade", "the binary that was installed is not used: "+d.Refusal,
			"version "+c.Daemon.Version+" goes on", "install it again, then: holdline upgrade")
	}
	return append(found, o.checkEngines(func(engine string) (check control.CheckAnswer, err error) {
		params := control.CheckParams{Engine: engine, Logins: protocol.LoginVariables(o.Environ)}
		return check, c.Call(ctx, control.ConsultCheck, params, &check, nil)
	}, "the daemon")...)
}

// noWelcome returns the finding about a program that listens at path and does not welcome this
// one: a daemon that hangs, another version, or another program.
func noWelcome(f Finding, path string, err error) Finding {
	// The lock names the daemon even if the daemon says nothing.
	pid, _, herr := statedir.Holder(filepath.Join(filepath.Dir(path), socket.LockFile))
	if herr == nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return f.with(Problem, fmt.Sprintf("daemon %d at %s does not answer", pid, path),
			"it hangs: agents wait for it, and no other daemon can start", WayOut(pid))
	}
	why := "something listens there that does not speak this holdline's protocol, or hangs"
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		why = refusal.Message
	}
	return f.with(Problem, fmt.Sprintf("%s: %v", path, err), why,
		"holdline stop, with the binary that the daemon was started from, then holdline start; or kill it")
}

// compareVersions compares the versions of this program, the daemon and the proxies. Different
// ones work together, so they are only noted.
func compareVersions(daemon string, sessions []control.Session) Finding {
	f := Finding{Check: "versions", State: OK, What: "command, daemon and proxies are all " + cmdenv.Version}
	// A proxy is compared with the daemon only if this command is of the same version.
	if daemon != cmdenv.Version {
		return f.with(Note, fmt.Sprintf("this command is %s, the daemon %s", cmdenv.Version, daemon),
			"the daemon was started from another binary",
			"holdline upgrade, if its binary was replaced; else holdline stop && holdline start")
	}
	// Proxies get no new program while they run, so after an upgrade old ones are usual.
	var older []string
	for _, s := range sessions {
		if s.Proxy != "" && s.Proxy != daemon {
			older = append(older, fmt.Sprintf("%s (session %s, pid %d)", s.Proxy, s.ID, s.PID))
		}
	}
	if len(older) > 0 {
		return f.with(Note, "proxies of other versions: "+strings.Join(older, ", "),
			"proxies live as long as their agents; this is normal after an upgrade",
			"restart those agents when it suits")
	}
	return f
}
