package near

import (
	"fmt"
	"path/filepath"

	"holdline/daemon/logfile"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// ExitFault returns the fault of a child of spec that ended by itself while a call waited for it. tail
// are the last lines that it wrote to stderr.
func ExitFault(spec *process.Spec, operation string, exit process.Exit, tail []string) *fault.Record {
	code, detail := fault.ProcessFailure, fmt.Sprintf("%s ended: %s", spec.Name, exit)
	cause := fault.Cause{ExitCode: exit.Code, StderrTail: tail}
	if exit.Closed != "" {
		detail = fmt.Sprintf("%s closed its %s and went on running, so Holdline ended it", spec.Name, exit.Closed)
	}
	if exit.Signal != "" {
		cause.Signal = &exit.Signal
	}
	if exit.SpawnErrno != "" {
		code = fault.SpawnFailure
		detail = spec.NotStarted(exit)
		cause.Errno = &exit.SpawnErrno
	}
	r := fault.New(code, fault.Worker, operation, "%s", detail)
	if own := fault.Exhausted(operation, fault.ErrnoNamed(exit.SpawnErrno)); own != nil {
		r = own
	}
	r.Fault.Generation = spec.Generation
	return r.WithCause(cause)
}

// maxStderrLog is where the file of [KeepStderr] is rotated, in bytes.
const maxStderrLog = 1 << 20

// KeepStderr appends what the child of a worker elsewhere has written to stderr to its file in dir,
// the worker's directory here.
func KeepStderr(dir string, b []byte) {
	log := logfile.File{Path: filepath.Join(dir, process.FileStderr), MaxBytes: maxStderrLog, Keep: 1, Timed: true}
	_ = log.Append(b)
	_ = log.Close()
}
