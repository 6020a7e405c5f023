// Package doctor checks what a user could have wrong, and says for each
// finding what is wrong, why that matters and how to mend it. It changes
// nothing.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdline/daemon/config"
	"holdline/daemon/service"
	"holdline/daemon/statedir"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

// State of a finding.
type State string

// The states. Only a problem makes the command fail.
const (
	OK      State = "ok"
	Note    State = "note"
	Problem State = "problem"
)

// Finding is the outcome of one check.
type Finding struct {
	Check string `json:"check"`
	State State  `json:"state"`
	What  string `json:"what"`
	Why   string `json:"why,omitempty"`
	Mend  string `json:"mend,omitempty"`
}

// Options are what the checks need to know.
type Options struct {
	Version   string // of this program
	PID       int
	Paths     socket.Paths
	StateDir  string
	Config    string         // path of the configuration file
	ConfigErr error          // what reading it gave
	Loaded    *config.Config // nil if it could not be read
	Home      string
	Environ   []string // of this process
	// LoginPath asks the login shell for its PATH.
	LoginPath func(context.Context) (string, error)
	Units     service.Units
	Linger    string // the file by which logind knows that this user lingers
	// LaunchAgents is the directory of this user's LaunchAgents; "" where there is
	// no launchd, of which Launchctl asks something.
	LaunchAgents string
	Launchctl    func(ctx context.Context, args ...string) error
	// Check checks the consult program of an engine as this process sees it; used
	// if no daemon runs.
	Check func(ctx context.Context, engine string) control.CheckAnswer
	// Clients are the MCP clients that are found here.
	Clients func() ([]Client, error)

	missing []string                   // servers whose program was found to be nowhere
	sees    *control.EnvironmentAnswer // what the daemon that runs knows; nil if none does
}

// timeout bounds all questions to the daemon.
const timeout = 20 * time.Second

// Run makes all checks.
func Run(ctx context.Context, o Options) []Finding {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var found []Finding
	found = append(found, configuration(o), state(o))
	found = append(found, systemd(ctx, o)...) // before a connection makes systemd start something
	found = append(found, launchd(ctx, o)...)
	found = append(found, machine(ctx, &o)...)
	found = append(found, clients(o)...)
	conn, path, err := o.Paths.Dial(ctx)
	if err != nil {
		found = append(found, directory(o.Paths.Start()), absent(o, err))
		return append(found, o.consults(func(engine string) (control.CheckAnswer, error) { return o.Check(ctx, engine), nil }, "this shell")...)
	}
	found = append(found, directory(path))
	found = append(found, aside(filepath.Dir(path))...)
	return append(found, daemon(ctx, o, conn, path)...)
}

func configuration(o Options) Finding {
	f := Finding{Check: "configuration", State: OK, What: o.Config}
	if o.ConfigErr != nil {
		f.State, f.What = Problem, o.ConfigErr.Error()
		f.Why = "a running daemon keeps the configuration before it; one that starts uses a copy of the last good one, if there is one"
		f.Mend = "correct the file; a running daemon reads it by itself"
	} else if _, err := os.Stat(o.Config); errors.Is(err, os.ErrNotExist) {
		f.What += " (not there: all defaults)"
	}
	return f
}

func state(o Options) Finding {
	f := Finding{Check: "state directory", State: OK, What: o.StateDir}
	info, err := os.Stat(o.StateDir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		f.What += " (not there yet)"
		if at := nearest(o.StateDir); unix.Access(at, unix.W_OK|unix.X_OK) != nil {
			f.State, f.What = Problem, fmt.Sprintf("%s is not there, and cannot be made in %s", o.StateDir, at)
			f.Why, f.Mend = "no daemon starts without it", "make "+at+" a directory that you can write to, or set XDG_STATE_HOME to one"
		}
	case err != nil:
		f.State, f.What = Problem, err.Error()
		f.Why, f.Mend = "no daemon starts without it", "make it a directory that you own"
	case !info.IsDir() || info.Mode().Perm()&0o077 != 0:
		f.State, f.What = Problem, fmt.Sprintf("%s has mode %v", o.StateDir, info.Mode())
		f.Why, f.Mend = "it holds consults and logs that others must not read", "chmod 700 "+o.StateDir
	case unix.Access(o.StateDir, unix.W_OK|unix.X_OK) != nil:
		f.State, f.What = Problem, o.StateDir+" cannot be written to"
		f.Why, f.Mend = "the daemon keeps all that it knows there", "make it a directory that you can write to, or set XDG_STATE_HOME to one"
	}
	return f
}

// nearest is what is there of a path: the path, or the nearest directory above.
func nearest(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// directory looks at the socket's directory as the daemon will.
func directory(path string) Finding {
	dir := filepath.Dir(path)
	f := Finding{Check: "socket directory", State: OK, What: dir}
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		f.What += " (not there yet)"
		return f
	}
	d, err := socket.OpenDir(path)
	if err != nil {
		f.State, f.What = Problem, err.Error()
		f.Why, f.Mend = "no daemon listens in a directory that others could change", "remove it, or set HOLDLINE_SOCKET to a path elsewhere"
		return f
	}
	d.Close()
	return f
}

