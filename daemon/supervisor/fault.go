package supervisor

import (
	"fmt"
	"strings"

	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// notStarted returns in words why a program was not started.
func notStarted(spec *process.Spec, exit process.Exit) string {
	name := "`" + spec.Argv[0] + "`"
	switch op := exit.SpawnOp + " " + exit.SpawnErrno; {
	case op == "chdir ENOENT":
		return name + " cannot be started in " + spec.Cwd + ": there is no such directory"
	case op == "exec ENOENT" && !strings.Contains(spec.Argv[0], "/"):
		return name + " was not found on its PATH"
	case op == "exec ENOENT":
		return name + " was not found, or the program that its first line names"
	case op == "exec EACCES":
		return name + " may not be run: it is not executable, or its directory is closed to you"
	case op == "exec ENOEXEC":
		return name + " is not a program of this system"
	}
	return fmt.Sprintf("%s cannot be started (%s)", name, exit)
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
		detail = notStarted(&w.spec, exit)
		cause.Errno = &exit.SpawnErrno
	}
	r := fault.New(code, fault.Worker, operation, "%s", detail)
	if own := fault.Exhausted(operation, fault.ErrnoNamed(exit.SpawnErrno)); own != nil {
		r = own
	}
	r.Fault.Generation = w.spec.Generation
	return r.WithCause(cause)
}
