package supervisor

import (
	"fmt"
	"strings"

	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// whyNot returns in words why a program was not started; "" if the error does not say.
func whyNot(spec *process.Spec, exit process.Exit) string {
	switch {
	case exit.SpawnErrno != "ENOENT":
		return ""
	case exit.SpawnOp == "chdir":
		return ", there is no directory " + spec.Cwd
	case exit.SpawnOp == "exec" && !strings.Contains(spec.Argv[0], "/"):
		return ", no such program is on its PATH"
	case exit.SpawnOp == "exec":
		return ", there is no such program, or not what its first line names"
	}
	return ""
}

// ExitFault returns the fault of a child that ended by itself while a call waited for
// it.
func (w *Worker) ExitFault(operation string, exit process.Exit) *fault.Record {
	code, detail := fault.ProcessFailure, fmt.Sprintf("%s ended: %s", w.spec.Name, exit)
	cause := fault.Cause{ExitCode: exit.Code, StderrTail: w.StderrTail()}
	if exit.Closed != "" {
		detail = fmt.Sprintf("%s closed its %s and went on running, so Holdline ended it", w.spec.Name, exit.Closed)
	}
	if exit.Signal != "" {
		cause.Signal = &exit.Signal
	}
	if exit.SpawnErrno != "" {
		code = fault.SpawnFailure
		detail = fmt.Sprintf("%s cannot be started: %s%s", w.spec.Argv[0], exit, whyNot(&w.spec, exit))
		cause.Errno = &exit.SpawnErrno
	}
	r := fault.New(code, fault.Worker, operation, "%s", detail)
	if own := fault.Exhausted(operation, fault.ErrnoNamed(exit.SpawnErrno)); own != nil {
		r = own
	}
	r.Fault.Generation = w.spec.Generation
	return r.WithCause(cause)
}
