package worker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"holdline/daemon/command"
	"holdline/daemon/sandbox"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// Descriptors that the exec step is given beside the child's own.
const (
	fdGo     = 3 // to be read: length and [process.ExecRequest], once the child is on record
	fdStatus = 4 // to be written: [process.ExecFailure]; closed by success
)

// ErrExec is returned by [Exec] when the worker was told why the child could
// not be started, or is gone; there is nobody left to tell.
var ErrExec = errors.New("not executed")

// Exec is the command "exec": it waits until its worker has this process on
// record, then becomes the program. It returns only if it could not.
func Exec(environ []string) error {
	// The parent-death signal belongs to a thread, and the thread that calls
	// exec is the one that stays.
	runtime.LockOSThread()
	syscall.CloseOnExec(fdGo)
	syscall.CloseOnExec(fdStatus)
	faultpoint.At("exec.begun")
	var r process.ExecRequest
	if err := readRequest(os.NewFile(fdGo, "go"), &r); err != nil {
		return err // the worker is gone
	}
	faultpoint.At("exec.told")
	op, err := become(&r, environ)
	failure := process.ExecFailure{Op: op, Errno: int(syscall.EINVAL)}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		failure.Errno = int(errno)
	}
	status := os.NewFile(fdStatus, "status")
	_, _ = status.Write(process.Encode(failure))
	return fmt.Errorf("%w: %s: %w", ErrExec, op, err)
}

func become(r *process.ExecRequest, environ []string) (op string, err error) {
	if err := dieWithParent(r.ParentDeathSignal); err != nil {
		return "prctl", err
	}
	if os.Getppid() != r.Parent { // it died before the line above
		return "parent", syscall.ESRCH
	}
	if r.Cwd != "" {
		if err := os.Chdir(r.Cwd); err != nil {
			return "chdir", err
		}
	}
	path, err := find(r.Argv[0], environ)
	if err != nil {
		return "exec", err
	}
	if r.Confine != nil {
		if err := sandbox.Confine(r.Confine.Dirs, r.Confine.Files); err != nil {
			return process.OpConfine, err
		}
	}
	return "exec", syscall.Exec(path, r.Argv, environ)
}

// find returns the program that name means with the child's own PATH.
func find(name string, environ []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // if it cannot be executed, exec says why
	}
	path := ""
	for _, v := range environ {
		if list, ok := strings.CutPrefix(v, "PATH="); ok {
			path = list
		}
	}
	return command.LookPath(name, path)
}

// The request is framed by its length, since the pipe stays open: its end is
// how a step that still waits learns that the worker is gone.
func writeRequest(f io.Writer, r *process.ExecRequest) error {
	b := process.Encode(r)
	_, err := f.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func readRequest(f io.Reader, r *process.ExecRequest) error {
	var length [4]byte
	if _, err := io.ReadFull(f, length[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrExec, err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxEnv {
		return fmt.Errorf("%w: request of %d bytes", ErrExec, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(f, b); err != nil {
		return fmt.Errorf("%w: %w", ErrExec, err)
	}
	return json.Unmarshal(b, r)
}
