package cmdenv

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// Exit codes of every command. Users may rely on them, so they never change.
const (
	ExitOK       = 0
	ExitFailure  = 1
	ExitUsage    = 2 // the command line makes no sense
	ExitNoDaemon = 3
	ExitLost     = 4 // the daemon ended before it had answered
)

// Errors that become exit codes.
var (
	// ErrUsage is the error of a command line that makes no sense.
	ErrUsage = errors.New("usage")
	// ErrLost means that the daemon ended before it had answered.
	ErrLost = errors.New("the connection to the daemon was lost")
)

// hinted is an error with a hint for the user, which is printed on a line of its own.
type hinted struct {
	err  error
	hint string
}

// Error returns the text of the error without the hint.
func (h *hinted) Error() string { return h.err.Error() }

// Unwrap returns the error without the hint.
func (h *hinted) Unwrap() error { return h.err }

// WithHint returns err with a hint: what the user can do about it.
func WithHint(err error, hint string) error { return &hinted{err, hint} }

// HasHint reports whether err has a hint.
func HasHint(err error) bool {
	_, has := errors.AsType[*hinted](err)
	return has
}

// exited is the error of a command that has printed everything already. Only its exit code
// counts.
type exited struct{ code int }

// Error returns the exit code in words. It is never printed.
func (e *exited) Error() string { return fmt.Sprintf("exit %d", e.code) }

// ExitWith returns an error that makes the command exit with code and prints
// nothing.
func ExitWith(code int) error { return &exited{code} }

// Report prints err and its hint to stderr, and returns the exit code. It prints nothing for
// nil and for errors of [ExitWith].
func Report(stderr io.Writer, err error) int {
	code, hint := classify(err)
	if _, printed := errors.AsType[*exited](err); err == nil || printed {
		return code
	}
	fmt.Fprintln(stderr, Prefixed(strings.TrimPrefix(err.Error(), ErrUsage.Error()+": ")))
	if hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", hint)
	}
	return code
}

// Prefixed returns a message for stderr. It begins with the program's name, unless the message
// names Holdline first.
func Prefixed(message string) string {
	if strings.HasPrefix(message, "Holdline") {
		return message
	}
	return "holdline: " + message
}

// StartHint is what to do once the user has stopped Holdline.
const StartHint = "start it again with: holdline start"

// classify returns the exit code of an error and the hint to print. All commands get their
// exit codes here.
func classify(err error) (code int, hint string) {
	if err == nil {
		return ExitOK, ""
	}
	if e, ok := errors.AsType[*exited](err); ok {
		return e.code, ""
	}
	if h, ok := errors.AsType[*hinted](err); ok {
		hint = h.hint
	}
	refusal, refused := errors.AsType[*protocol.Refusal](err)
	remote, answered := errors.AsType[*control.RemoteError](err)
	switch {
	case errors.Is(err, ErrUsage):
		return ExitUsage, hint
	case errors.Is(err, socket.ErrNoDaemon):
		_, stopped := errors.AsType[*socket.StoppedError](err)
		switch {
		case hint != "":
		case stopped:
			hint = StartHint
		default:
			hint = "it starts with your first agent; or: holdline start"
		}
		return ExitNoDaemon, hint
	case errors.Is(err, ErrLost):
		return ExitLost, hint
	case refused && refusal.Code == protocol.RefusedVersion:
		hint = "the daemon is of another version; stop it with the program that started it, holdline stop; " +
			"then: holdline start"
	case answered && remote.Fault != nil && remote.Fault.Fault.Code == fault.UnknownMethod:
		hint = "the daemon is older than this command; start it again: holdline stop && holdline start"
	}
	return ExitFailure, hint
}