func absent(o Options, err error) Finding {
	f := Finding{Check: "daemon", State: Note, What: "no daemon runs", Why: "it starts when an agent first connects", Mend: "holdline daemon"}
	if o.Units.Enabled() && o.Units.Running() {
		f.Why, f.Mend = "systemd is to start it, and does not listen", "as said of systemd"
	}
	if !errors.Is(err, socket.ErrNoDaemon) {
		f.State, f.What = Problem, err.Error()
		f.Why, f.Mend = "agents cannot connect", "see the README's troubleshooting section, or set HOLDLINE_SOCKET"
	}
	pid, start, err := statedir.Holder(filepath.Join(filepath.Dir(o.Paths.Start()), socket.LockFile))
	if err == nil && f.State == Note {
		if now, err := process.Lookup(pid); err == nil && now.Start == start {
			f.State, f.What = Problem, fmt.Sprintf("process %d holds the daemon's lock and does not listen", pid)
			f.Why, f.Mend = "no other daemon can start", fmt.Sprintf("kill -9 %d", pid)
		}
	}
	return f
}

// WayOut is what to do about a daemon that hangs.
func WayOut(pid int) string {
	return fmt.Sprintf("holdline stop --all kills it and ends what it runs; or: kill -9 %d, after which the next daemon goes on with that", pid)
}

func daemon(ctx context.Context, o Options, conn net.Conn, path string) []Finding {
	f := Finding{Check: "daemon", State: OK}
	c, err := control.NewClient(ctx, conn, o.Version, o.PID)
	if err != nil {
		f.State, f.What = Problem, fmt.Sprintf("%s: %v", path, err)
		f.Why = "something listens there that does not speak this holdline's protocol, or hangs"
		f.Mend = "holdline stop, with the binary that the daemon was started from; or kill it"
		if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
			f.Why = refusal.Message
		}
		if pid, _, herr := statedir.Holder(filepath.Join(filepath.Dir(path), socket.LockFile)); herr == nil && errors.Is(err, os.ErrDeadlineExceeded) {
			f.What = fmt.Sprintf("daemon %d at %s does not answer", pid, path)
			f.Why, f.Mend = "it hangs: agents wait for it, and no other daemon can start", WayOut(pid)
		}
		return []Finding{f}
	}
	defer c.Close()
	f.What = fmt.Sprintf("pid %d, version %s, at %s", c.Daemon.PID, c.Daemon.Version, path)
	found := append([]Finding{f}, others(o, c.Daemon, path)...)
	var status control.StatusAnswer
	if err := c.Call(ctx, control.Status, nil, &status, nil); err != nil {
		return append(found, Finding{Check: "status", State: Problem, What: err.Error(), Why: "the daemon does not answer", Mend: "holdline logs, then: " + WayOut(c.Daemon.PID)})
	}
	found = append(found, skew(o, c.Daemon.Version, status.Sessions))
	found = append(found, servers(status.Servers, o.missing)...)
	if status.Daemon.Degraded != "" {
		found = append(found, Finding{Check: "daemon health", State: Problem, What: status.Daemon.Degraded, Why: "the daemon works with less than it should", Mend: "holdline logs"})
	}
	if status.Daemon.ConfigRefused != "" {
		found = append(found, Finding{
			Check: "configuration in force", State: Problem, What: status.Daemon.Config + " is refused: " + status.Daemon.ConfigRefused,
			Why:  cmp.Or(copyInForce(status.Daemon.ConfigCopy), "the daemon goes on with the configuration before it"),
			Mend: "correct the file; the daemon reads it by itself",
		})
	}
	if status.Daemon.Refusal != "" {
		found = append(found, Finding{
			Check: "upgrade", State: Problem, What: "the binary that was installed is not used: " + status.Daemon.Refusal,
			Why: "version " + c.Daemon.Version + " goes on", Mend: "install it again, then: holdline upgrade",
		})
	}
	return append(found, o.consults(func(engine string) (check control.CheckAnswer, err error) {
		err = c.Call(ctx, control.ConsultCheck, control.CheckParams{Engine: engine, Logins: protocol.LoginVariables(o.Environ)}, &check, nil)
		return check, err
	}, "the daemon")...)
}

// copyInForce says that the daemon serves by the copy at path; "" if there is none.
func copyInForce(path string) string {
	if path == "" {
		return ""
	}
	return "the daemon serves by the copy of the last good one, " + path
}

// skew compares the versions of this program, the daemon and the proxies.
func skew(o Options, daemon string, sessions []control.Session) Finding {
	f := Finding{Check: "versions", State: OK, What: "command, daemon and proxies are all " + o.Version}
	if daemon != o.Version {
		f.State, f.What = Note, fmt.Sprintf("this command is %s, the daemon %s", o.Version, daemon)
		f.Why, f.Mend = "the daemon was started from another binary", "holdline upgrade, if its binary was replaced; else holdline stop, and the next agent starts this one"
		return f
	}
	var older []string
	for _, s := range sessions {
		if s.Proxy != "" && s.Proxy != daemon {
			older = append(older, fmt.Sprintf("%s (session %s, pid %d)", s.Proxy, s.ID, s.PID))
		}
	}
	if len(older) > 0 {
		f.State, f.What = Note, "proxies of other versions: "+strings.Join(older, ", ")
		f.Why, f.Mend = "proxies live as long as their agents; this is normal after an upgrade", "restart those agents when it suits"
	}
	return f
}
