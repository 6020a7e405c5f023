package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdline/daemon/spawn"
	"holdline/daemon/statedir"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
	"holdline/protocol/socket"
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

// lockWait is how long a new worker waits for its lock: a process that checks whether
// the worker lives holds it for an instant.
const lockWait = time.Second

// ErrUsage is returned by [Main] for arguments that make no sense.
var ErrUsage = errors.New("usage: worker [--run] DIR")

// Whole says where the program holdline is, for workers that run another one: holdline starts
// their children. It is the zero value in a process of holdline.
type Whole struct {
	Path     string // of the file
	Variable string // has the path in the next process of the worker; children do not get it
}

// Main is the command "worker". With only a directory it starts the real
// worker in a session of its own and returns, so that the worker is no child of
// the daemon; with --run it is that worker, and returns when the child and all that
// came from it are gone.
func Main(args []string, whole Whole, stderr io.Writer) error {
	switch {
	case len(args) == 1 && args[0] != "--run":
		err := detach(args[0], whole)
		if err != nil {
			report(os.NewFile(fdReady, "ready"), failure(err))
		}
		return err
	case len(args) == 2 && args[0] == "--run":
		return runWorker(args[1], whole.Path, stderr)
	}
	return ErrUsage
}

// detach starts "worker --run" in a session of its own, with the descriptors of this
// process, and does not wait for it. Its parent becomes init when this process ends, so the
// daemon's end cannot end it.
func detach(dir string, whole Whole) error {
	faultpoint.At("worker.begun")
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

// closeOthers closes every descriptor from first on that this process
// inherited. A descriptor that it has opened itself is close-on-exec.
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

// runWorker is the command "worker --run". It returns when the worker has left.
func runWorker(dir, whole string, stderr io.Writer) error {
	syscall.CloseOnExec(fdEnv)
	syscall.CloseOnExec(fdReady)
	if whole != "" {
		syscall.CloseOnExec(fdWhole)
	}
	closeOthers(fdReady + 1)
	yieldMemory()
	ready := os.NewFile(fdReady, "ready")
	w, err := prepare(dir, os.NewFile(fdEnv, "env"), stderr)
	if err != nil {
		report(ready, failure(err))
		return err
	}
	faultpoint.At("worker.starting")
	report(ready, workerwire.Report{Ready: true, PID: os.Getpid()})
	w.whole = whole
	return w.runToEnd()
}

// failure is the report of a worker that did not start.
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

// report sends r to the daemon. If that is gone, the next one will find the socket.
func report(f *os.File, r workerwire.Report) {
	_, _ = f.Write(append(jsonrpc.Encode(r), '\n'))
	_ = f.Close()
}

// prepare makes the worker of dir. It reads the environment from env and closes that, takes
// the lock, checks the spec, listens, and writes the first state.json. The order matters: a
// daemon takes a held lock for a worker that lives. The lock is free again when the process
// ends, whether prepare succeeds or not.
func prepare(dir string, env *os.File, stderr io.Writer) (*worker, error) {
	b, err := io.ReadAll(io.LimitReader(env, maxEnv+1))
	_ = env.Close()
	if err != nil {
		return nil, fmt.Errorf("read environment: %w", err)
	}
	var environment workerwire.Environment
	if len(b) > maxEnv {
		return nil, fmt.Errorf("environment is over %d bytes", maxEnv)
	}
	if err := json.Unmarshal(b, &environment); err != nil {
		return nil, fmt.Errorf("read environment: %w", err)
	}
	lock, err := takeLock(filepath.Join(dir, process.FileLock))
	if err != nil {
		return nil, err
	}
	me := process.Self()
	if err := lock.Write(me.PID, me.Start); err != nil {
		return nil, err
	}
	faultpoint.At("worker.locked")
	spec, err := process.ReadSpec(dir)
	if err != nil {
		return nil, err
	}
	spec.SetDefaults()
	if err := spec.Check(); err != nil {
		return nil, err
	}
	faultpoint.At("worker.checked")
	ln, err := socket.Listen(spec.Socket)
	if err != nil {
		return nil, err
	}
	faultpoint.At("worker.listening")
	w := newWorker(dir, spec, environment.Env, stderr)
	w.self, w.lock, w.ln, w.secrets = me, lock, ln, environment.Secrets
	if err := w.saveState(); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return w, nil
}

// takeLock locks the worker's directory. It returns [statedir.ErrLocked] if another
// process holds the lock for longer than [lockWait].
func takeLock(path string) (*statedir.Lock, error) {
	deadline := time.Now().Add(lockWait)
	for {
		lock, err := statedir.TryLock(path)
		if !errors.Is(err, statedir.ErrLocked) || time.Now().After(deadline) {
			return lock, err
		}
		<-time.After(10 * time.Millisecond)
	}
}
