package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdline/protocol/bulk"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
	"holdline/protocol/rawio"
	"holdline/protocol/workerwire"
)

// Limits of writes, in bytes.
const (
	maxQueued = workerwire.MaxPayload // that were taken and not yet written to the child
	maxJoined = 16 << 10              // of several that are made as one
	maxShort  = 4 << 10               // of one whose bytes lie in input.short
)

// input holds the writes to the child's stdin. Taking a write only queues it. One goroutine
// makes the writes, in order; only that one waits for a child that does not read.
//
// Every write id up to taken has one outcome: it is in the pipe (up to written), it is torn, or it
// was not made (from lost on). Those between are queued or being made. worker.mu guards all fields.
type input struct {
	state   inputState
	file    *os.File     // the writing end of the pipe
	queue   []inputWrite // taken, not yet written
	making  []inputWrite // the writes from written+1 on, which are being made: the child may have them
	short   []byte       // the bytes of the short writes of making and, from off on, of queue
	off     int
	settled []waiter // of settleLocked, to be filled again
	bytes   int      // taken, not yet written
	taken   int64    // last write id that was taken
	written int64    // last write id that is wholly in the pipe
	lost    int64    // the first of the writes that were not made; 0 if all were
	torn    int64    // the write of which the child may have got a part only; 0 if none
	waiting []waiter // requests whose write has no outcome yet
}

// inputWrite is the bytes of a write.
type inputWrite struct {
	data []byte           // nil of a short one that waits
	file *os.File         // has further ones; nil if none does
	long workerwire.Filed // where they are, in file and in the write
	size int              // bytes, wherever they are
}

// write writes the bytes to the child's stdin. It blocks while the child does not read. It
// returns how many were written.
func (b inputWrite) write(to *rawio.Stream) (int, error) {
	if b.file == nil {
		return to.Write(b.data)
	}
	n, err := bulk.CopyBetween(to, b.data, b.long.Before, b.file, b.long.Span)
	return int(n), err
}

// close closes the file, if there is one.
func (b inputWrite) close() {
	if b.file != nil {
		_ = b.file.Close()
	}
}

// closeLaterLocked has conduct close the file of b, if there is one. The caller must hold w.mu.
func (w *worker) closeLaterLocked(b inputWrite) {
	if b.file != nil {
		w.later = append(w.later, b.close)
		w.wakeConduct()
	}
}

// openInput returns the bytes of the frame f, if that is a Write. If some lie in a file of the
// worker's directory, it opens that file and removes its name; the caller must close the result. It
// returns an error if the body of f is not valid, or the file has a wrong name, cannot be opened,
// or is too short. It takes no lock, and blocks on the disk.
func (w *worker) openInput(f *workerwire.Frame) (b inputWrite, err error) {
	b = inputWrite{data: f.Payload, size: len(f.Payload)}
	if f.Kind != workerwire.Write || len(f.Body) == 0 {
		return b, nil
	}
	b.data = bytes.Clone(b.data) // which is valid until the next frame is read
	if b.long, err = parseFiled(f.Body); err != nil {
		return b, err
	}
	span, before, own := b.long.Span, b.long.Before, strings.HasPrefix(b.long.Span.File, process.FileInput)
	if !own || filepath.Base(span.File) != span.File || before < 0 || before > len(b.data) {
		return b, fmt.Errorf("%w: %q, behind %d of %d bytes", bulk.ErrSpan, span.File, before, len(b.data))
	}
	b.file, err = bulk.Open(w.dir, span)
	_ = os.Remove(filepath.Join(w.dir, span.File))
	b.size += int(span.Size)
	return b, err
}

// parseFiled parses the body of a write some bytes of which lie in a file.
func parseFiled(body []byte) (long workerwire.Filed, err error) {
	err = json.Unmarshal(body, &long)
	return long, err
}

