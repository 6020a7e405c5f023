package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"holdline/daemon/logfile"
	"holdline/daemon/spawn"
	"holdline/daemon/statedir"
	"holdline/protocol"
	"holdline/protocol/bootclock"
	"holdline/protocol/faultpoint"
	"holdline/protocol/idlemem"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

const (
	// linger is the time that descendants of the child have after its exit, and that
	// a server has after it has closed its stdin or stdout. Then they are killed.
	linger = time.Second
	// drainTime bounds the reading after the whole tree was killed: a process
	// outside the tree may still have a pipe open.
	drainTime = time.Second
	// drainMax bounds what is read in that time beyond the limits, in bytes; no pipe holds more.
	drainMax   = 2 << 20
	killTime   = 2 * time.Second       // for which the worker kills the tree again and again
	killPause  = 20 * time.Millisecond // between two of these rounds
	aloneGrace = 5 * time.Second       // between the steps of the ladder, without a daemon
	leaveTime  = time.Second           // for the last answers on each connection
)

// worker is the state of the process. The fields up to forked are set before its
// goroutines start; mu guards all fields below it.
type worker struct {
	dir     string // the worker's directory
	whole   string // path of holdline, which starts the child; "" is this program
	spec    process.Spec
	env     []string         // the child's whole environment
	secrets []string         // must not be shown where the child prints them
	data    int64            // RLIMIT_DATA of the child; 0 leaves it as it is
	stderr  io.Writer        // the worker's own log
	self    process.Proc     // this process
	boot    string           // id of the machine's boot
	lock    *statedir.Lock   // held as long as the process lives: to daemons it is the sign of life
	ln      *socket.Listener // for daemons
	mark    *process.Taken   // what was taken, for later daemons; used with mu

	wg     sync.WaitGroup // all goroutines but those of [conn]
	wake   chan struct{}  // holds a token when conduct has to check what is due
	left   chan struct{}  // closed before the listener is
	forked chan struct{}  // closed when the child's pid is known, or there will be none

	memory idlemem.Releaser // has counted what has passed

	saving sync.Mutex // orders the writes of state.json; taken before mu
	// spooling is held over reads and writes of the spool, and while stdout is added to out:
	// so a new spool gets all of it, in order. It is taken before mu. It guards long.
	spooling sync.Mutex
	long     longLine

	mu    lockcheck.Mutex
	cond  *sync.Cond // on mu: something below has changed
	later []func()   // what conduct does next, without the lock
	out   *output
	in    input
	spool *spool // nil until needed

	conns      map[*conn]struct{}
	attached   *conn      // the only connection that may write to the child; nil if there is none
	epoch      int64      // of the last daemon that was attached
	detachedAt time.Time  // when the last connection that was attached ended
	attendance attendance // changed by attendLocked alone

	child      process.Proc // its PID is 0 until it was forked
	childState childState   // changed by moveChildLocked alone
	exit       process.Exit // of the child, from childEnded on; Closed may be set before
	endedAt    time.Time    // from childEnded on

	closed   string    // process.Stdin or Stdout, the first that a living server has closed; "" if neither
	closedAt time.Time // when

	outFile, errFile *os.File
	readersLeft      int       // of the two
	drained          int       // bytes of stdout read from childGone on
	drainUntil       time.Time // when the readers are ended, from childGone on

	closedSeq int64 // number of the closed event, from childClosed on

	ladder    ladder
	skipsAcks bool     // a signal came: the worker leaves without waiting for acknowledgements
	ending    []waiter // requests to terminate the child that are not answered
}

// newWorker returns a worker that runs nothing yet. Its caller must set self, lock, ln and
// secrets before [worker.runToEnd].
func newWorker(dir string, spec process.Spec, env []string, stderr io.Writer) *worker {
	w := &worker{
		dir: dir, spec: spec, env: env, stderr: stderr, boot: bootclock.ID(),
		wake: make(chan struct{}, 1), left: make(chan struct{}), forked: make(chan struct{}),
		out: newOutput(spec.Limits), conns: make(map[*conn]struct{}), detachedAt: time.Now(),
	}
	w.cond = sync.NewCond(&w.mu)
	return w
}

