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
	stdoutBuffer = 64 << 10 // as much as is joined under one number
	stderrBuffer = 8 << 10
)

// readStdout reads the child's stdout to its end, and keeps it for the daemon. It pauses while the
// limit of what is kept is reached: then the pipe fills, and the child waits. It stops before the
// end after an error, such as the read deadline of afterExitLocked, and when room returns false.
// Then it closes the pipe: see stdoutEnded. It takes w.spooling and w.mu.
func (w *worker) readStdout() {
	f := w.outFile
	defer w.stdoutEnded(f)
	in := rawio.New(f)
	var buf []byte
	for {
		gather, ok := w.room()
		if !ok {
			return
		}
		if buf == nil {
			buf = make([]byte, stdoutBuffer)
		}
		n, err := in.Read(buf)
		// The limit is reached, and only the rest of a line is read. It must not
		// become thousands of small pieces, which count against the limit.
		for from := 0; gather && err == nil && n < len(buf) && bytes.IndexByte(buf[from:n], '\n') < 0; {
			var more int
			from = n
			more, err = in.Read(buf[n:])
			n += more
		}
		if n > 0 && w.took(buf[:n]) {
			buf = nil
		}
		if err != nil {
			return
		}
	}
}

// room blocks until more of stdout may be read: until the daemon has acknowledged enough, stdout
// goes to a spool that is not full, or the child is gone. There is no time-out. gather is true if
// the limit is reached and only the rest of a line that has begun may be read. ok is false if the
// child is gone and [drainMax] bytes were read since; the caller must stop then. It takes w.mu.
func (w *worker) room() (gather, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.childState < childGone && (w.attendance != spooling || w.spool.full) && !w.out.in.IsOpen() {
		w.cond.Wait()
	}
	if w.childState >= childGone {
		return false, w.drained < drainMax
	}
	return w.out.in.Over && (w.attendance != spooling || w.spool.full), true
}

// took keeps data that was read from the child's stdout: in the file of a long line, in the spool
// or in memory. If a daemon is attached, it sends the next event, as far as the connection takes
// it without blocking. It returns true if data itself is kept, so that the caller must not use it
// any more. It takes w.spooling and w.mu, and may block on the disk.
func (w *worker) took(data []byte) (kept bool) {
	w.spooling.Lock()
	defer w.spooling.Unlock()
	n := len(data)
	if data = w.intoFile(data); len(data) == 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.tellLocked(n)
		return false
	}
	inSpool := w.spoolStdout(data)
	w.mu.Lock()
	defer w.mu.Unlock()
	if inSpool {
		w.out.addSpooled(w.spool.size, len(data))
		w.spool.size += int64(len(data))
	} else {
		kept = w.out.addStdout(data)
	}
	w.tellLocked(n)
	return kept
}

// tellLocked counts n bytes of stdout that were read, and sends the next event to the attached
// daemon with [conn.sendNow], which does not block. If no daemon is attached or not all was sent,
// it wakes all that wait for w.cond, among them push, which sends the rest. w.mu must be held.
func (w *worker) tellLocked(n int) {
	if w.childState >= childGone {
		w.drained += n
	}
	w.memory.Passed(n)
	faultpoint.At("worker.output")
	if w.attached == nil || !w.attached.sendNow() {
		w.cond.Broadcast()
	}
}

// ackLocked releases the output up to number seq, which the attached daemon has acknowledged, and
// has conduct remove the files of long lines in it. It wakes the reader of stdout, for which there
// may be room now. A connection must be attached, and the caller must hold w.mu.
func (w *worker) ackLocked(seq int64) {
	c := w.attached
	sent := len(w.conns) == 1 && !c.pushing // no connection is sending what was acknowledged
	faultpoint.At("worker.acked")
	w.out.ack(seq, func(e *entry) {
		if e.kind == stdout && e.seq <= c.sent {
			c.out.Release(min(e.size, c.out.Bytes), min(1, c.out.Count))
		}
		if w.dropFileLocked(e); sent && e.kind == stdout {
			w.out.spare.Put(e.data)
		}
	})
	w.cond.Broadcast()
	if w.childState >= childEnded { // it may leave
		w.wakeConduct()
	}
}

// maxStderrLog is the size at which the log of stderr is rotated, in bytes.
const maxStderrLog = 1 << 20

// readStderr reads the child's stderr until its end or an error, into memory for the daemon and
// into log. It never pauses: if too much is kept, the oldest stderr is dropped. If log cannot be
// written, only log misses it. At the end it closes the pipe: see readerDone. It takes w.mu.
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
			w.memory.Passed(n)
			w.cond.Broadcast()
			w.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// stdoutEnded ends the reading of stdout, which is f. It adds an unfinished long line to the
// output, records that the child has closed its stdout, since the child may still live, and closes
// f: see readerDone. It takes w.spooling and w.mu, one after the other.
func (w *worker) stdoutEnded(f *os.File) {
	w.spooling.Lock()
	w.endLong(false)
	w.spooling.Unlock()
	w.mu.Lock()
	w.closedByChildLocked(process.Stdout)
	w.mu.Unlock()
	w.readerDone(f)
}

// readerDone closes the pipe f, counts the reader as ended, and wakes conduct. It takes w.mu.
func (w *worker) readerDone(f *os.File) {
	_ = f.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readersLeft--
	w.wakeConduct()
}
