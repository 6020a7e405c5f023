package worker

import (
	"bytes"
	"slices"
	"sort"

	"holdline/daemon/worker/gate"
	"holdline/daemon/worker/spare"
	"holdline/protocol/process"
)

// Limits of what is kept.
const (
	maxChunk         = 64 << 10 // bytes of output that are joined under one number
	maxStderrEntries = 1024     // pieces of stderr
)

// kind says what an entry is.
type kind int

const (
	stdout kind = iota
	stderr
	exited
	closed
)

// entry is a piece of output, or the end of the child. It stands for the numbers first to
// seq: these differ only in a marker of dropped stderr.
type entry struct {
	first, seq int64
	kind       kind
	data       []byte // nil if it is in the spool or was dropped
	spooled    bool   // at [off, off+size) of the spool
	file       string // name of its own file that has it, instead of the spool; "" if none has
	off        int64  // in the spool or in that file, in bytes
	size       int    // bytes of data, wherever they are
	sum        uint32 // of data that lie in their own file: see package bulk
	begun      int    // of them, those behind the last newline; gate.NoNewline if there is none
	dropped    int64  // bytes of stderr that this marker stands for
}

// output numbers the child's output, and keeps it until the daemon has acknowledged it. The
// daemon's events are its entries. All stdout is kept, in memory or in the spool; of stderr
// only the last bytes. It has no lock of its own.
type output struct {
	entries  []entry       // by seq
	next     int64         // next number to be given
	acked    int64         // the daemon has acknowledged all numbers up to this one
	seen     int64         // highest number that was sent to any daemon
	in       gate.Gate     // of stdout in memory
	ring     int           // the most bytes of stderr to keep
	errBytes int           // bytes of stderr that are kept
	errCount int           // entries of stderr that are kept, markers not counted
	spare    spare.Buffers // of entries that were acknowledged
}

// newOutput returns an output without entries. Numbers begin with 1.
func newOutput(l process.Limits) *output {
	return &output{next: 1, in: gate.Gate{Limit: l.Retain, LineMax: l.Line}, ring: l.Stderr}
}

// last returns the newest entry of kind k if it can take n more bytes, else nil. Because entries
// grow until they are sent, many small reads without a daemon do not cost an entry each. The caller
// must hold w.mu, and must not use the pointer after entries have changed.
func (o *output) last(k kind, n int) *entry {
	for i := len(o.entries) - 1; i >= 0 && o.entries[i].seq > o.seen; i-- {
		if e := &o.entries[i]; e.kind == k {
			if e.size+n > maxChunk || e.file != "" || (k == stderr && e.data == nil) {
				return nil
			}
			return e
		}
	}
	return nil
}

// addStdout keeps data in memory, and counts it against the limit of stdout. If it fills half of
// its buffer or more, it may be kept itself, else a copy. kept says that the caller must not use
// data any more. It wakes no goroutine. The caller must hold w.mu.
func (o *output) addStdout(data []byte) (kept bool) {
	begun := gate.BegunLine(data)
	if e := o.last(stdout, len(data)); e != nil && !e.spooled {
		e.data = append(e.data, data...)
		e.size = len(e.data)
		if begun != gate.NoNewline {
			e.begun = begun
		} else if e.begun != gate.NoNewline {
			e.begun += len(data)
		}
		o.in.Add(len(data), begun, false)
		return false
	}
	e := entry{kind: stdout, data: data, size: len(data), begun: begun}
	if kept = len(data) >= cap(data)/2; !kept {
		e.data = append(o.spare.Get(len(data)), data...)
	}
	o.push(e)
	o.in.Add(len(data), begun, true)
	return kept
}

// addFiled adds an entry for n bytes of stdout in a file, from off to its end. They count against
// the limit as if in memory. whole says that a line ends with them. The caller must hold w.mu.
func (o *output) addFiled(file string, off int64, n int, sum uint32, whole bool) {
	begun := gate.NoNewline
	if whole {
		begun = 0
	}
	o.push(entry{kind: stdout, file: file, off: off, size: n, sum: sum, begun: begun})
	o.in.Add(n, begun, true)
}

