// Package execstep is the command "holdline exec", by which package spawn starts a program:
// the process waits for a request, restricts itself and becomes the program.
//
// Workers start it and are small. It is a package of its own so that they do not link what
// finds and confines programs.
package execstep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdline/daemon/command"
	"holdline/daemon/sandbox"
	"holdline/daemon/spawn"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
)

// maxRequest bounds an [process.ExecRequest], in bytes.
const maxRequest = 4 << 20

// ErrExec is returned by [Exec]. The parent knows the reason already, or has
// ended; the command has nothing to report.
var ErrExec = errors.New("not executed")

// Exec is the command "holdline exec". It waits for the request of
// [spawn.Child.Release] and becomes the program. It returns only if that failed; the
// reason is then in the failure pipe.
func Exec(environ []string) error {
	// The parent-death signal belongs to a thread, and the thread that calls
	// exec is the one that stays.
	runtime.LockOSThread()
	syscall.CloseOnExec(spawn.FDGo)
	syscall.CloseOnExec(spawn.FDStatus)
	faultpoint.At("exec.begun")
	var r process.ExecRequest
	if err := json.NewDecoder(io.LimitReader(os.NewFile(spawn.FDGo, "go"), maxRequest)).Decode(&r); err != nil {
		return fmt.Errorf("%w: %w", ErrExec, err) // the parent has ended
	}
	faultpoint.At("exec.told")
	op, err := become(&r, environ)
	failure := process.ExecFailure{Op: op, Errno: int(syscall.EINVAL)}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		failure.Errno = int(errno)
	}
	status := os.NewFile(spawn.FDStatus, "status")
	_, _ = status.Write(jsonrpc.Encode(failure))
	return fmt.Errorf("%w: %s: %w", ErrExec, op, err)
}

// become applies the request to this process and executes the program. It
// returns the step that failed.
func become(r *process.ExecRequest, environ []string) (op string, err error) {
	if err := spawn.DieWithParent(r.ParentDeathSignal); err != nil {
		return "prctl", err
	}
	if os.Getppid() != r.Parent { // it ended before the signal was set
		return "parent", syscall.ESRCH
	}
	if r.Cwd != "" {
		if err := os.Chdir(r.Cwd); err != nil {
			return "chdir", err
		}
	}
	if dir := command.Variable(environ, process.EnvWorker); dir != "" {
		process.SetMark(dir)
	}
	path, err := findProgram(r.Argv[0], environ)
	if err != nil {
		return "exec", err
	}
	if r.Data > 0 {
		if err := limitData(uint64(r.Data)); err != nil {
			return "limit", err
		}
	}
	if r.Confine != nil {
		if err := sandbox.Confine(r.Confine); err != nil {
			return process.OpConfine, err
		}
	}
	return "exec", syscall.Exec(path, r.Argv, environ)
}

// limitData sets the RLIMIT_DATA of this process, unless it has a lower one.
func limitData(bytes uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &limit); err != nil {
		return err
	}
	limit.Max = min(limit.Max, bytes)
	limit.Cur = min(limit.Cur, limit.Max)
	return unix.Setrlimit(unix.RLIMIT_DATA, &limit)
}

// findProgram returns the path of the program called name. A name without a
// slash is looked up on PATH of environ.
func findProgram(name string, environ []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // if it cannot be executed, exec says why
	}
	return command.LookPath(name, command.Variable(environ, "PATH"))
}
