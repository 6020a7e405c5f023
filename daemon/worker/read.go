package worker

import (
	"bytes"
	"os"

	"holdline/daemon/logfile"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
	"holdline/protocol/rawio"
)

// Sizes of the buffers for what the child writes.
const (
	stdoutBuffer = 32 << 10
	stderrBuffer = 8 << 10
)

// readStdout reads stdout to its end, and pauses while the limits are reached.
func (w *worker) readStdout() {
	f := w.outFile
	defer w.stdoutEnded(f)
	in := rawio.New(f)
	buf := make([]byte, stdoutBuffer)
	for {
		gather, ok := w.room()
		if !ok {
			return
		}
		n, err := in.Read(buf)
		// The limit is reached and a line is read to its end: it must not
		// become thousands of small pieces.
		for from := 0; gather && err == nil && n < len(buf) && bytes.IndexByte(buf[from:n], '\n') < 0; {
			var more int
			from = n
			more, err = in.Read(buf[n:])
			n += more
		}
		if n > 0 {
			w.took(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// room blocks until more of stdout may be read. gather says that only the end of the
// line is wanted. ok is false if enough was read of a child that is gone.
func (w *worker) room() (gather, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.childState < childGone && (w.attendance != spooling || w.spool.full) && !w.out.in.isOpen() {
		w.cond.Wait()
	}
	if w.childState >= childGone {
		return false, w.drained < drainMax
	}
	return w.out.in.over && w.attendance != spooling, true
}

// took keeps data, which was read from the child's stdout, and sends it.
// took keeps what was read of stdout, in memory or in the spool.
func (w *worker) took(data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.childState >= childGone {
		w.drained += len(data)
	}
	if w.attendance == spooling {
		w.spoolLocked(data)
	} else {
		w.out.addStdout(data)
	}
	w.movedLocked(len(data))
	faultpoint.At("worker.output")
	if w.attached == nil || !w.attached.sendNow() {
		w.cond.Broadcast()
	}
}

// maxStderrLog is the size at which the log of stderr is rotated, in bytes.
const maxStderrLog = 1 << 20

// readStderr reads stderr without limit, into the ring and the log. A disk that takes no
// more costs only the log.
func (w *worker) readStderr(log *logfile.File) {
	f := w.errFile
	defer w.readerDone(f)
	buf := make([]byte, stderrBuffer)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			_ = log.Append(buf[:n])
			w.mu.Lock()
			w.out.addStderr(buf[:n])
			w.movedLocked(n)
			w.cond.Broadcast()
			w.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// stdoutEnded is [worker.readerDone] of stdout, which the child may have closed
// although it lives.
func (w *worker) stdoutEnded(f *os.File) {
	w.mu.Lock()
	w.closedByChildLocked(process.Stdout)
	w.mu.Unlock()
	w.readerDone(f)
}

// readerDone closes one of the two pipes that the child writes to, at its end.
func (w *worker) readerDone(f *os.File) {
	_ = f.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readersLeft--
	w.wakeConduct()
}