// inputState is what can still be written to the child's stdin. It only goes forward:
// closeStdinLocked and shutStdinLocked change it.
//
//	inputOpen               -> inputClosing: what was taken is written, then stdin is closed
//	inputOpen, inputClosing -> inputShut:    stdin is closed; what waited was not written
type inputState int

const (
	inputOpen inputState = iota
	inputClosing
	inputShut
)

// waiter is a request that is answered when the outcome of a write is known.
type waiter struct {
	c  *conn
	id int64 // of the request
	w  int64 // write id
}

// takeLocked queues the write f, whose bytes are b, from the attached connection c; request f.ID is
// answered when the write's outcome is known. A write id that was taken before is not written
// again: the daemon asks for its outcome. If stdin is closed or closing, the write is taken and not
// made. takeLocked answers with an error, and takes nothing, if ids are missing before this one, or
// if more than [maxQueued] bytes would wait. Without gaps the last id tells a new daemon which
// calls the child got. If kept is false, the caller must close b. The caller must hold w.mu.
func (w *worker) takeLocked(c *conn, f *workerwire.Frame, b inputWrite) (kept bool) {
	in, id := &w.in, f.N
	switch {
	case id < 1:
		c.fail(f.ID, workerwire.Errorf(workerwire.CodeInvalid, "write ids begin with 1"))
		return false
	case id > in.taken+1:
		c.fail(f.ID, workerwire.Errorf(workerwire.CodeWriteGap, "write %d after %d", id, in.taken))
		return false
	case id == in.taken+1:
		if in.bytes+b.size > maxQueued {
			c.fail(f.ID, workerwire.Errorf(workerwire.CodeExhausted,
				"%d bytes wait for a child that does not read", in.bytes))
			return false
		}
		in.taken = id
		w.mark.Set(id) // before the child can get a byte of it
		faultpoint.At("worker.taken")
		switch {
		case in.lost > 0:
		case in.state != inputOpen:
			in.lost = id
		default:
			if b.file == nil && b.size <= maxShort {
				in.short = append(in.short, b.data...)
				b.data = nil
			}
			in.queue = append(in.queue, b)
			in.bytes += b.size
			kept = true
		}
	}
	in.waiting = append(in.waiting, waiter{c, f.ID, id})
	w.settleLocked()
	w.cond.Broadcast()
	return kept
}

// settleLocked answers the waiting requests whose write has an outcome. The caller must hold w.mu.
func (w *worker) settleLocked() {
	in := &w.in
	settled := in.settled[:0]
	in.waiting = slices.DeleteFunc(in.waiting, func(q waiter) bool {
		known := q.w <= in.written || q.w == in.torn || in.lost > 0 && q.w >= in.lost
		if known {
			settled = append(settled, q)
		}
		return known
	})
	for _, q := range settled { // only now: an answer may drop its connection, and change in.waiting
		switch {
		case q.w <= in.written:
			q.c.replyWrite(q.id, workerwire.WriteAccepted)
		case q.w == in.torn:
			q.c.replyWrite(q.id, workerwire.WriteTorn)
		default:
			q.c.replyWrite(q.id, workerwire.WriteStdinClosed)
		}
	}
	clear(settled)
	in.settled = settled
}

// writeStdin writes the taken writes to stdin, in order, and answers their requests. It blocks
// until stdin is to be closed, or a write fails. Then it closes stdin, and answers the writes that
// were not made. After EPIPE it also records that the child has closed its stdin. It takes w.mu,
// but does not hold it while it waits or writes.
func (w *worker) writeStdin() {
	in := &w.in
	w.mu.Lock()
	defer w.mu.Unlock()
	to := rawio.New(in.file)
	for {
		for len(in.queue) == 0 && in.state == inputOpen {
			w.cond.Wait()
		}
		if in.state == inputShut || len(in.queue) == 0 {
			w.shutStdinLocked()
			return
		}
		if err := w.makeLocked(to); err != nil || in.state == inputShut {
			if errors.Is(err, syscall.EPIPE) {
				w.closedByChildLocked(process.Stdin)
			}
			w.shutStdinLocked()
			return
		}
		w.settleLocked()
	}
}

