// Package guestcmd has the commands about agents elsewhere: connect forwards a socket of the
// configuration to another machine, and disconnect ends sessions.
package guestcmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/config/hostname"
	"holdline/daemon/supervisor/far"
	"holdline/daemon/waiting"
	"holdline/protocol/control"
)

// Times of a connection to another machine.
const (
	firstWait   = time.Second      // before the first new attempt; doubled for each further one
	longestWait = 30 * time.Second // before any other
)

// prepare is run there, with the name of the socket's file in place of NAME. It makes the directory,
// removes what an earlier connection has left, and prints the path of the socket to come and that of
// holdline. sshd does not replace a socket that is there unless it is configured to.
const prepare = `umask 077 && d="$HOME/.local/state/holdline-guest" && mkdir -p "$d" && rm -f "$d/NAME" && ` +
	`printf "%s\n" "$d/NAME" && { command -v holdline || true; }`

// hold is run there while the socket is forwarded. It says when that is there, and ends with its
// stdin, and so with this command, even if that is killed.
const hold = `test -S "$HOME/.local/state/holdline-guest/NAME" && echo ready && exec cat >/dev/null`

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
			if !far.Moves(args[0]) {
				return fmt.Errorf("%w: connect uses ssh; for a container, mount the directory of the socket",
					cmdenv.ErrUsage)
			}
			if err := hostname.CheckSSH(args[0]); err != nil {
				return fmt.Errorf("%w: %q: %w", cmdenv.ErrUsage, args[0], err)
			}
			s, err := find(cmd, proc, name)
			if err != nil {
				return err
			}
			if slices.Contains(s.Hosts, args[0]) {
				return fmt.Errorf("another command forwards socket %s to %s already", s.Name, args[0])
			}
			t := &tunnel{cmd: cmd, proc: proc, host: args[0], socket: s}
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
	cmd    *cobra.Command
	proc   *cmdenv.Process
	host   string
	socket control.Socket
	shown  bool // the entry for the machine there is printed
}

// keep keeps the socket forwarded until the command is interrupted. It returns an error if the first
// attempt fails.
func (t *tunnel) keep() error {
	ctx := t.cmd.Context()
	for wait := firstWait; ctx.Err() == nil; wait = min(2*wait, longestWait) {
		begin := time.Now()
		err := t.forward(ctx)
		_, absent := errors.AsType[*absentError](err)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the user has ended it
		case absent || !t.shown:
			return err
		case time.Since(begin) > time.Minute:
			wait = firstWait
		}
		console.Warn(t.cmd, "the connection to %s has ended (%v); the next attempt is in %v", t.host, err, wait)
		_ = waiting.Pause(ctx, wait)
	}
	return nil
}

// forward forwards the socket once, and returns why that has ended.
func (t *tunnel) forward(ctx context.Context) error {
	env, file := t.proc.Environ(), t.file()
	out, err := far.Run(far.Command(ctx, t.host, strings.ReplaceAll(prepare, "NAME", file), env, false), t.host)
	if err != nil {
		return err
	}
	remote, program, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if !strings.HasPrefix(remote, "/") || strings.Contains(remote, ":") {
		return fmt.Errorf("the shell of %s printed %q in place of a path that ssh can forward to", t.host, remote)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var told sync.WaitGroup
	defer told.Wait()
	defer cancel(nil)
	up := &first{c: make(chan struct{})}
	told.Go(func() {
		select {
		case <-up.c:
		case <-ctx.Done():
			return
		}
		if !t.shown {
			t.shown = true
			t.show(remote, program)
		}
		if err := t.register(ctx); ctx.Err() == nil {
			cancel(&absentError{err})
		}
	})
	ssh := far.Forward(ctx, t.host, remote, t.socket.Path, strings.ReplaceAll(hold, "NAME", file), env)
	ssh.Stdout = up
	if _, err := ssh.StdinPipe(); err != nil { // it stays open until ssh has ended
		return err
	}
	if _, err = far.Run(ssh, t.host); err == nil {
		err = errors.New("ssh has ended")
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// absentError says that the daemon is stopped, does not start, or has no such socket any more.
type absentError struct{ err error }

// Error returns the reason.
func (e *absentError) Error() string {
	if remote, ok := errors.AsType[*control.RemoteError](e.err); ok {
		return remote.Error()
	}
	return "the daemon is gone: " + e.err.Error()
}

// Unwrap returns the error of the search for a daemon.
func (e *absentError) Unwrap() error { return e.err }

// file returns the name of the socket's file there. The sockets of other users and machines have
// other names.
func (t *tunnel) file() string {
	machine, _ := os.Hostname()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", machine, os.Getuid(), t.socket.Path))
	return t.socket.Name + "-" + hex.EncodeToString(sum[:4]) + ".sock"
}

// first is a writer that closes its channel when something is written.
type first struct {
	once sync.Once
	c    chan struct{}
}

// Write implements [io.Writer].
func (w *first) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.c) })
	return len(p), nil
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