// logf writes a line to the worker's log. It blocks on that file, so w.mu must not be held.
func (w *worker) logf(format string, args ...any) {
	lockcheck.Blocking("write log")
	_, _ = fmt.Fprintf(w.stderr, "%s %s\n", time.Now().UTC().Format(time.RFC3339Nano), fmt.Sprintf(format, args...))
}

// wakeConduct wakes conduct, which checks what is due. It may be called with or without w.mu.
func (w *worker) wakeConduct() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// runToEnd starts the child and serves daemons until the worker may leave and all goroutines have
// ended. It returns an error if the pipes cannot be made or the lock file cannot be unlocked.
// Daemons are accepted only after the child was forked, so that each gets its pid. It takes w.mu.
func (w *worker) runToEnd() error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	defer signal.Stop(signals)
	if err := adoptOrphans(); err != nil {
		w.logf("become subreaper: %v", err)
	}
	c, err := spawn.New()
	if err != nil {
		_ = w.ln.Close()
		return fmt.Errorf("make pipes: %w", err)
	}
	log := logfile.File{Path: filepath.Join(w.dir, process.FileStderr), MaxBytes: maxStderrLog, Keep: 1, Timed: true}
	w.in.file, w.outFile, w.errFile, w.readersLeft = c.Stdin, c.Stdout, c.Stderr, 2
	w.wg.Go(func() { w.parent(c) })
	w.wg.Go(w.readStdout)
	w.wg.Go(func() { w.readStderr(&log) })
	w.wg.Go(w.writeStdin)
	w.wg.Go(func() { w.watchStdin(c.Stdin) })
	var accepting sync.WaitGroup
	accepting.Go(func() {
		<-w.forked
		w.accept(w.ln.UnixListener)
	})

	w.conduct(signals)

	w.shutDown(&accepting)
	w.wg.Wait()
	_ = log.Close()
	faultpoint.At("worker.left")
	return w.lock.Unlock()
}

// conduct runs [worker.stepLocked] whenever the state has changed or a time has come, then the
// funcs in w.later, and writes state.json when the phase has changed. A value from signals makes it
// end the child. It returns when the worker may leave. It takes w.mu, and holds it neither while it
// waits nor for the funcs and files.
func (w *worker) conduct(signals <-chan os.Signal) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	phase := process.PhaseStarting
	for {
		w.mu.Lock()
		next, done := w.stepLocked(time.Now())
		now, later := w.phaseLocked(), w.later
		w.later = nil
		w.mu.Unlock()
		for _, do := range later {
			do()
		}
		if now != phase {
			phase = now
			if err := w.saveState(); err != nil {
				w.logf("%v", err)
			}
			faultpoint.At("worker.phase")
		}
		if done {
			return
		}
		timer.Reset(next)
		select {
		case <-w.wake:
		case <-timer.C:
		case <-signals:
			w.mu.Lock()
			w.terminateLocked(linger)
			w.skipsAcks = true
			w.mu.Unlock()
		}
	}
}

// stepLocked does what is due at now. It goes alone if no daemon has come back in time. It begins
// to end a child that has closed stdin or stdout, or is alone and past its deadline, signals one
// that is being ended, and cleans up after one that has ended. Signals and files are left to
// w.later. Call it again after next at most; done: the worker may leave. w.mu must be held.
func (w *worker) stepLocked(now time.Time) (next time.Duration, done bool) {
	next = time.Minute // timers do not count the time for which the machine sleeps
	due := func(at time.Time) bool {
		if d := at.Sub(now); d > 0 {
			next = min(next, d)
			return false
		}
		return true
	}
	alone := w.isAloneLocked()
	if w.attached == nil && !alone && due(w.detachedAt.Add(w.windowLocked())) {
		w.goAloneLocked()
		alone = true
	}
	idle := w.ladder.step == ladderIdle
	if hard := w.spec.Orphan.HardDeadlineBootMS; alone && hard > 0 && idle && due(bootclock.TimeMS(hard)) {
		w.terminateLocked(aloneGrace)
	}
	if w.childState < childEnded {
		if w.closed != "" && w.ladder.step == ladderIdle && due(w.closedAt.Add(linger)) {
			// The server is useless now, and may never find out.
			closed := w.closed
			w.exit.Closed = closed
			w.later = append(w.later, func() { w.logf("the server has closed its %s and lives: it is ended", closed) })
			w.terminateLocked(linger)
		}
		w.climbLocked(now, due)
	} else {
		w.afterExitLocked(now, due)
	}
	if w.childState == childClosed && (w.out.acked >= w.closedSeq || alone || w.skipsAcks) {
		return 0, true
	}
	return next, false
}