// watchStdin blocks until the child, and all that has inherited its stdin, have closed the pipe,
// and records that: the next write, which would show it, may come hours later. f is the writing
// end, which it leaves alone. If the worker closes f first, it records nothing. It takes w.mu.
func (w *worker) watchStdin(f *os.File) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	// The runtime's poller wakes a reader of the pipe's writing end when the
	// other end is closed, and for nothing else.
	err = conn.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(p, 0)
		return err == nil && n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
	})
	if err != nil {
		return // closed by this process
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closedByChildLocked(process.Stdin)
}

// makeLocked writes the first write of the queue, which must not be empty, to stdin, with those
// behind it if they are short. It unlocks w.mu while it writes, which blocks while the child does
// not read; meanwhile the child may end and stdin be shut. It closes the write's file. After an
// error a write of which a part was written is torn, and those behind it were not made. The caller
// must hold w.mu, and only one goroutine may call makeLocked.
func (w *worker) makeLocked(to *rawio.Stream) error {
	in := &w.in
	b := in.takeNext()
	w.mu.Unlock()
	n, err := b.write(to) // returns when stdin is closed, too
	b.close()
	w.mu.Lock()
	if in.state != inputShut {
		in.bytes -= b.size
	}
	for _, made := range in.making {
		if n < made.size {
			if n > 0 {
				in.torn = in.written + 1
			}
			break
		}
		n -= made.size
		in.written++
		faultpoint.At("worker.written")
		w.memory.Passed(made.size)
	}
	in.dropMade()
	return err
}

// takeNext moves the first writes of the queue to making, and returns them as one, to be used until
// making is emptied. The caller must hold w.mu.
func (in *input) takeNext() inputWrite {
	n, size := 0, 0
	for ; n < len(in.queue) && in.queue[n].isShort() && size+in.queue[n].size <= maxJoined; n++ {
		size += in.queue[n].size
	}
	next := inputWrite{data: in.short[in.off : in.off+size], size: size}
	if n == 0 {
		n, next = 1, in.queue[0]
	}
	in.off += size
	in.making = append(in.making, in.queue[:n]...)
	in.queue = slices.Delete(in.queue, 0, n)
	return next
}

// isShort reports whether the bytes of a write that waits lie in input.short.
func (b inputWrite) isShort() bool { return b.data == nil && b.file == nil }

// dropMade empties making, and drops the bytes of the short writes that were made. The caller must
// hold w.mu.
func (in *input) dropMade() {
	clear(in.making)
	in.making = in.making[:0]
	if left := in.short[in.off:]; len(left) <= in.off {
		in.short, in.off = append(in.short[:0], left...), 0
	}
	if len(in.short) == 0 && cap(in.short) > 2*maxJoined {
		in.short = nil
	}
}

// closeStdinLocked makes writeStdin close stdin after the writes in the queue, and wakes it. It
// does not wait for that. Later writes are not made. The caller must hold w.mu.
func (w *worker) closeStdinLocked() {
	w.in.state = max(w.in.state, inputClosing)
	w.cond.Broadcast()
}

// shutStdinLocked closes stdin at once, drops the writes in the queue, and answers their requests.
// The writes that makeLocked is making just now, without w.mu, get their outcome from it. It may be
// called again, and must be after a write has failed. The caller must hold w.mu.
func (w *worker) shutStdinLocked() {
	in := &w.in
	if in.state != inputShut {
		in.state = inputShut
		_ = in.file.Close()
	}
	next := in.written + int64(len(in.making)) + 1
	if in.taken >= next {
		in.lost = next
	}
	for _, b := range in.queue {
		w.later = append(w.later, b.close)
	}
	in.queue, in.bytes = nil, 0
	w.settleLocked()
	w.cond.Broadcast()
}
