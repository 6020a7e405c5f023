package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"holdline/contrib"
)

// Bounds of systemctl.
const (
	askTimeout = 10 * time.Second // from its start to its answer; on a busy machine that takes seconds
	endTimeout = time.Second      // until its output is closed, once it was killed
)

// Units are holdline's units of this user's systemd, as they lie in files. Make
// it with [FindUnits]. On a system without systemd none is installed.
type Units struct {
	runtime string   // the user's runtime directory
	dirs    []string // of units, in order of precedence
}

// FindUnits returns where units are in this environment (systemd.unit(5)). It reads no
// file.
func FindUnits(env func(string) string) Units {
	u := Units{runtime: env("XDG_RUNTIME_DIR")}
	if !filepath.IsAbs(u.runtime) { // some clients clear the environment
		u.runtime = filepath.Join("/run/user", strconv.Itoa(os.Geteuid()))
	}
	base := func(variable, fallback string) string {
		if dir := env(variable); filepath.IsAbs(dir) {
			return dir
		}
		return filepath.Join(env("HOME"), fallback)
	}
	config, data := base("XDG_CONFIG_HOME", ".config"), base("XDG_DATA_HOME", ".local/share")
	for _, dir := range []string{
		config, "/etc", u.runtime, "/run", data, "/usr/local/share", "/usr/share", "/usr/local/lib", "/usr/lib",
	} {
		if filepath.IsAbs(dir) {
			u.dirs = append(u.dirs, filepath.Join(dir, "systemd", "user"))
		}
	}
	return u
}

// File returns the path of a unit's file; "" if the unit is not installed. A masked unit
// is installed.
func (u Units) File(name string) string {
	for _, dir := range u.dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return ""
}

// Enabled reports whether systemd listens at the socket from each login on.
func (u Units) Enabled() bool {
	for _, dir := range u.dirs {
		// The target of the link may be gone; that is systemd's concern.
		if _, err := os.Lstat(filepath.Join(dir, "sockets.target.wants", contrib.SystemdSocket)); err == nil {
			return u.File(contrib.SystemdSocket) != "" && !isMasked(u.File(contrib.SystemdSocket))
		}
	}
	return false
}

// isMasked reports whether systemd never starts a unit.
func isMasked(path string) bool {
	to, err := os.Readlink(path)
	return err == nil && to == os.DevNull
}

