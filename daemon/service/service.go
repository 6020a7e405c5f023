// Package service is what the daemon shares with a service manager: the
// socket that was handed in, and the notices that are owed (sd_notify(3)).
// It is the only package that knows systemd.
package service

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Who manages a daemon, as the welcome says it.
const (
	Systemd = "systemd"
	Launchd = "launchd"
	Nobody  = "no"
)

// Handed is the unix socket that a service manager passed to this process
// (sd_listen_fds(3)), or nil. More than one, or one of another kind, is an
// error. The variables that announce it are removed from the environment, so
// that no child takes them for its own.
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
	if len(files) > 1 {
		return nil, fmt.Errorf("%d sockets were handed in, want one", len(files))
	}
	ln, err := net.FileListener(files[0])
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

// Notifier tells the service manager how the daemon fares. The zero value
// tells nobody.
type Notifier struct{ socket string }

// NewNotifier uses the socket that NOTIFY_SOCKET names, "" for none.
func NewNotifier(socket string) Notifier { return Notifier{socket} }

// Managed says who manages this daemon.
func (n Notifier) Managed() string {
	if n.socket != "" {
		return Systemd
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

// Status is a line for people.
func (n Notifier) Status(status string) error { return n.tell("STATUS=" + status) }

// ExtendTimeout asks for more time to start.
func (n Notifier) ExtendTimeout(by time.Duration) error {
	return n.tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", by.Microseconds()))
}

// InJournal tells whether the standard error is the journal's, given the
// value of JOURNAL_STREAM: "device:inode" of it (systemd.exec(5)).
func InJournal(variable string, stderr *os.File) bool {
	var dev, ino uint64
	if _, err := fmt.Sscanf(variable, "%d:%d", &dev, &ino); err != nil || stderr == nil {
		return false
	}
	info, err := stderr.Stat()
	if err != nil {
		return false
	}
	gotDev, gotIno, ok := inode(info)
	return ok && gotDev == dev && gotIno == ino
}
