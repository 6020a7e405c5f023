// Package guestcmd has the commands about agents elsewhere: connect forwards a socket of the
// configuration to another machine, and disconnect ends sessions.
package guestcmd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/telling"
	"holdline/protocol/control"
)

// Times of a connection to another machine.
const (
	firstWait   = time.Second      // before the first new attempt; doubled for each further one
	longestWait = 30 * time.Second // before any other
	endGrace    = 3 * time.Second  // for ssh to end once it is told to
)

// prepare is run there by the user's shell, as sh -c, with the name of the socket's file as $1. It
// makes the directory, removes what an earlier connection has left, and prints the path of the socket
// to come and that of holdline. sshd does not replace a socket that is there unless it is configured to.
const prepare = `umask 077 && d="$HOME/.local/state/holdline-guest" && mkdir -p "$d" && rm -f "$d/$1.sock" && ` +
	`printf "%s\n" "$d/$1.sock" && { command -v holdline || true; }`

// hold is run there while the socket is forwarded, with its path as $1. It says when that is there,
// and ends with its stdin, and so with this command, even if that is killed.
const hold = `test -S "$1" && echo ready && exec cat >/dev/null`

// NewConnectCommand returns the command connect, which runs until it is interrupted.
func NewConnectCommand(proc *cmdenv.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "connect HOST [SOCKET]",
		Short: "Let agents on another machine use this daemon, over ssh",
		Long: `Forward a socket of the configuration to another machine by ssh -R, and keep it
forwarded: when the connection breaks, it is made again. Agents there use this daemon as
far as the socket lets them (see "sockets" in the configuration). Their calls go on when
the connection breaks, and get their answers on the next one.

HOST is a name for ssh: its configuration, keys, agent and jump hosts are yours. ssh must
not have to ask for anything. SOCKET may be left out if the configuration has only one.

The command prints what the MCP configuration there needs, and runs until it is
interrupted. "holdline status" shows it. That machine needs holdline, too.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 1 {
				name = args[1]
			}
			s, err := find(cmd, proc, name)
			if err != nil {
				return err
			}
			if slices.Contains(s.Hosts, args[0]) {
				return fmt.Errorf("another command forwards socket %s to %s already", s.Name, args[0])
			}
			ssh, err := exec.LookPath("ssh")
			if err != nil {
				return cmdenv.WithHint(fmt.Errorf("there is no ssh: %w", err), "install OpenSSH's client")
			}
			t := &tunnel{cmd: cmd, proc: proc, ssh: ssh, host: args[0], socket: s}
			return t.keep()
		},
	}
}

// find returns the socket of that name, which guests must be able to use; with "" the only one there is.
func find(cmd *cobra.Command, proc *cmdenv.Process, name string) (s control.Socket, err error) {
	status, err := attach.AskOrStart[control.StatusAnswer](cmd, proc, control.Status, control.StatusParams{}, nil)
	if err != nil {
		return s, err
	}
	var names []string
	for _, one := range status.Sockets {
		if names = append(names, one.Name); one.Name == name || name == "" {
			s = one
		}
	}
	edit := `add one to "sockets" of the configuration: holdline config edit`
	switch {
	case len(names) == 0:
		return s, cmdenv.WithHint(errors.New("the configuration has no socket for guests"), edit)
	case name == "" && len(names) > 1:
		return s, fmt.Errorf("%w: which socket? There are %s", cmdenv.ErrUsage, strings.Join(names, ", "))
	case s.Name == "":
		return s, cmdenv.WithHint(fmt.Errorf("the configuration has no socket %s; there are %s", name,
			strings.Join(names, ", ")), edit)
	case s.Disabled:
		return s, cmdenv.WithHint(fmt.Errorf("the socket %s is disabled", s.Name), "holdline config unset "+
			disabledKey(s.Name).String())
	case s.Trouble != "":
		return s, fmt.Errorf("nobody can connect to the socket %s: %s", s.Name, s.Trouble)
	}
	return s, nil
}

// tunnel is a socket that is forwarded to a host.
type tunnel struct {
	cmd       *cobra.Command
	proc      *cmdenv.Process
	ssh, host string
	socket    control.Socket
	shown     bool // the entry for the machine there is printed
}

// keep keeps the socket forwarded until the command is interrupted. It returns an error if the first
// attempt fails.
func (t *tunnel) keep() error {
	ctx := t.cmd.Context()
	wait := firstWait
	for {
		begin := time.Now()
		err := t.forward(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the user has ended it
		}
		if _, absent := errors.AsType[*absentError](err); absent || !t.shown {
			return err
		}
		if time.Since(begin) > time.Minute {
			wait = firstWait
		}
		console.Warn(t.cmd, "the connection to %s has ended (%v); the next attempt is in %v", t.host, err, wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, longestWait)
	}
}

// forward forwards the socket once, and returns why that has ended.
func (t *tunnel) forward(ctx context.Context) error {
	out, err := t.run(ctx, nil, "--", t.host, "sh -c '"+prepare+"' sh "+t.file())
	if err != nil {
		return err
	}
	remote, program, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if !strings.HasPrefix(remote, "/") || strings.ContainsAny(remote, ":'") {
		return fmt.Errorf("the shell of %s printed %q in place of a path that ssh can forward to", t.host, remote)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var told sync.WaitGroup
	defer told.Wait()
	defer cancel(nil)
	_, err = t.run(ctx, func() {
		told.Go(func() {
			if err := t.register(ctx); ctx.Err() == nil {
				cancel(&absentError{err})
			}
		})
		if !t.shown {
			t.shown = true
			t.show(remote, program)
		}
	}, "-T", "-S", "none", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=5",
		"-o", "ServerAliveCountMax=3", "-R", remote+":"+t.socket.Path,
		"--", t.host, "sh -c '"+hold+"' sh '"+remote+"'")
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil {
		err = errors.New("ssh has ended")
	}
	return err
}

// absentError says that the daemon is stopped, or does not start.
type absentError struct{ err error }

// Error returns the reason.
func (e *absentError) Error() string { return "the daemon is gone: " + e.err.Error() }

// Unwrap returns the error of the search for a daemon.
func (e *absentError) Unwrap() error { return e.err }

// file returns the name of the socket's file there, without its ending. The sockets of other users
// and machines have other names.
func (t *tunnel) file() string {
	machine, _ := os.Hostname()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", machine, os.Getuid(), t.socket.Path))
	return t.socket.Name + "-" + hex.EncodeToString(sum[:4])
}

// told is a writer that closes its channel when something is written.
type told struct {
	once sync.Once
	c    chan struct{}
}

// Write implements [io.Writer].
func (w *told) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.c) })
	return len(p), nil
}

// run runs ssh, which asks for nothing, and returns what it printed. The error has its last words.
// up, if it is not nil, is called when ssh has printed something. Then stdin stays open while ssh runs.
func (t *tunnel) run(ctx context.Context, up func(), args ...string) (string, error) {
	args = append([]string{"-o", "BatchMode=yes"}, args...)
	c := exec.CommandContext(ctx, t.ssh, args...)
	var out, words bytes.Buffer
	ready := &told{c: make(chan struct{})}
	c.Stdout, c.Stderr = &out, &words
	if up != nil {
		c.Stdout = ready
		if _, err := c.StdinPipe(); err != nil { // closed by Wait
			return "", err
		}
	}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = endGrace
	if err := c.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }() // ends with ssh
	var err error
	if up != nil {
		select {
		case err = <-ended:
			return "", t.failure(err, &words)
		case <-ready.c:
			up()
		}
	}
	if err = <-ended; err != nil {
		return "", t.failure(err, &words)
	}
	return out.String(), nil
}

// failure returns the error of an ssh that has ended, with the last words that it said.
func (t *tunnel) failure(err error, words *bytes.Buffer) error {
	if last := telling.Line(strings.Split(words.String(), "\n")); last != "" {
		return fmt.Errorf("ssh %s: %s", t.host, last)
	}
	return fmt.Errorf("ssh %s: %w", t.host, err)
}

// register shows the tunnel in the status of the daemon, and of the next one, which it starts if no
// other program does. It returns when ctx is done, or there is no daemon any more.
func (t *tunnel) register(ctx context.Context) error {
	c, err := attach.ConnectOrStart(t.cmd, t.proc)
	if err != nil {
		return err
	}
	return attach.Outlast(t.cmd, t.proc, c, func(_ context.Context, c *control.Client) error {
		return c.Call(ctx, control.Forward, control.ForwardParams{Socket: t.socket.Name, Host: t.host}, nil, nil)
	})
}

// show prints what the agents on the other machine need.
func (t *tunnel) show(remote, program string) {
	out := t.cmd.OutOrStdout()
	fmt.Fprintf(out, "Socket %s is at %s:%s\n", t.socket.Name, t.host, remote)
	if program == "" {
		program = "holdline"
		console.Line(out, 0, "%s has no holdline on its PATH: copy this program there.", t.host)
	}
	fmt.Fprintf(out, "The entry for the MCP configuration of agents there:\n\n"+
		"    \"holdline\": {\"command\": %q, \"args\": [\"mcp-stdio\", \"--guest\", %q]}\n\n"+
		"Interrupt this command to end the connection.\n", program, remote)
}
