package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"holdline/daemon/logfile"
	"holdline/daemon/spawn"
	"holdline/daemon/statedir"
	"holdline/protocol/bootclock"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

const (
	// linger is how long what the child left behind may go on after its exit,
	// and a server after it has closed its stdin or stdout.
	linger = time.Second
	// drainTime bounds the reading after everything was killed: a pipe may be
	// held by a process that is none of ours.
	drainTime = time.Second
	// drainMax bounds what is read then beyond the limits; no pipe holds more.
	drainMax = 2 << 20
	// killTime is how long the tree is killed again and again.
	killTime = 2 * time.Second
	// killPause is between two rounds of it.
	killPause = 20 * time.Millisecond
	// aloneGrace is between the steps when a worker ends its child by itself.
	aloneGrace = 5 * time.Second
	// After freeBytes have passed through and freeIdle of silence, memory is
	// given back to the system: many workers are silent most of the time.
	freeBytes = 256 << 10
	freeIdle  = time.Second
	// leaveTime is for the last answers.
	leaveTime = time.Second
)

// worker is the process's state.
type worker struct {
	dir     string
	spec    process.Spec
	env     []string
	secrets []string // that must not be shown of what the child says
	stderr  io.Writer
	self    process.Proc
	boot    string
	lock    *statedir.Lock
	ln      *socket.Listener

	wg      sync.WaitGroup // all goroutines but those of [conn]
	wake    chan struct{}  // conduct is to look again
	leaving chan struct{}  // closed before the listener is
	forked  chan struct{}  // closed when the child's pid is known, or there will be none

	saving sync.Mutex // orders the writes of state.json; taken before mu

	mu    sync.Mutex
	cond  *sync.Cond // on mu: something below has changed
	out   *output
	in    input
	spool *spool // nil until needed

	conns      map[*conn]struct{}
	attached   *conn
	epoch      int64
	detachedAt time.Time
	alone      bool // the window is over
	spooling   bool // stdout goes to the spool
	left       bool // the worker is leaving
	moved      int  // bytes since memory was given back
	movedAt    time.Time

	child    process.Proc
	running  bool // the exec step has become the program
	reaped   bool
	ended    bool // exit is known
	exit     process.Exit
	endedAt  time.Time
	treeGone bool // no child of any kind is left

	deserted bool      // it is ended for that
	closed   string    // process.Stdin or Stdout, the first that a living server has closed; "" if neither
	closedAt time.Time // when

	outFile, errFile *os.File
	readersLeft      int
	draining         bool // read whatever the limits say
	drained          int  // bytes read so
	drainUntil       time.Time

	closedSeq int64 // number of the closed event; 0 before it

	ladder ladder
	ending []waiter // those who asked to terminate
}

// ladder is where the ending of the child stands.
type ladder struct {
	on           bool
	termAt       time.Time
	killAt       time.Time
	termed       bool
	killingUntil time.Time // zero until the tree is being killed
	nextKill     time.Time // the next round of that
	killed       bool      // it was tried for long enough
	quit         bool      // leave without waiting for acks
}

func newWorker(dir string, spec process.Spec, env []string, stderr io.Writer) *worker {
	w := &worker{
		dir: dir, spec: spec, env: env, stderr: stderr, boot: bootclock.ID(),
		wake: make(chan struct{}, 1), leaving: make(chan struct{}), forked: make(chan struct{}),
		out: newOutput(spec.Limits), conns: make(map[*conn]struct{}), detachedAt: time.Now(),
		moved: freeBytes, movedAt: time.Now(), // the start itself
	}
	w.cond = sync.NewCond(&w.mu)
	return w
}

// logf leaves last words.
func (w *worker) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(w.stderr, "%s %s\n", time.Now().UTC().Format(time.RFC3339Nano), fmt.Sprintf(format, args...))
}

// poke makes conduct look again.
func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run is the worker's life from the first listening on.
func (w *worker) run() error {
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
	log := logfile.File{Path: filepath.Join(w.dir, process.FileStderr), MaxBytes: maxStderrLog, Keep: 1}
	w.in.file, w.outFile, w.errFile, w.readersLeft = c.Stdin, c.Stdout, c.Stderr, 2
	w.wg.Go(func() { w.parent(c) })
	w.wg.Go(w.readStdout)
	w.wg.Go(func() { w.readStderr(&log) })
	w.wg.Go(w.feed)
	w.wg.Go(func() { w.watchStdin(c.Stdin) })
	var accepting sync.WaitGroup
	accepting.Go(func() {
		<-w.forked // who asks is told the child's pid, always
		w.accept(w.ln.UnixListener)
	})

	w.conduct(signals)

	w.leave(&accepting)
	w.wg.Wait()
	_ = log.Close()
	faultpoint.At("worker.left")
	return w.lock.Unlock()
}

