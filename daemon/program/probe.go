package program

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"holdline/daemon/command"
	"holdline/protocol/fault"
)

// maxProbe bounds what is kept of one reply, in bytes.
const maxProbe = 256 << 10

// A Reply is what a program has printed for a question, and how it ended.
type Reply struct {
	Stdout   []byte
	ExitCode int
	// IsComplete reports whether all that it printed is in Stdout. It is not if
	// it printed more than is kept, or if something held its output open.
	IsComplete bool
	held       bool // something held its output open
}

// isAnswer reports whether the program has succeeded and all of its output was read.
// Only then does something that is missing in Stdout not exist in the program.
func (r *Reply) isAnswer() bool { return r.IsComplete && r.ExitCode == 0 }

// passing marks a fault that says nothing of the program: the machine was busy, or the program was killed.
type passing struct{ *fault.Record }

// Unwrap returns the fault.
func (p passing) Unwrap() error { return p.Record }

// Passes reports whether the error of a look says nothing of the program, so that another look may succeed: the
// program had too little time, was killed, or something held its output open.
func Passes(err error) bool {
	_, ok := errors.AsType[passing](err)
	return ok
}

// Probe runs the program at path with args, and blocks until it has ended or ctx is
// done. Its stdin is empty, and its process group does not outlive the reply. An exit
// code other than 0 is no error. If the program was killed or did not end in time, that
// is an error, whatever it had printed.
func (p *Program) Probe(ctx context.Context, path string, args ...string) (Reply, error) {
	cmd := command.Command{Path: path, Args: args, Env: p.Env, Dir: "/", Stdout: maxProbe, Stderr: 4 << 10}
	out, err := cmd.Run(ctx)
	failed := func(format string, args ...any) *fault.Record {
		return fault.New(fault.SpawnFailure, fault.Engine, p.Operation, format, args...)
	}
	name := strings.Join(args, " ")
	if ctx.Err() != nil {
		return Reply{}, passing{
			failed("%s %s did not answer within %s", p.Bin, name, p.Timeout).WithReason(fault.BadOutput),
		}
	}
	reply := Reply{Stdout: out.Stdout, IsComplete: !out.Cut && !out.Held, held: out.Held}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if exit.Exited() {
			reply.ExitCode = exit.ExitCode()
			return reply, nil
		}
		signal := "killed"
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok {
			signal = ws.Signal().String()
		}
		return Reply{}, passing{failed("%s %s was ended by a signal (%s)", p.Bin, name, signal).
			WithCause(fault.Cause{Reason: fault.Killed, Signal: &signal, StderrTail: tail(string(out.Stderr))})}
	}
	if err != nil {
		cause := fault.Cause{Reason: fault.NotInstalled}
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			text := errno.Error()
			cause.Errno = &text
		}
		return Reply{}, failed("cannot start %s: %v", path, err).WithCause(cause)
	}
	return reply, nil
}

// Unanswered returns the fault of a question whose reply is no answer. It says nothing
// about the program itself: the same question may be answered the next time, so the
// fault asks the user to try again.
func (p *Program) Unanswered(r *Reply, args ...string) error {
	what := fmt.Sprintf("ended with exit code %d", r.ExitCode)
	if !r.IsComplete {
		what = "printed what could not be read to the end"
	}
	f := fault.New(fault.SpawnFailure, fault.Engine, p.Operation,
		"%s %s %s, so that it is not known whether %s can be used: try again",
		p.Bin, strings.Join(args, " "), what, p.Name).WithReason(fault.BadOutput)
	if r.held {
		return passing{f}
	}
	return f
}

// tail returns the last five lines of a text, and nil if the text is empty.
func tail(s string) []string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	return lines[max(len(lines)-5, 0):]
}

// Needs says what version and options a program must have.
type Needs struct {
	Least   Version
	Help    []string // the question whose answer lists the options
	Options []string
	Wanted  []string // options that it is better with
	Update  string   // command that gets another version
}

// Ask asks the program at path for its version and its options, both at the same time.
// It returns a fault if the program lacks what needs lists; the fault says how to get
// it. An option counts as missing only if the whole help was read: a help that was cut
// proves nothing.
func (p *Program) Ask(ctx context.Context, path string, needs Needs) (v Version, has map[string]bool, err error) {
	var said, help Reply
	var helpErr error
	var probes sync.WaitGroup
	probes.Go(func() { said, err = p.Probe(ctx, path, "--version") })
	probes.Go(func() { help, helpErr = p.Probe(ctx, path, needs.Help...) })
	probes.Wait()
	if err != nil {
		return v, nil, err
	}
	known := false
	for word := range strings.FieldsSeq(string(said.Stdout)) { // "2.1.329 (Claude Code)", "codex-cli 0.169.0"
		if v, known = parseVersion(word); known {
			break
		}
	}
	switch {
	case !known && !said.isAnswer():
		return v, nil, p.Unanswered(&said, "--version")
	case !known:
		return v, nil, p.unfit("%s --version does not say a version: it is not %s, or broken", path, p.Name)
	case slices.Compare(v[:], needs.Least[:]) < 0:
		return v, nil, p.unfit("%s %s at %s is too old: %s or newer is needed; update it with: %s",
			p.Name, v, path, needs.Least, needs.Update)
	case helpErr != nil:
		return v, nil, helpErr
	}
	has = options(help.Stdout)
	lacks := func(opt string) bool { return !has[opt] }
	if !help.isAnswer() && slices.ContainsFunc(slices.Concat(needs.Options, needs.Wanted), lacks) {
		return v, nil, p.Unanswered(&help, needs.Help...)
	}
	if i := slices.IndexFunc(needs.Options, lacks); i >= 0 {
		return v, nil, p.unfit("%s %s at %s has no option %s: update it with: %s",
			p.Name, v, path, needs.Options[i], needs.Update)
	}
	return v, has, nil
}

// Version is three numbers, most significant first.
type Version [3]int

// parseVersion reads three numbers with dots, as in "2.1.329". A dash and what follows
// it are ignored.
func parseVersion(word string) (v Version, ok bool) {
	word, _, _ = strings.Cut(word, "-")
	parts := strings.Split(word, ".")
	if len(parts) != len(v) {
		return v, false
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// String returns the version as programs print it.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// options returns the long options that a help text lists: words that begin with two
// dashes, cut at the first character that no option has. A version number would only
// allow a guess at the options.
func options(help []byte) map[string]bool {
	out := map[string]bool{}
	for word := range strings.FieldsSeq(string(help)) {
		if !strings.HasPrefix(word, "--") {
			continue
		}
		end := len(word)
		for i, r := range word {
			if r != '-' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
				end = i
				break
			}
		}
		out[word[:end]] = true
	}
	return out
}