// lineSoFar returns the pieces of the line that has begun, which are not copies, and the sum of
// their sizes. ok is false if not all of them are in memory. The caller must hold w.mu.
func (o *output) lineSoFar() (pieces [][]byte, size int, ok bool) {
	for i := len(o.entries) - 1; i >= 0 && size < o.in.LineLen; i-- {
		e := &o.entries[i]
		switch {
		case e.kind != stdout:
		case e.data == nil:
			return nil, 0, false
		default:
			piece := e.data[max(0, len(e.data)-(o.in.LineLen-size)):]
			pieces, size = append(pieces, piece), size+len(piece)
		}
	}
	slices.Reverse(pieces)
	return pieces, size, size == o.in.LineLen
}

// addSpooled records that n bytes of stdout are in the spool at off. They do not count against the
// limit of stdout. The caller must hold w.mu.
func (o *output) addSpooled(off int64, n int) {
	if e := o.last(stdout, n); e != nil && e.spooled && e.off+int64(e.size) == off {
		e.size += n
		return
	}
	o.push(entry{kind: stdout, spooled: true, off: off, size: n})
}

// addStderr keeps a copy of data. If more than o.ring bytes or [maxStderrEntries] entries of stderr
// are kept, it replaces the oldest ones by markers that only count their bytes. w.mu must be held.
func (o *output) addStderr(data []byte) {
	o.errBytes += len(data)
	if e := o.last(stderr, len(data)); e != nil {
		e.data = append(e.data, data...)
		e.size = len(e.data)
	} else {
		o.push(entry{kind: stderr, data: bytes.Clone(data), size: len(data)})
		o.errCount++
	}
	for i := 0; i < len(o.entries) && (o.errBytes > o.ring || o.errCount > maxStderrEntries); i++ {
		if e := &o.entries[i]; e.kind == stderr && e.data != nil {
			i = o.dropStderr(i)
		}
	}
}

// dropStderr replaces the stderr entry at i by a marker, joined with those beside it, so that there
// are never many. It returns the index of the marker. The caller must hold w.mu.
func (o *output) dropStderr(i int) int {
	e := &o.entries[i]
	o.errBytes -= e.size
	o.errCount--
	e.dropped, e.data, e.size = int64(e.size), nil, 0
	if o.mergeable(i + 1) {
		o.merge(i + 1)
	}
	for o.mergeable(i) {
		o.merge(i)
		i--
	}
	return i
}

// mergeable reports whether there are entries at i-1 and i, both are markers of dropped stderr, and
// both or neither were sent: joined with an unsent one, one is sent again. w.mu must be held.
func (o *output) mergeable(i int) bool {
	if i < 1 || i >= len(o.entries) {
		return false
	}
	a, b := &o.entries[i-1], &o.entries[i]
	return a.kind == stderr && a.data == nil && b.kind == stderr && b.data == nil &&
		(a.seq <= o.seen) == (b.seq <= o.seen)
}

// merge joins the markers at i-1 and i, which must be mergeable. The caller must hold w.mu.
func (o *output) merge(i int) {
	o.entries[i].first = o.entries[i-1].first
	o.entries[i].dropped += o.entries[i-1].dropped
	o.entries = slices.Delete(o.entries, i-1, i)
}

// push adds e under the next number, which it returns. It wakes no goroutine. w.mu must be held.
func (o *output) push(e entry) int64 {
	e.first, e.seq = o.next, o.next
	o.next++
	o.entries = append(o.entries, e)
	return e.seq
}

// ack removes all entries up to number seq, which the daemon has acknowledged, and calls sent with
// each of them. A seq that was not given yet counts as the last one that was. w.mu must be held.
func (o *output) ack(seq int64, sent func(*entry)) {
	seq = min(seq, o.next-1)
	if seq <= o.acked {
		return
	}
	o.acked = seq
	n := o.after(seq)
	for i := range o.entries[:n] {
		e := &o.entries[i]
		switch {
		case e.kind == stderr && e.data != nil:
			o.errBytes -= e.size
			o.errCount--
		case e.kind == stdout && !e.spooled:
			o.in.Release(e.size, 1)
		}
		sent(e)
	}
	o.entries = slices.Delete(o.entries, 0, n)
	if len(o.entries) == 0 && cap(o.entries) > 64 {
		o.entries = nil
	}
}

// after returns the index of the first entry with a number above seq. The caller must hold w.mu.
func (o *output) after(seq int64) int {
	return sort.Search(len(o.entries), func(i int) bool { return o.entries[i].seq > seq })
}
