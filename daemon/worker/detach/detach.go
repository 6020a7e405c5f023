// Package detach starts a worker's process in a session of its own, so that it is no child of
// the daemon, and has what the two say to each other at the start: the child's environment,
// and a report.
//
// The daemon runs the command "worker DIR", which is [Start] and ends at once. What that has
// started, "worker --run DIR", begins with [Inherit] and [ReadEnvironment], and ends its start
// with [Report] or [Fail].
package detach

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"holdline/daemon/spawn"
	"holdline/daemon/statedir"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// Descriptors that a worker inherits beside the first three.
const (
	fdEnv   = 3 // the worker reads its [workerwire.Environment], as JSON
	fdReady = 4 // the worker writes its [workerwire.Report], as a line
	fdWhole = 5 // the program holdline, if the worker runs another one
)

// maxEnv bounds the environment of a child, in bytes.
const maxEnv = 4 << 20

// Whole says where the program holdline is, for workers that run another one: holdline starts
// their children. It is the zero value in a process of holdline.
type Whole struct {
	Path     string // of the file
	Variable string // has the path in the next process of the worker; children do not get it
}

// Start is the command "worker DIR"; dir is that directory. It waits for the end of stdin, without
// a time-out, so that the daemon can put this process into a control group, which the worker
// inherits. Then it starts "worker --run" in a session of its own, with the descriptors for the
// environment and the report, and does not wait for it. Its parent becomes init when this process
// ends, so the daemon's end cannot end it. It creates the worker's log in dir if need be. If the
// worker cannot be started, Start sends a failure to the daemon, and returns the error.
func Start(dir string, whole Whole) error {
	err := start(dir, whole)
	if err != nil {
		Fail(os.NewFile(fdReady, "ready"), err)
	}
	return err
}

// start is [Start] without the failure that is sent to the daemon.
func start(dir string, whole Whole) error {
	faultpoint.At("worker.begun")
	_, _ = io.Copy(io.Discard, os.Stdin)
	exe, err := spawn.Self()
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	log, err := ownfile.OpenFile(filepath.Join(dir, process.FileWorkerLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// A worker moves bytes and waits. There are many, so threads and garbage
	// are kept few.
	env := []string{"GOMAXPROCS=1", "GOGC=20"}
	files := []*os.File{null, null, log, os.NewFile(fdEnv, "env"), os.NewFile(fdReady, "ready")}
	if whole.Path != "" {
		f, err := os.Open(whole.Path)
		if err != nil {
			return fmt.Errorf("open holdline: %w", err)
		}
		defer func() { _ = f.Close() }()
		env, files = append(env, whole.Variable+"="+pathOf(fdWhole, whole.Path)), append(files, f)
	}
	p, err := os.StartProcess(exe, []string{"holdline", "worker", "--run", dir}, &os.ProcAttr{
		Dir: "/", Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	faultpoint.At("worker.detached")
	return p.Release()
}

// Inherit returns the files that [Start] has passed on: the child's environment can be read from
// env, and ready takes the report. It makes both close-on-exec, and closes every other descriptor
// that this process has inherited beside stdin, stdout and stderr, so that the child inherits none
// of them. whole says that this process runs another program than holdline; then the descriptor of
// holdline stays open. Call it once, at the start of the process.
func Inherit(whole bool) (env, ready *os.File) {
	syscall.CloseOnExec(fdEnv)
	syscall.CloseOnExec(fdReady)
	if whole {
		syscall.CloseOnExec(fdWhole)
	}
	closeOthers(fdReady + 1)
	return os.NewFile(fdEnv, "env"), os.NewFile(fdReady, "ready")
}

// CloseWhole closes the descriptor of the program holdline, in a worker that runs another one.
// Call it once, after the child was forked.
func CloseWhole() { _ = syscall.Close(fdWhole) }

// closeOthers closes every descriptor from first on that this process inherited. It spares those
// that are close-on-exec, as all are that this process has opened itself. It does nothing if the
// descriptors cannot be listed.
func closeOthers(first int) {
	names := []string{}
	if d, err := os.Open("/dev/fd"); err == nil {
		names, _ = d.Readdirnames(-1)
		_ = d.Close()
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd >= first && !closeOnExec(fd) {
			_ = syscall.Close(fd)
		}
	}
}

// closeOnExec reports whether descriptor fd is close-on-exec, or not open.
func closeOnExec(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err != nil || flags&unix.FD_CLOEXEC != 0
}

// ReadEnvironment reads the child's environment from f to its end, and closes f in any case. It
// blocks until the daemon has closed its end. It returns an error if the environment has more than
// [maxEnv] bytes, or cannot be read or parsed.
func ReadEnvironment(f *os.File) (workerwire.Environment, error) {
	var environment workerwire.Environment
	b, err := io.ReadAll(io.LimitReader(f, maxEnv+1))
	_ = f.Close()
	if err == nil && len(b) > maxEnv {
		return environment, fmt.Errorf("environment is over %d bytes", maxEnv)
	}
	if err == nil {
		err = json.Unmarshal(b, &environment)
	}
	if err != nil {
		return environment, fmt.Errorf("read environment: %w", err)
	}
	return environment, nil
}

// Report sends r to the daemon, as a line on f, and closes f. It ignores errors: if the daemon is
// gone, the next one finds the worker by its socket.
func Report(f *os.File, r workerwire.Report) {
	_, _ = f.Write(append(jsonrpc.Encode(r), '\n'))
	_ = f.Close()
}

// Fail sends the daemon a report that the worker did not start, because of err, and closes f.
func Fail(f *os.File, err error) { Report(f, failure(err)) }

// failure returns the report of a worker that did not start because of err. Its code is
// CodeExhausted if the machine has run out of something, CodeLocked if another process holds the
// worker's lock, else CodeInvalid.
func failure(err error) workerwire.Report {
	if f := fault.Exhausted("", err); f != nil {
		return workerwire.Report{Error: workerwire.Errorf(workerwire.CodeExhausted, "%s", f.Fault.Detail)}
	}
	code := workerwire.CodeInvalid
	if errors.Is(err, statedir.ErrLocked) {
		code = workerwire.CodeLocked
	}
	return workerwire.Report{Error: workerwire.Errorf(code, "%v", err)}
}