// conduct acts when something has changed or a time has come, until the
// worker is to leave.
func (w *worker) conduct(signals <-chan os.Signal) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	phase := process.PhaseStarting
	for {
		w.mu.Lock()
		next, done := w.stepLocked(time.Now())
		now := w.phaseLocked()
		idle := false
		if w.moved >= freeBytes {
			wait := time.Until(w.movedAt.Add(freeIdle))
			if idle = wait <= 0; idle {
				w.moved = 0
			} else {
				next = min(next, wait)
			}
		}
		w.mu.Unlock()
		if idle {
			debug.FreeOSMemory()
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
			w.ladder.quit = true
			w.mu.Unlock()
		}
	}
}

// stepLocked does what is due, and says when to look again at the latest and
// whether all is over.
func (w *worker) stepLocked(now time.Time) (next time.Duration, done bool) {
	next = time.Minute // the machine may sleep, which no timer counts
	due := func(at time.Time) bool {
		if d := at.Sub(now); d > 0 {
			next = min(next, d)
			return false
		}
		return true
	}
	if w.attached == nil && !w.alone && due(w.detachedAt.Add(time.Duration(w.spec.Orphan.AfterMS)*time.Millisecond)) {
		w.goAloneLocked()
	}
	hard := w.spec.Orphan.HardDeadlineBootMS
	if w.alone && hard > 0 && !w.ladder.on && due(bootclock.TimeMS(hard)) {
		w.terminateLocked(aloneGrace)
	}
	l := &w.ladder
	if w.closed != "" && !w.ended && !l.on && due(w.closedAt.Add(linger)) {
		// The server cannot be used any more, and may never notice that.
		w.deserted = true
		w.logf("the server has closed its %s and lives: it is ended", w.closed)
		w.terminateLocked(linger)
	}
	if l.on && !w.ended {
		if due(l.termAt) && !l.termed {
			l.termed = true
			w.shutStdinLocked()
			w.signalTreeLocked(syscall.SIGTERM)
		}
		if due(l.killAt) && due(l.nextKill) {
			w.killTreeLocked(now)
		}
	}
	if w.ended {
		w.afterExitLocked(now, due)
	}
	if w.closedSeq > 0 && (w.out.acked >= w.closedSeq || w.alone || l.quit) {
		return 0, true
	}
	return next, false
}

// afterExitLocked ends what the child left, then the output.
func (w *worker) afterExitLocked(now time.Time, due func(time.Time) bool) {
	l := &w.ladder
	if !w.treeGone && !l.killed && (l.on || due(w.endedAt.Add(linger))) && due(l.nextKill) {
		w.killTreeLocked(now)
	}
	gone := w.treeGone || l.killed
	if gone && len(w.ending) > 0 {
		for _, q := range w.ending {
			q.c.reply(q.id, w.exit)
		}
		w.ending = nil
	}
	if gone && !w.draining {
		// What is in the pipes is all that can come, unless a stranger has
		// one open.
		w.draining = true
		w.drainUntil = now.Add(drainTime)
		w.cond.Broadcast()
	}
	if w.draining && w.readersLeft > 0 && due(w.drainUntil) {
		for _, f := range []*os.File{w.outFile, w.errFile} {
			if f != nil {
				_ = f.SetReadDeadline(now)
			}
		}
	}
	if gone && w.readersLeft == 0 && w.closedSeq == 0 {
		w.closedSeq = w.out.push(entry{kind: closed})
		faultpoint.At("worker.closed")
		w.cond.Broadcast()
	}
}

// goAloneLocked is what happens when no daemon has come back in time.
func (w *worker) goAloneLocked() {
	w.alone = true
	faultpoint.At("worker.alone")
	if w.spec.Orphan.Do == process.OrphanTerminate {
		if !w.ended {
			w.terminateLocked(aloneGrace)
		}
		return
	}
	err := w.startSpoolLocked()
	if err != nil {
		w.logf("%v", err) // the child is held up instead
	}
	w.spooling = err == nil
	w.cond.Broadcast()
}

// phaseLocked is the phase that state.json should show.
func (w *worker) phaseLocked() string {
	switch {
	case w.left:
		return process.PhaseExited
	case w.alone:
		return process.PhaseAlone
	case w.running || w.ended:
		return process.PhaseRunning
	}
	return process.PhaseStarting
}

// closedByChildLocked notes that the child has closed its end of stdin or
// stdout. A server that ends closes both, and has [linger] to do so; one that
// lives on can be asked nothing, or answer nothing, and is ended.
func (w *worker) closedByChildLocked(stream string) {
	if w.closed != "" || w.ended || w.ladder.on {
		return
	}
	w.closed, w.closedAt = stream, time.Now()
	w.poke()
}

// childEnded records the exit.
func (w *worker) childEnded(exit process.Exit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended, w.reaped, w.exit, w.endedAt = true, true, exit, time.Now()
	w.exit.UnixMS = w.endedAt.UnixMilli()
	if w.deserted {
		w.exit.Closed = w.closed
	}
	w.out.push(entry{kind: exited})
	faultpoint.At("worker.exited")
	w.shutStdinLocked()
	w.poke()
}

