package launch

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/redact"
	"holdline/daemon/telling"
	"holdline/protocol/fault"
)

// Limits of a command that prints a secret.
const (
	secretTimeout = 10 * time.Second // a password manager may ask its user for a fingerprint
	maxSecret     = 64 << 10         // bytes that it prints
	maxTail       = 4 << 10          // bytes that are kept of its stderr
)

// errSecretTime is the cause of a context that ends with secretTimeout.
var errSecretTime = errors.New("the command took too long")

// Commands runs the commands that print secrets. Starts that need the same command at the same
// time share one run of it. The zero value is ready, and safe for concurrent use.
type Commands struct {
	mu      sync.Mutex
	running map[string]*secretRun // by the command
}

// A secretRun is one run of a command. Its results may be read once done is closed.
type secretRun struct {
	done      chan struct{}
	value     string
	err       error
	cancelled bool // with the start that made it
}

// share calls call, or waits for what another caller's run for the same command returns. If the
// context of that caller ends, one of the waiting callers takes over.
func (c *Commands) share(ctx context.Context, what string, call func() (string, error)) (string, error) {
	for {
		c.mu.Lock()
		run := c.running[what]
		if run == nil {
			run = &secretRun{done: make(chan struct{})}
			if c.running == nil {
				c.running = map[string]*secretRun{}
			}
			c.running[what] = run
			c.mu.Unlock()
			run.value, run.err = call()
			run.cancelled = ctx.Err() != nil
			c.mu.Lock()
			delete(c.running, what)
			c.mu.Unlock()
			close(run.done)
			return run.value, run.err
		}
		c.mu.Unlock()
		select {
		case <-run.done:
			if !run.cancelled {
				return run.value, run.err
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// runSecret runs a command, for at most that time, and returns the line that it prints. The error is a
// fault, unless ctx has ended. It has no word of what the command printed, and no secret of what it
// wrote to stderr.
func runSecret(ctx context.Context, most time.Duration, argv, environ []string, home string) (string, error) {
	env := resolve.Environment(config.InheritAll, environ, nil)
	name := argv[0]
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		name = filepath.Join(home, rest)
	}
	path, err := command.LookPath(name, command.Variable(env, "PATH"))
	if err != nil {
		return "", secretFault(argv, fault.Cause{Program: argv[0]}, "cannot be run: %v", err)
	}
	cmd := command.Command{
		Path: path, Args: argv[1:], Env: env, Dir: home, Stdout: maxSecret, Stderr: maxTail,
		Strict: true, Session: true,
	}
	limited, cancel := context.WithTimeoutCause(ctx, most, errSecretTime)
	defer cancel()
	out, err := cmd.Run(limited)
	value := strings.TrimSuffix(strings.TrimSuffix(string(out.Stdout), "\n"), "\r")
	var cause fault.Cause
	for line := range strings.FieldsFuncSeq(string(out.Stderr), func(r rune) bool { return r == '\n' }) {
		cause.StderrTail = append(cause.StderrTail, hidePrinted(line, value))
	}
	words := ""
	if line := telling.Line(cause.StderrTail); line != "" {
		words = `, "` + fault.Quote([]byte(line)) + `"`
	}
	exit, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.Is(err, errSecretTime):
		return "", secretFault(argv, cause, "was ended, since it took longer than %v%s", most, words)
	case failed:
		how := fmt.Sprintf("exit code %d", exit.ExitCode())
		if st, ok := exit.Sys().(syscall.WaitStatus); ok && st.Signaled() {
			how = fmt.Sprintf("signal %v", st.Signal())
		} else {
			cause.ExitCode = new(exit.ExitCode())
		}
		return "", secretFault(argv, cause, "failed: %s%s", how, words)
	case errors.Is(err, command.ErrOutput):
		return "", secretFault(argv, cause, "was ended, since it printed too much")
	case err != nil:
		return "", secretFault(argv, cause, "cannot be run: %v", err)
	case value == "":
		return "", secretFault(argv, cause, "printed nothing%s", words)
	case strings.ContainsAny(value, "\r\n\x00"):
		return "", secretFault(argv, cause, "printed more than one line: it must print the secret alone")
	}
	return value, nil
}

// hidePrinted returns a line of stderr without what the command has printed to stdout, and without
// what looks like a secret.
func hidePrinted(line, printed string) string {
	for word := range strings.FieldsSeq(printed) {
		line = strings.ReplaceAll(line, word, redact.Hidden)
	}
	return redact.Text(line)
}

// secretFault returns the fault of a command that gave no secret. It names the program, and no
// argument: one of them may be a secret.
func secretFault(argv []string, cause fault.Cause, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	return fault.New(fault.Unauthenticated, fault.Host, "", "the command %s %s. If it needs a login or an unlocked "+
		"password manager, see to that: the next call tries it again", filepath.Base(argv[0]), what).
		WithCause(cause).WithReason(fault.SecretCommand)
}
