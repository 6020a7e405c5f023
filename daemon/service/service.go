package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"holdline/contrib"
)

// The service managers of a daemon, as its welcome names them.
const (
	Systemd = "systemd"
	Launchd = "launchd"
	Nobody  = "no"
)

// SocketName is the socket's name among several that a service manager passes on
// (FileDescriptorName= of systemd.socket(5)).
const SocketName = "holdline"

// Handed returns the unix socket that a service manager has passed to this process
// (sd_listen_fds(3)), or nil: the only socket, or the one named [SocketName]. It closes
// the others, and fails for a socket of another kind. It removes the variables that
// announce sockets from the environment, so that no child mistakes them for its own.
func Handed() (*net.UnixListener, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil //nolint:nilnil // no socket is no error
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	f, err := choose(files)
	if err != nil {
		return nil, err
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("the socket handed in: %w", err)
	}
	unix, ok := ln.(*net.UnixListener)
	if !ok {
		ln.Close()
		return nil, errors.New("the socket handed in is no unix stream socket")
	}
	return unix, nil
}

// choose returns the file of the socket to serve: the only one, or the one named
// [SocketName]. Several sockets without exactly one of that name are an error.
func choose(files []*os.File) (*os.File, error) {
	if len(files) == 1 {
		return files[0], nil
	}
	var names []string
	var chosen *os.File
	for _, f := range files {
		names = append(names, f.Name())
		if f.Name() != SocketName {
			continue
		}
		if chosen != nil {
			return nil, fmt.Errorf("several of the sockets handed in are named %s", SocketName)
		}
		chosen = f
	}
	if chosen == nil {
		return nil, fmt.Errorf("%d sockets were handed in and none is named %s (FileDescriptorName=): %q",
			len(files), SocketName, names)
	}
	return chosen, nil
}

// Notifier reports to the service manager how the daemon is (sd_notify(3)). The zero
// value reports nothing.
type Notifier struct {
	socket  string // of systemd
	launchd bool   // it manages the daemon, and takes no reports
}

// NewNotifier finds out which service manager has started this process. systemd names a
// socket in NOTIFY_SOCKET. launchd names the job in XPC_SERVICE_NAME and is process 1; a
// child of the daemon may inherit the variable, but does not have that parent at its
// start.
func NewNotifier(env func(string) string, parent int) Notifier {
	return Notifier{
		socket:  env("NOTIFY_SOCKET"),
		launchd: env("XPC_SERVICE_NAME") == contrib.LaunchLabel && parent == 1,
	}
}

// Managed returns the service manager of this daemon.
func (n Notifier) Managed() string {
	switch {
	case n.socket != "":
		return Systemd
	case n.launchd:
		return Launchd
	}
	return Nobody
}

// notify sends a state to systemd.
func (n Notifier) notify(state string) error {
	if n.socket == "" {
		return nil
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("telling the service manager %q: %w", state, err)
	}
	return nil
}

// Ready reports that connections are served.
func (n Notifier) Ready(status string) error {
	return n.notify("READY=1\nSTATUS=" + status)
}

// Reloading reports that the daemon is about to replace itself. [Notifier.Ready] reports
// the end of that.
func (n Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("reading the clock: %w", err)
	}
	return n.notify(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000))
}

// Stopping reports that the daemon is about to end.
func (n Notifier) Stopping() error { return n.notify("STOPPING=1") }

// Watchdog returns how long the service manager waits for a ping before it takes the
// daemon for hung; 0 if it waits for none. It fails if the environment makes no sense.
func (n Notifier) Watchdog() (time.Duration, error) {
	if n.socket == "" {
		return 0, nil
	}
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0, fmt.Errorf("WATCHDOG_USEC and WATCHDOG_PID: %w", err)
	}
	return within, nil
}

// Prove pings the service manager, which waits no longer than within for each ping, until
// ctx is done; it returns the cause. Before each ping it calls ask, which returns a
// status for people. If ask fails, Prove logs the error, sends no ping and tries again
// soon.
func (n Notifier) Prove(
	ctx context.Context, log *slog.Logger, within time.Duration, ask func(context.Context) (string, error),
) error {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-next.C:
		}
		asking, cancel := context.WithTimeout(ctx, within/4)
		status, err := ask(asking)
		cancel()
		pause := within / 2
		if err == nil {
			err = n.notify("WATCHDOG=1\nSTATUS=" + status)
		}
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "the daemon cannot prove that it is well", "err", err)
			pause = within / 20
		}
		next.Reset(pause)
	}
}

// Status reports a line for people.
func (n Notifier) Status(status string) error { return n.notify("STATUS=" + status) }

// ExtendTimeout asks for more time to start.
func (n Notifier) ExtendTimeout(by time.Duration) error {
	return n.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", by.Microseconds()))
}