// windowLocked returns for how long the worker waits for a daemon. One that no daemon has attached to yet does not
// wait for the long window of a worker elsewhere: its daemon ended, or lost its way here, while it started, and
// nobody has called anything on it. The caller must hold w.mu.
func (w *worker) windowLocked() time.Duration {
	window := time.Duration(w.spec.Orphan.AfterMS) * time.Millisecond
	if w.epoch == 0 {
		return min(window, protocol.WorkerWindow)
	}
	return window
}

// afterExitLocked has the descendants of the ended child killed, after [linger], or at once if the
// child was being ended. When they are gone it answers the Terminate requests. Then it moves the
// child to childClosed if its output was read to the end; once drainTime is over, it makes the
// reads fail. due is that of [worker.stepLocked]. The caller must hold w.mu.
func (w *worker) afterExitLocked(now time.Time, due func(time.Time) bool) {
	l := &w.ladder
	if w.childState < childGone && (l.step != ladderIdle || due(w.endedAt.Add(linger))) && due(l.nextKill) {
		w.killTreeLocked(now)
	}
	if w.childState < childGone {
		return
	}
	ending := w.ending
	w.ending = nil // first: an answer may drop its connection, and change w.ending
	for _, q := range ending {
		q.c.reply(q.id, w.exit)
	}
	switch {
	case w.readersLeft == 0:
		w.moveChildLocked(childClosed)
	case due(w.drainUntil): // a process outside the tree has a pipe open
		for _, f := range []*os.File{w.outFile, w.errFile} {
			if f != nil {
				_ = f.SetReadDeadline(now)
			}
		}
	}
}

// goAloneLocked begins the time without a daemon. As spec.Orphan says, it begins to end the child,
// or has conduct start a spool for stdout. Until then, and if that fails, stdout stays in memory up
// to the limit; after that the child has to wait. The caller must hold w.mu.
func (w *worker) goAloneLocked() {
	w.attendLocked(holding)
	faultpoint.At("worker.alone")
	if w.spec.Orphan.Do == process.OrphanTerminate {
		if w.childState < childEnded {
			w.terminateLocked(aloneGrace)
		}
		return
	}
	w.later = append(w.later, func() {
		err := w.startSpool()
		if err != nil {
			w.logf("%v", err) // the child is held up instead
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.attendance == holding { // else a daemon has attached meanwhile
			w.attendLocked(spooling)
		}
	})
}

// phaseLocked returns the phase that state.json should show. The caller must hold w.mu.
func (w *worker) phaseLocked() string {
	switch {
	case w.attendance == leaving:
		return process.PhaseExited
	case w.isAloneLocked():
		return process.PhaseAlone
	case w.childState > childStarting:
		return process.PhaseRunning
	}
	return process.PhaseStarting
}

// closedByChildLocked records that the child has closed its end of stream, stdin or stdout. If it
// still lives after [linger], it cannot be used any more, and conduct ends it. Only the first
// stream of a child that is not being ended is recorded. The caller must hold w.mu.
func (w *worker) closedByChildLocked(stream string) {
	if w.closed != "" || w.childState >= childEnded || w.ladder.step != ladderIdle {
		return
	}
	w.closed, w.closedAt = stream, time.Now()
	w.wakeConduct()
}

// recordExit records how the child has ended, queues the event Exited for the daemon, and closes
// stdin, which answers the writes that were not made. It takes w.mu.
func (w *worker) recordExit(exit process.Exit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moveChildLocked(childEnded)
	exit.Closed, exit.UnixMS = w.exit.Closed, w.endedAt.UnixMilli()
	w.exit = exit
	w.out.push(entry{kind: exited})
	faultpoint.At("worker.exited")
	w.shutStdinLocked()
}

// recordNoChildren moves the child to childGone if its end is recorded and certainly no descendant
// is left. Call it when this process has no child left to reap. It takes w.mu.
func (w *worker) recordNoChildren() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.childState == childEnded && (process.Exact || w.child.PID == 0) {
		w.moveChildLocked(childGone)
	}
	w.wakeConduct()
}

