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

// maxProbe bounds what is kept of one answer.
const maxProbe = 256 << 10

// A Reply is what a program printed for a question, and how it ended.
type Reply struct {
	Stdout   []byte
	ExitCode int
	// IsComplete reports whether all that it printed is in Stdout. It is not if
	// it printed more than is kept, or if something held its output open.
	IsComplete bool
}

// IsAnswer reports whether what is missing from Stdout is missing in the
// program: it succeeded, and its output was read to the end.
func (r *Reply) IsAnswer() bool { return r.IsComplete && r.ExitCode == 0 }

// Probe runs the program at path for a short question, with nothing on its
// standard input, in a process group that does not outlive the reply. An exit
// code other than 0 is no error. A program that did not end by itself in time
// gave no reply: that is an error, whatever it had printed.
func (p *Program) Probe(ctx context.Context, path string, args ...string) (Reply, error) {
	cmd := command.Command{Path: path, Args: args, Env: p.Env, Dir: "/", Stdout: maxProbe, Stderr: 4 << 10}
	out, err := cmd.Run(ctx)
	failed := func(format string, args ...any) *fault.Record {
		return fault.New(fault.SpawnFailure, fault.Engine, p.Operation, format, args...)
	}
	name := strings.Join(args, " ")
	if ctx.Err() != nil {
		return Reply{}, failed("%s %s did not answer within %s", p.Bin, name, p.Timeout).WithReason(fault.BadOutput)
	}
	reply := Reply{Stdout: out.Stdout, IsComplete: !out.Cut && !out.Held}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if exit.Exited() {
			reply.ExitCode = exit.ExitCode()
			return reply, nil
		}
		signal := "killed"
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok {
			signal = ws.Signal().String()
		}
		return Reply{}, failed("%s %s was ended by a signal (%s)", p.Bin, name, signal).
			WithCause(fault.Cause{Reason: fault.Killed, Signal: &signal, StderrTail: tail(string(out.Stderr))})
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

// Unanswered returns the fault of a question whose reply is no answer. It says
// nothing about the program: the same question may be answered the next time.
func (p *Program) Unanswered(r *Reply, args ...string) error {
	what := fmt.Sprintf("ended with exit code %d", r.ExitCode)
	if !r.IsComplete {
		what = "printed what could not be read to the end"
	}
	return fault.New(fault.SpawnFailure, fault.Engine, p.Operation,
		"%s %s %s, so that it is not known whether %s can be used: try again",
		p.Bin, strings.Join(args, " "), what, p.Name).WithReason(fault.BadOutput)
}

// tail is the last lines of a text.
func tail(s string) []string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	return lines[max(len(lines)-5, 0):]
}

// Needs are what a program must be and have to be used.
type Needs struct {
	Least   Version
	Help    []string // the question whose answer lists the options
	Options []string
	Wanted  []string // options that it is better with
	Update  string   // command that gets another version
}

// Ask asks the program at path for its version and its options, and whether it
// has what is needed; else the error is a fault, which says how to get it. An
// option is missing only if the program's help was read to the end.
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
		if v, known = ParseVersion(word); known {
			break
		}
	}
	switch {
	case !known && !said.IsAnswer():
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
	if !help.IsAnswer() && slices.ContainsFunc(slices.Concat(needs.Options, needs.Wanted), lacks) {
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

// ParseVersion reads a word such as "2.1.329"; what follows a dash in it does
// not count.
func ParseVersion(word string) (v Version, ok bool) {
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

// options are the long options that a help text lists: words that begin with
// two dashes, cut at the first byte that no option has. What a version number
// implies is a guess; this is not.
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
