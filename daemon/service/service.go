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

// Who manages a daemon, as the welcome says it.
const (
	Systemd = "systemd"
	Launchd = "launchd"
	Nobody  = "no"
)

// SocketName is the name by which a service manager hands over the socket, if
// it hands over more than one (FileDescriptorName= of systemd.socket(5)).
const SocketName = "holdline"

// Handed is the unix socket that a service manager passed to this process
// (sd_listen_fds(3)), or nil: the one named [SocketName], or the only one. Any
// others are closed. One of another kind is an error. The variables that
// announce them are removed from the environment, so that no child takes them
// for its own.
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

// choose is the file of the socket to serve.
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
		return nil, fmt.Errorf("%d sockets were handed in and none is named %s (FileDescriptorName=): %q", len(files), SocketName, names)
	}
	return chosen, nil
}

// Notifier tells the service manager how the daemon fares. The zero value
// tells nobody.
type Notifier struct {
	socket  string // of systemd
	launchd bool   // which wants to be told nothing
}

// NewNotifier works out from the environment and the parent process who manages
// this one. systemd names a socket in NOTIFY_SOCKET. launchd names the job in
// XPC_SERVICE_NAME, and is process 1; whatever the daemon starts may inherit the
// variable, but does not have that parent from its first moment on.
func NewNotifier(env func(string) string, parent int) Notifier {
	return Notifier{
		socket:  env("NOTIFY_SOCKET"),
		launchd: env("XPC_SERVICE_NAME") == contrib.LaunchLabel && parent == 1,
	}
}

// Managed says who manages this daemon.
func (n Notifier) Managed() string {
	switch {
	case n.socket != "":
		return Systemd
	case n.launchd:
		return Launchd
	}
	return Nobody
}

func (n Notifier) tell(state string) error {
	if n.socket == "" {
		return nil
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("telling the service manager %q: %w", state, err)
	}
	return nil
}

// Ready says that connections are served.
func (n Notifier) Ready(status string) error {
	return n.tell("READY=1\nSTATUS=" + status)
}

// Reloading says that the daemon is about to replace itself; [Notifier.Ready]
// ends that.
func (n Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("reading the clock: %w", err)
	}
	return n.tell(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000))
}

// Stopping says that the daemon is on its way out.
func (n Notifier) Stopping() error { return n.tell("STOPPING=1") }

// Watchdog is how long the service manager waits for a ping before it takes the
// daemon for hung; 0 if it does not wait for any. An environment that says
// something else than that is an error.
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

// Prove pings the service manager, which waits no longer than within for each
// ping, until ctx is done, and returns its cause. Before each ping it asks; an
// error is logged and asked about again soon, without a ping. What ask returns
// is the status for people.
func (n Notifier) Prove(ctx context.Context, log *slog.Logger, within time.Duration, ask func(context.Context) (string, error)) error {
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
			err = n.tell("WATCHDOG=1\nSTATUS=" + status)
		}
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "the daemon cannot prove that it is well", "err", err)
			pause = within / 20
		}
		next.Reset(pause)
	}
}

// Status is a line for people.
func (n Notifier) Status(status string) error { return n.tell("STATUS=" + status) }

// ExtendTimeout asks for more time to start.
func (n Notifier) ExtendTimeout(by time.Duration) error {
	return n.tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", by.Microseconds()))
}