// saveState writes state.json, which later daemons read if the worker is dead. It returns the error
// of that. It takes w.saving, so that an older state never replaces a newer one, and w.mu, which it
// does not hold while it writes. The caller must hold neither.
func (w *worker) saveState() error {
	w.saving.Lock()
	defer w.saving.Unlock()
	w.mu.Lock()
	s := process.State{
		Version: w.spec.Version, ID: filepath.Base(w.dir), Phase: w.phaseLocked(), BootID: w.boot,
		PID: w.self.PID, Start: w.self.Start, ChildPID: w.child.PID, ChildStart: w.child.Start,
		LastWrite: w.in.taken, Acked: w.out.acked, NextSeq: w.out.next, UnixMS: time.Now().UnixMilli(),
	}
	if w.childState >= childEnded {
		exit := w.exit
		s.Exit = &exit
	}
	if w.spool != nil {
		s.Spool = &process.Spool{
			Bytes: w.spool.size, Acked: w.ackedSpoolLocked(), Lost: w.spool.lost,
		}
	}
	w.mu.Unlock()
	return statedir.WriteFile(filepath.Join(w.dir, process.FileState), jsonrpc.Encode(s))
}

// shutDown ends the serving of daemons. It writes output that no daemon has acknowledged to the
// spool, and state.json; if the worker is alone and its spec says terminate, it removes the
// worker's directory instead. Then it closes the listener and, after the last answers or
// [leaveTime], each connection, and waits for accepting. It takes w.mu, and must be called once.
func (w *worker) shutDown(accepting *sync.WaitGroup) {
	w.mu.Lock()
	before, alone := w.attendance, w.isAloneLocked()
	unread := w.out.acked < w.closedSeq
	w.attendLocked(leaving)
	w.mu.Unlock()
	if unread {
		w.lastSpool(before == spooling)
	}
	if alone && w.spec.Orphan.Do == process.OrphanTerminate {
		// No client still waits for its answers: proxies give up before a worker goes alone.
		_ = os.RemoveAll(w.dir)
		_ = os.Remove(process.RegisterFile(w.dir))
	} else if err := w.saveState(); err != nil {
		w.logf("%v", err)
	}
	faultpoint.At("worker.leaving")
	close(w.left)
	_ = w.ln.Close()
	w.mu.Lock()
	for c := range w.conns {
		c.closeLocked(leaveTime)
	}
	w.cond.Broadcast()
	w.mu.Unlock()
	accepting.Wait()
	if filepath.Dir(w.spec.Socket) != w.dir { // it has a directory of its own
		_ = os.Remove(filepath.Dir(w.spec.Socket))
	}
}

// lastSpool writes the stdout in memory to a new spool, unless there is none and the spool is
// current: it has all other stdout. If that fails, it logs why, and records those bytes as lost; an
// older spool stays. The caller must hold neither w.spooling nor w.mu.
func (w *worker) lastSpool(current bool) {
	w.mu.Lock()
	inMemory := int64(w.out.in.Bytes)
	w.mu.Unlock()
	if inMemory == 0 && current {
		return
	}
	if err := w.startSpool(); err != nil {
		w.logf("%v", err)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.spool == nil {
			w.spool = &spool{}
		}
		w.spool.lost = inMemory
	}
}

// signalGroup sends sig to the child's process group, if it was not reaped. It takes w.mu.
func (w *worker) signalGroup(sig syscall.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.child.PID > 0 && w.childState < childReaped {
		_ = syscall.Kill(-w.child.PID, sig)
	}
}

// signalTree sends sig to all descendants of the worker, whatever sessions and groups they have
// made. The child's process group gets it, too, if it is SIGKILL or the descendants are not known
// for sure. It logs errors. It takes w.mu.
func (w *worker) signalTree(sig syscall.Signal) {
	if !process.Exact || sig == syscall.SIGKILL {
		w.signalGroup(sig)
	}
	all, err := process.Descendants(w.self.PID)
	if err != nil {
		w.signalGroup(sig)
		w.logf("list processes: %v", err)
		return
	}
	for _, p := range all {
		if err := process.Signal(p, sig); err != nil && !errors.Is(err, process.ErrGone) {
			w.logf("signal %d: %v", p.PID, err)
		}
	}
}