// Running reports whether this user has a systemd that runs.
func (u Units) Running() bool {
	info, err := os.Lstat(filepath.Join(u.runtime, "systemd", "private"))
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// Socket returns where the socket unit listens.
func (u Units) Socket() string { return filepath.Join(u.runtime, "holdline", "daemon.sock") }

// Listens reports whether systemd can listen at the socket path: it runs, and a unit for that is installed.
func (u Units) Listens(path string) bool {
	return path == u.Socket() && u.Running() && u.File(contrib.SystemdSocket) != ""
}

// UnitState is what systemd says of a unit.
type UnitState struct {
	Load       string // loaded, not-found, bad-setting, masked …
	Active     string // active, inactive, failed, activating …
	Result     string // success, start-limit-hit, exit-code, watchdog …
	NeedReload bool   // its file has changed since systemd has read it
	Restarts   int    // of a service, by systemd
}

// Failed reports whether systemd starts the unit only once the user asks for it.
func (s UnitState) Failed() bool { return s.Active == "failed" }

// Ask asks systemd for the states of the units, and blocks for up to askTimeout. It
// returns an error if systemctl fails or prints something else, as it does where no
// systemd runs.
func (u Units) Ask(ctx context.Context) (socket, service UnitState, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := u.systemctl(ctx, "show", "--property=Id,LoadState,ActiveState,Result,NeedDaemonReload,NRestarts",
		contrib.SystemdSocket, contrib.SystemdService).Output()
	if err != nil {
		return socket, service, fmt.Errorf("systemctl --user show: %w", late(ctx, err))
	}
	found := map[string]*UnitState{contrib.SystemdSocket: &socket, contrib.SystemdService: &service}
	for block := range strings.SplitSeq(string(out), "\n\n") {
		state, id := parseState(block)
		if to := found[id]; to != nil {
			*to = state
			delete(found, id)
		}
	}
	if len(found) > 0 {
		return socket, service, errors.New("systemctl --user show: it does not show all units that it was asked for")
	}
	return socket, service, nil
}

// ForgetStarts resets systemd's count of starts of the service. A daemon that is killed
// often, and serves in between, must not reach the limit that stops one which cannot
// start.
func (u Units) ForgetStarts(ctx context.Context) error {
	return u.tell(ctx, "reset-failed", contrib.SystemdService)
}

// StartSocket has systemd listen for the daemon.
func (u Units) StartSocket(ctx context.Context) error {
	return u.tell(ctx, "start", contrib.SystemdSocket)
}

// StopSocket has systemd listen no more. The service, which needs the socket unit, goes on: the daemon ends in its
// own way.
func (u Units) StopSocket(ctx context.Context) error {
	return u.tell(ctx, "stop", "--job-mode=ignore-dependencies", contrib.SystemdSocket)
}

// GiveUp has systemd stop the service and returns at once: then the end of its daemon is no failure, after which
// systemd would start the next one.
func (u Units) GiveUp(ctx context.Context) error {
	return u.tell(ctx, "stop", "--no-block", contrib.SystemdService)
}

// tell has systemctl do something about units, for up to askTimeout.
func (u Units) tell(ctx context.Context, verb string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if out, err := u.systemctl(ctx, append([]string{verb}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl --user %s: %w: %s", verb, late(ctx, err), bytes.TrimSpace(out))
	}
	return nil
}

// late returns the error of a command that was killed since its time had passed: in words, not that it was killed.
func late(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errLate
	}
	return err
}

var errLate = errors.New("no answer in time")

// systemctl returns a command to the user's systemd.
func (u Units) systemctl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "systemctl", append([]string{"--user"}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/local/bin", "XDG_RUNTIME_DIR=" + u.runtime, "LC_ALL=C"}
	cmd.WaitDelay = endTimeout
	return cmd
}

// parseState reads what `systemctl show` prints of one unit, a line for each property,
// and returns the unit's id with its state. Properties that are missing stay empty.
func parseState(block string) (s UnitState, id string) {
	for line := range strings.Lines(block) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "Id":
			id = value
		case "LoadState":
			s.Load = value
		case "ActiveState":
			s.Active = value
		case "Result":
			s.Result = value
		case "NeedDaemonReload":
			s.NeedReload = value == "yes"
		case "NRestarts":
			s.Restarts, _ = strconv.Atoi(value)
		}
	}
	return s, id
}

// Absence says why systemd, which is to listen for the daemon, does not, and what to do
// about it.
type Absence struct{ Why, Hint string }

// Reset is the command that starts units which have failed.
const Reset = "systemctl --user reset-failed holdline.service holdline.socket; systemctl --user start holdline.socket"

// StartLimit is the result of a socket unit whose service has failed too often in a row.
const StartLimit = "service-start-limit-hit"

// Absent returns why no process listens at the socket of units that are enabled, or nil if
// systemd is about to listen.
func (u Units) Absent(ctx context.Context) *Absence {
	socket, _, err := u.Ask(ctx)
	if err != nil {
		why := fmt.Sprintf("systemd is to start the daemon, and does not answer: %v", err)
		return &Absence{why, "systemctl --user status holdline.socket"}
	}
	return AbsenceOf(socket)
}

// AbsenceOf returns what [Units.Absent] does, for a socket unit in that state.
func AbsenceOf(socket UnitState) *Absence {
	switch {
	case socket.Active == "active" || socket.Active == "activating" || socket.Active == "reloading":
		return nil
	case socket.Failed() && socket.Result == StartLimit:
		return &Absence{
			"holdline.service has failed too often in a row (start limit hit), and systemd does not start it any more",
			"holdline logs says why; once that is fixed: " + Reset,
		}
	case socket.Failed():
		return &Absence{
			fmt.Sprintf("holdline.socket has failed (%s)", socket.Result),
			"systemctl --user status holdline.socket says why; once that is fixed: " + Reset,
		}
	case socket.Load != "loaded":
		return &Absence{
			fmt.Sprintf("holdline.socket is %s", socket.Load), "holdline doctor says what is wrong with the units",
		}
	}
	return &Absence{"holdline.socket is stopped", "systemctl --user start holdline.socket"}
}
