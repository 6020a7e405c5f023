package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"holdline/protocol/control"
)

// daemonProcess is the private daemon. The demo has one at a time: it starts the next one after
// it has killed the one before.
type daemonProcess struct {
	*exec.Cmd // started

	terminate context.CancelFunc // sends SIGTERM, and SIGKILL 20 s later
	ended     chan struct{}      // closed when the process has ended
}

// startDaemon starts a daemon as a service manager or a proxy would, and sets d.daemon. It
// returns when the daemon serves. All daemons of the demo append to one log.
func (d *demo) startDaemon(ctx context.Context) error {
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The daemon is ended by terminate alone, so that an interrupt of the demo ends it in
	// order.
	life, terminate := context.WithCancel(context.WithoutCancel(ctx))
	p := &daemonProcess{d.command(life, "daemon"), terminate, make(chan struct{})}
	p.Stderr, p.WaitDelay = log, 20*time.Second
	p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) }
	if err := p.Start(); err != nil {
		terminate()
		return err
	}
	d.daemon = p
	d.pids[p.Process.Pid] = "daemon"
	go func() { // ends with the process, for which show waits
		_ = p.Wait()
		close(p.ended)
	}()
	// The daemon serves as soon as a status has its pid.
	for {
		if s, err := d.status(ctx); err == nil && s.Daemon.PID == p.Process.Pid {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("the daemon did not start:\n%s", d.readLog())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// log returns the path of the daemon's log.
func (d *demo) log() string { return filepath.Join(d.dir, "daemon.log") }

// readLog returns the daemon's log, or why it cannot be read. It is for error messages.
func (d *demo) readLog() string {
	b, err := os.ReadFile(d.log())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// runsAll reports whether both consults and the shared server run, and the daemon has
// their workers. A worker without a child is still starting one.
func runsAll(s *control.StatusAnswer) bool {
	consults, servers := 0, 0
	for _, w := range s.Workers {
		switch {
		case !w.Attached || w.ChildPID == 0:
		case w.Kind == "consult":
			consults++
		case w.State == "ready":
			servers++
		}
	}
	return consults == 2 && servers == 1
}

// status asks the daemon for its status, by the same command as a script would.
func (d *demo) status(ctx context.Context) (s control.StatusAnswer, err error) {
	out, err := d.command(ctx, "status", "--json").Output()
	if err != nil {
		return s, fmt.Errorf("holdline status: %w", err)
	}
	return s, json.Unmarshal(out, &s)
}

// waitForStatus polls the status until ok accepts it, for at most 40 s since the demo's
// beginning, and returns it. An error of the status ends the wait.
func (d *demo) waitForStatus(
	ctx context.Context, ok func(*control.StatusAnswer) bool,
) (control.StatusAnswer, error) {
	for {
		s, err := d.status(ctx)
		if err != nil || ok(&s) {
			return s, err
		}
		if time.Since(d.begin) > 40*time.Second {
			return s, fmt.Errorf("the daemon did not reach the expected state within 40 s; its status is %+v", s)
		}
	}
}