// noMoreChildren is known where the worker is a subreaper.
func (w *worker) noMoreChildren() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.treeGone = process.Exact || w.child.PID == 0
	w.poke()
}

// saveState writes state.json. The final one says what the spool holds.
func (w *worker) saveState() error {
	w.saving.Lock()
	defer w.saving.Unlock()
	w.mu.Lock()
	s := process.State{
		Version: w.spec.Version, Phase: w.phaseLocked(), BootID: w.boot,
		PID: w.self.PID, Start: w.self.Start, ChildPID: w.child.PID, ChildStart: w.child.Start,
		LastWrite: w.in.taken, Acked: w.out.acked, NextSeq: w.out.next, UnixMS: time.Now().UnixMilli(),
	}
	if w.ended {
		exit := w.exit
		s.Exit = &exit
	}
	if w.spool != nil {
		s.Spool = &process.Spool{AfterSeq: w.spool.after, Begin: new(w.spool.begin), Bytes: w.spool.size, Acked: w.ackedSpoolLocked(), Lost: w.spool.lost}
	}
	w.mu.Unlock()
	return statedir.WriteFile(filepath.Join(w.dir, process.FileState), process.Encode(s))
}

// leave writes down what no daemon has acknowledged, and closes all connections.
func (w *worker) leave(accepting *sync.WaitGroup) {
	w.mu.Lock()
	w.left = true
	alone := w.alone
	if w.out.acked < w.closedSeq {
		w.lastSpoolLocked()
	}
	w.mu.Unlock()
	if alone && w.spec.Orphan.Do == process.OrphanTerminate {
		// No client can still wait for an answer of it: proxies give up sooner.
		_ = os.RemoveAll(w.dir)
	} else if err := w.saveState(); err != nil {
		w.logf("%v", err)
	}
	faultpoint.At("worker.leaving")
	close(w.leaving)
	_ = w.ln.Close()
	w.mu.Lock()
	for c := range w.conns {
		c.closing = true
		_ = c.nc.SetWriteDeadline(time.Now().Add(leaveTime))
		_ = c.nc.CloseRead()
	}
	w.cond.Broadcast()
	w.mu.Unlock()
	accepting.Wait()
	if filepath.Dir(w.spec.Socket) != w.dir { // it has a directory of its own
		_ = os.Remove(filepath.Dir(w.spec.Socket))
	}
}

// lastSpoolLocked puts what is in memory into the spool, or counts it as lost.
func (w *worker) lastSpoolLocked() {
	inMemory := int64(w.out.in.bytes)
	if inMemory == 0 && w.spooling {
		return
	}
	if err := w.startSpoolLocked(); err != nil {
		w.logf("%v", err)
		if !w.spooling { // an older spool has gaps
			w.spool = &spool{after: w.out.acked, begin: w.out.gone}
		}
		w.spool.lost = inMemory
	}
}

// movedLocked counts n bytes that passed through.
func (w *worker) movedLocked(n int) {
	if w.moved < freeBytes && w.moved+n >= freeBytes {
		w.poke()
	}
	w.moved += n
	w.movedAt = time.Now()
}

// terminateLocked begins to end the child, or hurries it on.
func (w *worker) terminateLocked(grace time.Duration) {
	grace = max(0, min(grace, time.Hour))
	now := time.Now()
	l := &w.ladder
	if !l.on {
		l.on = true
		l.termAt, l.killAt = now.Add(grace), now.Add(2*grace)
	}
	l.termAt = earlier(l.termAt, now.Add(grace))
	l.killAt = earlier(l.killAt, now.Add(2*grace))
	w.closeStdinLocked()
	w.poke()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// signalGroupLocked signals the child's process group while that is surely
// still its.
func (w *worker) signalGroupLocked(sig syscall.Signal) {
	if w.child.PID > 0 && !w.reaped {
		_ = syscall.Kill(-w.child.PID, sig)
	}
}

// signalTreeLocked signals the group and all that comes from the child,
// whatever session it has made itself.
func (w *worker) signalTreeLocked(sig syscall.Signal) {
	if !process.Exact || sig == syscall.SIGKILL {
		w.signalGroupLocked(sig)
	}
	all, err := process.Descendants(w.self.PID)
	if err != nil {
		w.signalGroupLocked(sig)
		w.logf("list processes: %v", err)
		return
	}
	for _, p := range all {
		if err := process.Signal(p, sig); err != nil && !errors.Is(err, process.ErrGone) {
			w.logf("signal %d: %v", p.PID, err)
		}
	}
}

// killTreeLocked kills all there is, and again as long as there is something:
// what forks faster than it is killed is caught in a later round.
func (w *worker) killTreeLocked(now time.Time) {
	l := &w.ladder
	if l.killingUntil.IsZero() {
		l.killingUntil = now.Add(killTime)
	}
	l.nextKill = now.Add(killPause)
	w.signalTreeLocked(syscall.SIGKILL)
	if w.ended && (!process.Exact || now.After(l.killingUntil)) {
		l.killed = true
	}
	w.poke()
}
