package worker

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"holdline/daemon/statedir"
	"holdline/daemon/worker/detach"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
	"holdline/protocol/socket"
	"holdline/protocol/workerwire"
)

// lockWait is how long a new worker waits for its lock: a process that checks whether
// the worker lives holds it for an instant.
const lockWait = time.Second

// ErrUsage is returned by [Main] for arguments that make no sense.
var ErrUsage = errors.New("usage: worker [--run] DIR")

// Main is the command "worker". With only a directory it starts the real worker in a session of
// its own and returns, so that the worker is no child of the daemon. With --run and a directory it
// is that worker: it blocks until the child and all that came from it are gone. For other
// arguments it returns [ErrUsage]. It returns an error, too, if the worker cannot start or cannot
// unlock its directory. whole says where the program holdline is; stderr takes the worker's log.
func Main(args []string, whole detach.Whole, stderr io.Writer) error {
	switch {
	case len(args) == 1 && args[0] != "--run":
		return detach.Start(args[0], whole)
	case len(args) == 2 && args[0] == "--run":
		return runWorker(args[1], whole.Path, stderr)
	}
	return ErrUsage
}

// runWorker is the command "worker --run". It tells the daemon that the worker is ready, or why it
// could not start, and returns that error, or that of [worker.runToEnd] when the worker has left.
func runWorker(dir, whole string, stderr io.Writer) error {
	env, ready := detach.Inherit(whole != "")
	yieldMemory()
	w, err := prepare(dir, env, stderr)
	if err != nil {
		detach.Fail(ready, err)
		return err
	}
	if b := w.spec.Bounds; b != nil && b.Processes > 0 {
		keepThreads(spareThreads)
	}
	faultpoint.At("worker.starting")
	detach.Report(ready, workerwire.Report{Ready: true, PID: os.Getpid()})
	w.whole = whole
	return w.runToEnd()
}

// spareThreads is how many threads a worker needs besides the one that runs and that of the runtime.
const spareThreads = 8

// keepThreads starts n threads of the operating system and returns when all of them are idle; the
// runtime uses them later. The runtime ends the process if it needs another thread and the system
// refuses it, which it does when the child and what that has started are as many as they may be.
func keepThreads(n int) {
	var there, over sync.WaitGroup
	release := make(chan struct{})
	there.Add(n)
	for range n {
		over.Go(func() {
			runtime.LockOSThread() // so that each has its own
			defer runtime.UnlockOSThread()
			there.Done()
			<-release
		})
	}
	there.Wait()
	close(release)
	over.Wait()
}

// prepare returns a worker for the directory dir that runs nothing yet. It reads the environment
// from env and closes that, takes the lock of dir, writes this process into the lock file, checks
// the spec, listens on its socket, and writes the first state.json. The order matters: a daemon
// takes a held lock for a worker that lives. It returns the error of the first step that fails,
// and then no worker. It keeps the lock after an error, too, until the process ends.
func prepare(dir string, env *os.File, stderr io.Writer) (*worker, error) {
	environment, err := detach.ReadEnvironment(env)
	if err != nil {
		return nil, err
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
	w.data = environment.Data
	if w.mark, err = process.NewTaken(dir); err == nil {
		err = w.saveState()
	}
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	return w, nil
}

// takeLock takes the lock file at path. While another process holds it, takeLock tries again, for
// up to [lockWait]; then the error wraps [statedir.ErrLocked].
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
