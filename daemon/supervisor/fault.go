package supervisor

import (
	"fmt"

	"holdline/protocol/fault"
	"holdline/protocol/process"
)

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
		detail = w.spec.NotStarted(exit)
		cause.Errno = &exit.SpawnErrno
	}
	r := fault.New(code, fault.Worker, operation, "%s", detail)
	if own := fault.Exhausted(operation, fault.ErrnoNamed(exit.SpawnErrno)); own != nil {
		r = own
	}
	r.Fault.Generation = w.spec.Generation
	return r.WithCause(cause)
}
