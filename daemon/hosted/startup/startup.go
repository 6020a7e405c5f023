// Package startup has the time that a process of a server may take to start, and says why
// one did not, or may not.
package startup

import (
	"context"
	"errors"
	"strings"
	"time"

	"holdline/daemon/dialect"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/telling"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// maxStart bounds the time of a start, as a multiple of StartTimeout, whatever the
// process writes.
const maxStart = 5

// ErrSlow is the cause of the end of a start that takes too long.
var ErrSlow = errors.New("it was too slow")

// A Clock bounds the time of a start. Output to stderr restarts it, up to
// maxStart times its patience in all.
type Clock struct {
	patience time.Duration
	last     time.Time
	timer    *time.Timer
}

// NewClock returns a context that ends with the cause [errSlow] when the start
// takes too long, and its clock. The caller must call the returned function.
func NewClock(ctx context.Context, patience time.Duration) (context.Context, *Clock, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &Clock{patience: patience, last: time.Now().Add(maxStart * patience)}
	c.timer = time.AfterFunc(patience, func() { cancel(ErrSlow) })
	return ctx, c, func() {
		c.timer.Stop()
		cancel(nil)
	}
}

// Progress restarts the clock.
func (c *Clock) Progress() { c.timer.Reset(min(c.patience, time.Until(c.last))) }

// Shorten takes patience, if that is less, for what is left of the start. Call it before a process can use the clock.
func (c *Clock) Shorten(patience time.Duration) {
	if patience < c.patience {
		c.patience = patience
		c.Progress()
	}
}

// Operation returns the operation of faults of the start of a server.
func Operation(server string) string { return "start:" + server }

// ExhaustedPause is the pause between starts that fail because this machine has
// no room for them.
const ExhaustedPause = time.Second

// SecretPause is the least pause between starts that fail because a command gave no secret. The
// command may ask a person, so no start follows by itself.
const SecretPause = 5 * time.Second

// IsOurs reports whether Holdline itself ran out of disk space, files, processes or
// memory, or cannot reach the host of a server. No server is to blame for that.
func IsOurs(f *fault.Record) bool {
	return f != nil && f.Stage == fault.Host &&
		(f.Fault.Code == fault.ResourceExhausted || f.Reason() == fault.Unreachable)
}

// CannotStart returns the fault of a server for which no process could be started.
func CannotStart(server string, err error) *fault.Record {
	if f := fault.Exhausted(Operation(server), err); f != nil {
		return f
	}
	if f, ok := errors.AsType[*fault.Record](err); ok && f.Reason() == fault.SecretCommand {
		out := fault.New(f.Fault.Code, f.Stage, Operation(server), "%s did not start: %v", server, err)
		return out.WithCause(*f.Cause)
	}
	return fault.New(fault.SpawnFailure, fault.Server, Operation(server),
		"%s did not start: %v", server, err)
}

// WasStopped says, for people, why a process did nothing at all when its time was up.
const WasStopped = "It, or a program that it has started, was stopped, as the signal SIGSTOP and debuggers do"

// A Failure is a start after which the process does not serve.
type Failure struct {
	Server     string
	Generation int64
	Death      *fault.Record // of the process; nil if it has not exited
	Ended      bool          // by Holdline, which Death then says
	Printed    []string      // to stdout, though it is no MCP
	Stopped    bool          // the process, or one that it started, was stopped when its time was up
}

// printed says what was printed to stdout, to follow other words; "" if nothing was.
func (f *Failure) printed() string {
	if len(f.Printed) == 0 {
		return ""
	}
	return ". It printed to stdout, where only MCP may be: " + fault.Quote([]byte(strings.Join(f.Printed, " / ")))
}

// Fault returns the fault of a start that failed with err. It prefers the most useful
// reason: a lack of resources on this machine, or the last line that the server wrote.
func (f *Failure) Fault(err error) *fault.Record {
	operation := Operation(f.Server)
	if r := fault.Exhausted(operation, err); r != nil {
		return r
	}
	if r, ok := errors.AsType[*fault.Record](err); ok && IsOurs(r) {
		return r
	}
	if IsOurs(f.Death) {
		return f.Death
	}
	why := err.Error()
	refusal, refused := errors.AsType[*dialect.RefusalError](err)
	// A process that has refused the handshake, or that was ended for what it
	// answered, says by its exit code nothing of the reason. Any server may refuse
	// the question which era it is of.
	exited := errors.Is(err, upstream.ErrExited)
	if f.Death != nil && (exited || !f.Ended && (!refused || refusal.Method == mcp.Discover)) {
		why = strings.TrimPrefix(f.Death.Fault.Detail, f.Server+" ended: ")
		if words := lastWords(f.Death.Cause); words != "" {
			why += ", " + words
		}
	}
	r := fault.New(fault.SpawnFailure, fault.Server, operation, "%s did not start: %s%s", f.Server, why, f.printed())
	if f.Death != nil {
		r.Fault.Generation, r.Cause = f.Death.Fault.Generation, f.Death.Cause
	}
	return r
}

// Unlisted returns err, with which a call ends that has waited for what a server offers. If that was not said in time,
// and the server has printed something else, more time would not help: then the fault says what it was.
func Unlisted(server string, printed []string, err error) error {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Fault.Code != fault.Timeout || len(printed) == 0 {
		return err
	}
	said := (&Failure{Printed: printed}).printed()
	return fault.New(fault.SpawnFailure, fault.Server, f.Operation, "server %s has not said yet what it offers%s. %s",
		server, said, notMCP)
}

// notMCP says what to do about a program that prints something else.
const notMCP = "See whether it is an MCP server on stdin and stdout, or needs another argument to be one: " +
	"holdline config edit"

// Slow returns the fault of a start that Holdline has ended after took because it was too
// slow. again says that it is tried again.
func (f *Failure) Slow(took time.Duration, again bool) *fault.Record {
	next := ""
	if again {
		next = "Holdline starts it again by itself. "
	}
	does := "If it needs more time: holdline config set mcpServers." + f.Server + ".holdline.start_timeout 5m"
	switch words := f.printed(); { // more time would not help
	case f.Stopped:
		does = WasStopped + words
	case words != "":
		does = strings.TrimPrefix(words, ". ") + ". " + notMCP
	}
	r := fault.New(fault.Timeout, fault.Server, Operation(f.Server),
		"%s had not started after %v, so Holdline has ended it. %s%s", f.Server, took.Round(time.Second), next, does)
	r.Fault.Generation = f.Generation
	if f.Death != nil {
		r.Cause = f.Death.Cause
		if words := lastWords(f.Death.Cause); words != "" {
			r.Fault.Detail += "; the last that it wrote: " + words
		}
	}
	return r
}

// lastWords returns, in quotes, the line of what a process wrote last to stderr that says
// most about why it ended, or "".
func lastWords(c *fault.Cause) string {
	if c == nil {
		return ""
	}
	line := telling.Line(c.StderrTail)
	if line == "" {
		return ""
	}
	return `"` + fault.Quote([]byte(line)) + `"`
}
