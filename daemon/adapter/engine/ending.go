package engine

import (
	"fmt"
	"strings"

	"holdline/daemon/telling"
	"holdline/protocol/fault"
)

// Program names a consult program in faults. Its methods make the faults that all
// engines share.
type Program struct {
	Name      string // "Claude Code"
	Operation string // what faults are filed under
}

// Down returns a downstream_failure fault with what is known of the process.
func (p Program) Down(exit Exit, reason fault.Reason, format string, args ...any) *fault.Record {
	return exit.Explain(reason, fault.New(fault.DownstreamFailure, fault.Engine, p.Operation, format, args...))
}

// Ended returns the fault of a run that the runner has ended, or whose program could
// not be started. It returns nil for all other endings, and for a deadline: then there
// may be an answer.
func (p Program) Ended(exit Exit, why Why) *fault.Record {
	switch {
	case why == Cancelled:
		return fault.New(fault.Cancelled, fault.Engine, p.Operation, "the consult was cancelled")
	case why == Overflow:
		return p.Down(exit, fault.BadOutput, "%s printed more than is kept, and was ended", p.Name)
	case exit.SpawnErrno != "":
		reason := fault.Reason("")
		if exit.SpawnErrno == "ENOENT" || exit.SpawnErrno == "EACCES" {
			reason = fault.NotInstalled
		}
		return exit.Explain(reason, fault.New(fault.SpawnFailure, fault.Worker, p.Operation,
			"%s cannot be started (%s)", p.Name, exit.SpawnErrno))
	}
	return nil
}

// Late returns the timeout fault of a run that has no answer when its time is up.
func (p Program) Late(exit Exit, why Why) *fault.Record {
	text := "time was up before there was an answer; ask for less, or give a larger timeout_s"
	if why == Stalled {
		text = p.Name + " made no progress for too long, and was ended before there was an answer"
	}
	return exit.Explain(fault.Deadline, fault.New(fault.Timeout, fault.Engine, p.Operation, "%s", text))
}

// Silent returns the fault of a process that ended without a result in its output s. If the
// worker was lost, the fault is outcome_unknown, since the program may have done its work.
func (p Program) Silent(exit Exit, s *Stream) *fault.Record {
	switch {
	case !exit.Known:
		return exit.Explain(fault.Killed, fault.New(fault.OutcomeUnknown, fault.Worker, p.Operation,
			"the consult's worker was lost, and what it did is unknown; it is not run again by itself"))
	case exit.Signal != "" || exit.Code > 128 && exit.Code <= 128+64:
		signal := exit.Signal
		if signal == "" {
			signal = fmt.Sprintf("signal %d", exit.Code-128)
		}
		return exit.Explain(fault.Killed, fault.New(fault.ProcessFailure, fault.Engine, p.Operation,
			"%s was killed (%s) before there was an answer", p.Name, signal))
	case len(s.printed) > 0: // most programs say there why they do not work
		return p.Down(exit, fault.BadOutput, "%s ended (exit code %d) without a result. It printed: %s", p.Name, exit.Code,
			s.Printed())
	case s.torn:
		return p.Down(exit, fault.BadOutput, "%s ended (exit code %d) in the middle of a line", p.Name, exit.Code)
	case s.noise > 0:
		return p.Down(exit, fault.BadOutput, "%s ended (exit code %d) without a result; %d of its lines "+
			"were not JSON", p.Name, exit.Code, s.noise)
	}
	text := fmt.Sprintf("%s ended (exit code %d) without a result", p.Name, exit.Code)
	if said := telling.Line(exit.Stderr); said != "" {
		text += ": " + fault.Short(said, 400)
	}
	return p.Down(exit, fault.BadOutput, "%s", text)
}

// Explain adds to f what is known of the process: exit code or signal, the error of its
// start, and the last lines of stderr. It returns f.
func (e Exit) Explain(reason fault.Reason, f *fault.Record) *fault.Record {
	cause := fault.Cause{Reason: reason, StderrTail: e.Stderr}
	if e.Known && e.SpawnErrno == "" {
		if e.Signal != "" {
			cause.Signal = &e.Signal
		} else {
			cause.ExitCode = &e.Code
		}
	}
	if e.SpawnErrno != "" {
		cause.Errno = &e.SpawnErrno
	}
	return f.WithCause(cause)
}

// maxText bounds the text of a model that is kept, in bytes. The oldest texts are
// dropped first.
const maxText = 2 << 20

// Texts collects the texts of a model in their order, at most [maxText] bytes of them.
type Texts struct {
	list []string
	size int
}

// Add appends a text. If all texts together are too long, it drops the oldest ones. A
// single text that is too long is cut.
func (t *Texts) Add(text string) {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	t.list = append(t.list, text)
	t.size += len(text)
	n := 0
	for t.size > maxText {
		t.size -= len(t.list[n])
		t.list[n] = ""
		n++
	}
	t.list = t.list[n:]
}

// List returns the texts that are kept, oldest first. The caller must not change the
// slice.
func (t *Texts) List() []string { return t.list }
