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

// askTimeout bounds a question to systemctl.
const askTimeout = 2 * time.Second

// Units are holdline's units of this user's systemd, as they lie in files. Make
// it with [FindUnits]. On a system without systemd none is installed.
type Units struct {
	runtime string   // the user's runtime directory
	dirs    []string // of units, the one that counts first
}

// FindUnits works out from the environment where units are (systemd.unit(5)).
// It reads no file.
func FindUnits(env func(string) string) Units {
	u := Units{runtime: env("XDG_RUNTIME_DIR")}
	if !filepath.IsAbs(u.runtime) { // as for clients that clear the environment
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

// File is the path of a unit's file, "" if the unit is not installed. One that
// is masked is.
func (u Units) File(name string) string {
	for _, dir := range u.dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return ""
}

// Enabled tells whether the socket is there from each login on.
func (u Units) Enabled() bool {
	for _, dir := range u.dirs {
		// What it leads to may be gone, which systemd minds, and not we.
		if _, err := os.Lstat(filepath.Join(dir, "sockets.target.wants", contrib.SystemdSocket)); err == nil {
			return u.File(contrib.SystemdSocket) != "" && !masked(u.File(contrib.SystemdSocket))
		}
	}
	return false
}

// masked tells whether a unit is one that is never started.
func masked(path string) bool {
	to, err := os.Readlink(path)
	return err == nil && to == os.DevNull
}

// Running tells whether this user has a systemd that runs.
func (u Units) Running() bool {
	info, err := os.Lstat(filepath.Join(u.runtime, "systemd", "private"))
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// Socket is where the socket unit listens.
func (u Units) Socket() string { return filepath.Join(u.runtime, "holdline", "daemon.sock") }

// UnitState is how systemd has a unit.
type UnitState struct {
	Load       string // loaded, not-found, bad-setting, masked …
	Active     string // active, inactive, failed, activating …
	Result     string // success, start-limit-hit, exit-code, watchdog …
	NeedReload bool   // its file has changed since systemd has read it
	Restarts   int    // of a service, by itself
}

// Failed tells whether the unit is not started any more without a word of the
// user.
func (s UnitState) Failed() bool { return s.Active == "failed" }

// Ask asks systemd how the units are. Errors are those of running systemctl, and
// of what it prints.
func (u Units) Ask(ctx context.Context) (socket, service UnitState, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := u.systemctl(ctx, "show", "--property=Id,LoadState,ActiveState,Result,NeedDaemonReload,NRestarts",
		contrib.SystemdSocket, contrib.SystemdService).Output()
	if err != nil {
		return socket, service, fmt.Errorf("systemctl --user show: %w", err)
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
		return socket, service, errors.New("systemctl --user show: it does not tell of all units that it was asked for")
	}
	return socket, service, nil
}

// ForgetStarts has systemd forget how often it has started the service: a daemon
// that is killed often, and serves in between, is not to be given up like one
// that cannot start.
func (u Units) ForgetStarts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if out, err := u.systemctl(ctx, "reset-failed", contrib.SystemdService).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl --user reset-failed: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// systemctl is a command to the user's systemd.
func (u Units) systemctl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "systemctl", append([]string{"--user"}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/local/bin", "XDG_RUNTIME_DIR=" + u.runtime, "LC_ALL=C"}
	cmd.WaitDelay = askTimeout
	return cmd
}

// parseState reads what systemctl shows of one unit.
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

// Absence is why systemd, which is to listen for the daemon, does not, and what
// to do about it.
type Absence struct{ Why, Hint string }

// Reset is how units that have failed are started again.
const Reset = "systemctl --user reset-failed holdline.service holdline.socket; systemctl --user start holdline.socket"

// StartLimit is the result of a socket whose service has failed too often in a
// row.
const StartLimit = "service-start-limit-hit"

// Absent is why nobody listens at the socket of units that are enabled, or nil
// if that passes: systemd is about to listen.
func (u Units) Absent(ctx context.Context) *Absence {
	socket, _, err := u.Ask(ctx)
	if err != nil {
		return &Absence{fmt.Sprintf("systemd is to start the daemon, and does not answer: %v", err), "systemctl --user status holdline.socket"}
	}
	return absence(socket)
}

func absence(socket UnitState) *Absence {
	switch {
	case socket.Active == "active" || socket.Active == "activating" || socket.Active == "reloading":
		return nil
	case socket.Failed() && socket.Result == StartLimit:
		return &Absence{
			"holdline.service has failed too often in a row (start limit hit), and systemd does not start it any more",
			"holdline logs says why; once it is mended: " + Reset,
		}
	case socket.Failed():
		return &Absence{
			fmt.Sprintf("holdline.socket has failed (%s)", socket.Result),
			"systemctl --user status holdline.socket says why; once it is mended: " + Reset,
		}
	case socket.Load != "loaded":
		return &Absence{fmt.Sprintf("holdline.socket is %s", socket.Load), "holdline doctor says what is wrong with the units"}
	}
	return &Absence{"holdline.socket is stopped", "systemctl --user start holdline.socket"}
}
