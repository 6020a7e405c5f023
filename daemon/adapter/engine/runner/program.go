package runner

import (
	"bufio"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/messages"
	"holdline/daemon/spawn"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
)

// maxWrites bounds the writes that wait for a program that does not read: all messages fit, and
// the answers to many requests of its own.
const maxWrites = messages.MaxCount + 2048

// program is a consult program as a child process. The goroutine that owns the run
// reads its channels. None of its methods blocks, except close.
type program struct {
	child  *spawn.Child
	stdout chan []byte       // lines, see [program.readLines]; closed at the end
	stderr chan []byte       // lines; closed at the end
	exited chan process.Exit // one value, once the process is reaped
	failed chan error        // one value, if the first write fails
	writes chan input        // what to do with stdin, in this order
	quit   chan struct{}     // closed by close
	work   sync.WaitGroup

	mu     sync.Mutex
	pid    int  // 0 before the fork; guarded by mu
	reaped bool // then pid may be another process; guarded by mu
}

// input is a step of the goroutine that has a program's stdin: it waits for pause if that is not
// 0, or writes data, or closes stdin if there is neither.
type input struct {
	pause time.Duration
	data  []byte
}

// startProgram starts cmd in the directory cwd, with four goroutines that run until
// close. The error is only about pipes: if the program itself cannot be started, exited
// says why. The caller must call close.
func startProgram(cmd *engine.Command, cwd, worker string) (*program, error) {
	child, err := spawn.New()
	if err != nil {
		return nil, err
	}
	p := &program{
		child: child, stdout: make(chan []byte), stderr: make(chan []byte), exited: make(chan process.Exit, 1),
		failed: make(chan error, 1), writes: make(chan input, maxWrites), quit: make(chan struct{}),
	}
	request := process.ExecRequest{
		Argv: cmd.Argv, Cwd: cwd,
		ParentDeathSignal: int(syscall.SIGTERM), // so that the program ends its own tools before it exits
	}
	if w := cmd.Writable; w != nil {
		request.Confine = &process.Confine{Dirs: w.Dirs, Files: w.Files}
	}
	p.work.Go(func() { p.exited <- p.runChild(cmd.Env, worker, request) })
	p.work.Go(func() { p.readLines(child.Stdout, p.stdout, maxLine) })
	p.work.Go(func() { p.readLines(child.Stderr, p.stderr, maxStderrRead) })
	p.work.Go(p.writeLoop)
	return p, nil
}

// runChild starts the program, blocks until it has ended, and returns how. It locks its
// goroutine to its thread: the kernel sends the parent-death signal when the thread
// that forked the program ends, and an unlocked thread may end at any time.
func (p *program) runChild(env []string, worker string, request process.ExecRequest) process.Exit {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := p.child.Fork("", env, worker)
	if err != nil {
		return spawn.Failed("fork", err)
	}
	p.mu.Lock()
	p.pid = pid
	p.mu.Unlock()
	released := p.child.Release(request)
	failed := p.child.AwaitExec()
	if failed.SpawnErrno == "" {
		faultpoint.At("adapter.started")
	}
	_, ws, _ := spawn.Reap(pid, &p.mu, func(int) { p.reaped = true })
	return spawn.ExitOf(failed, released, ws)
}

// readLines sends the lines of f to ch, each with its newline, and closes ch at the end of f.
// A line without one is the beginning of a line of more than limit bytes, or the last.
func (p *program) readLines(f *os.File, ch chan<- []byte, limit int) {
	defer close(ch)
	for r := bufio.NewReader(f); ; {
		line, err := jsonrpc.ReadLine(r, limit)
		if len(line) > 0 {
			select {
			case ch <- line:
			case <-p.quit:
				return
			}
		}
		if err != nil && !errors.Is(err, jsonrpc.ErrTooLong) {
			return
		}
	}
}

// writeLoop makes the writes in their order until stdin is closed. It reports only a
// failure of the first write, the prompt. A later one fails if the program has ended,
// which exited reports.
func (p *program) writeLoop() {
	defer p.child.Stdin.Close()
	for first := true; ; first = false {
		select {
		case in := <-p.writes:
			if in.pause > 0 {
				select {
				case <-time.After(in.pause):
					continue
				case <-p.quit:
					return
				}
			}
			if in.data == nil {
				return
			}
			if _, err := p.child.Stdin.Write(in.data); err != nil {
				if first && !errors.Is(err, os.ErrClosed) {
					p.failed <- err
				}
				return
			}
			if first {
				faultpoint.At("adapter.told")
			}
		case <-p.quit:
			return
		}
	}
}

// queueInput queues data for stdin, and reports whether it could. If too much waits, it drops
// data: the program does not read, and the ladder will end it.
func (p *program) queueInput(data []byte) bool { return p.queue(input{data: data}) }

func (p *program) queue(in input) bool {
	select {
	case p.writes <- in:
		return true
	default:
		return false
	}
}

// pauseInput makes the writes that follow wait.
func (p *program) pauseInput(pause time.Duration) { p.queue(input{pause: pause}) }

// closeStdin closes stdin after the writes that wait.
func (p *program) closeStdin() { p.queueInput(nil) }

// signal sends sig to the program's process group. SIGKILL also goes to all that the
// program has started, since the commands of its tools run in sessions of their own.
// The worker ends what a program leaves behind when it ends by itself.
//
// It holds mu, and does nothing after the program is reaped: its pid may then be
// another process.
func (p *program) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 || p.reaped {
		return
	}
	// The descendants must be listed before the signal: later they have another parent.
	var all []process.Proc
	if sig == syscall.SIGKILL {
		all, _ = process.Descendants(p.pid)
	}
	_ = syscall.Kill(-p.pid, sig)
	for _, proc := range all {
		_ = process.Signal(proc, sig)
	}
}

// stopReading ends the reading of output after the program's end. A process that the
// program left behind may hold its stdout open for ever.
func (p *program) stopReading() {
	now := time.Now()
	for _, f := range []*os.File{p.child.Stdout, p.child.Stderr} {
		_ = f.SetReadDeadline(now)
	}
}

// close closes the pipes and, if the program has ended, waits for all goroutines. If it
// has not, it is left to the worker, and the goroutine that reaps it stays until this
// process exits.
func (p *program) close(ended bool) {
	close(p.quit)
	for _, f := range []io.Closer{p.child.Stdin, p.child.Stdout, p.child.Stderr} {
		_ = f.Close()
	}
	if ended {
		p.work.Wait()
	}
}
