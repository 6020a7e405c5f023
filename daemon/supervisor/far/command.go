package far

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"holdline/daemon/command"
	"holdline/daemon/config/hostname"
	"holdline/protocol/process"
)

// A kind is a way to run a command elsewhere. A new one is a row of kinds.
type kind struct {
	prefix  string // of the host in the configuration
	program string
	// args returns the arguments with which the program runs a script of the shell at the place of
	// that name, with its own stdin, stdout and stderr.
	args func(name, script string) []string
	// moves says that the name may lead to several machines, so that the one that answers has to be
	// the one on which the worker was started.
	moves bool
}

// kinds are all ways. The first row whose prefix matches holds.
var kinds = []kind{
	{hostname.Docker, "docker", containerArgs, false},
	{hostname.Podman, "podman", containerArgs, false},
	{hostname.Kube, "kubectl", func(name, script string) []string {
		return []string{"exec", "-i", name, "--", "sh", "-c", script}
	}, false},
	{"", "ssh", func(name, script string) []string {
		return sshArgs(name, script, "ClearAllForwardings=yes")
	}, true},
}

// containerArgs returns the arguments with which docker runs a script, and what is like it.
func containerArgs(name, script string) []string {
	return []string{"exec", "-i", name, "sh", "-c", script}
}

// sshArgs returns the arguments with which ssh runs a script. All but the options is as the user's
// configuration of ssh says. A forwarding or a command in there is for a session with a person.
func sshArgs(name, script string, options ...string) []string {
	args := []string{"-T"}
	for _, option := range append(options, // the first value of an option holds
		"BatchMode=yes", "ServerAliveInterval=15", "ServerAliveCountMax=3", "RemoteCommand=none") {
		args = append(args, "-o", option)
	}
	// ssh gives the user's shell one line. Whatever that shell is, it leaves alone what is in single
	// quotes; a script has none.
	return append(args, "--", name, "sh", "-c", "'"+script+"'")
}

// kindOf returns the kind of a host, and its name there.
func kindOf(host string) (k kind, name string) {
	for _, k := range kinds {
		if name, ok := strings.CutPrefix(host, k.prefix); ok {
			return k, name
		}
	}
	panic("the last row matches all")
}

// Moves reports whether a host may lead to several machines.
func Moves(host string) bool {
	k, _ := kindOf(host)
	return k.moves
}

// Command returns a command that runs a script, without single quotes, with sh on a host. env is
// its environment here. alone makes ssh use no connection that it shares with others. When ctx is
// done the command is told to end, and killed if it does not.
func Command(ctx context.Context, host, script string, env []string, alone bool) *exec.Cmd {
	k, name := kindOf(host)
	args := k.args(name, script)
	if alone && k.program == "ssh" {
		args = append([]string{"-o", "ControlPath=none"}, args...)
	}
	return newCommand(ctx, k.program, args, env)
}

// Forward returns a command like [Command] for a host of ssh. While its script runs, programs there
// that connect to the path remote reach the unix socket local.
func Forward(ctx context.Context, host, remote, local, script string, env []string) *exec.Cmd {
	args := sshArgs(host, script, "ControlPath=none", "ExitOnForwardFailure=yes", "ServerAliveInterval=5")
	return newCommand(ctx, "ssh", append([]string{"-R", remote + ":" + local}, args...), env)
}

// newCommand returns a command that runs a program of the PATH in env, for [Command] and [Forward].
// Its start fails if there is none.
func newCommand(ctx context.Context, program string, args, env []string) *exec.Cmd {
	path, err := command.LookPath(program, command.Variable(env, "PATH"))
	cmd := exec.CommandContext(ctx, filepath.Clean(cmp.Or(path, program)), args...)
	cmd.Env, cmd.Dir, cmd.Err = env, "/", err
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = leaveTime // a connection that ssh shares may keep stderr open
	return cmd
}

// Run runs a command for a host until it ends. It returns what the command prints, unless that has
// a stdout already. The error has the command's last words.
func Run(cmd *exec.Cmd, host string) (string, error) {
	var out bytes.Buffer
	var words tail
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		return "", errors.New(notStarted(host, err))
	}
	if err := cmd.Wait(); err != nil {
		k, name := kindOf(host)
		return out.String(), fmt.Errorf("%s %s: %s", k.program, name, cmp.Or(words.last(), err.Error()))
	}
	return out.String(), nil
}

// Try returns the command line by which a person can try whether a host can be reached. That ssh
// may ask, for example whether it should trust the host's key.
func Try(host string) string {
	k, name := kindOf(host)
	if k.program == "ssh" {
		return "ssh " + name + " true"
	}
	return k.program + " " + strings.Join(k.args(name, "true"), " ")
}

// Dir is the directory of programs that were copied to a host, relative to the home directory,
// and Program the name of the file there that this program can talk to.
const Dir = ".local/share/holdline/far"

// Program returns the name of the program in [Dir] whose workers this program knows.
func Program() string { return fmt.Sprintf("holdline-%d", process.Newest()) }

// Script returns the script that runs holdline on a host with these arguments, which must have
// no special characters. A copy that was made for this program is taken first.
func Script(args string) string {
	return `HOME="${HOME:-/}"; export HOME; PATH="$PATH:$HOME/.local/bin"; export PATH; ` +
		`h="$HOME/` + Dir + "/" + Program() + `"; [ -x "$h" ] || h=holdline; exec "$h" ` + args
}
