package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// daemonProcess is the private daemon.
type daemonProcess struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	log  string        // path
}

// startDaemon starts a daemon as a service manager or a proxy would. It returns when the
// daemon serves.
func (d *demo) startDaemon(ctx context.Context) error {
	p := &daemonProcess{done: make(chan struct{}), log: filepath.Join(d.dir, "daemon.log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = d.command(context.WithoutCancel(ctx), "daemon")
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	d.daemon = p
	d.pids[p.cmd.Process.Pid] = "daemon"
	go func() { // ends with the process; terminate waits for it
		_ = p.cmd.Wait()
		close(p.done)
	}()
	for {
		if s, err := d.status(ctx); err == nil && s.Daemon.PID == p.cmd.Process.Pid {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("the daemon did not start:\n%s", p.readLog())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// readLog returns the daemon's log.
func (p *daemonProcess) readLog() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// terminate ends the daemon if it still runs.
func (p *daemonProcess) terminate() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if the process has ended
	select {
	case <-p.done:
		return nil
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
		return errors.New("the daemon did not end in 20 s and was killed")
	}
}

// status is what the demo reads of `holdline status --json`.
type status struct {
	Daemon  struct{ PID int }
	Workers []worker
}

// worker is a worker in a status.
type worker struct {
	ID, Name, Kind, State string

	PID      int
	ChildPID int `json:"child_pid"`
	Attached bool
}

// runsAll reports whether both consults and the shared server run, and the daemon has
// their workers.
func (s *status) runsAll() bool {
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

// status asks the daemon for its status.
func (d *demo) status(ctx context.Context) (status, error) {
	var s status
	out, err := d.command(ctx, "status", "--json").Output()
	if err != nil {
		return s, fmt.Errorf("holdline status: %w", err)
	}
	return s, json.Unmarshal(out, &s)
}

// waitForStatus polls the status until ok accepts it, for at most 40 s since the demo's
// beginning.
func (d *demo) waitForStatus(ctx context.Context, ok func(*status) bool) (status, error) {
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
