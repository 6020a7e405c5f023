package worker

import (
	"bytes"
	"slices"
	"sort"

	"holdline/protocol/process"
)

// maxChunk is the most bytes that one number of output stands for, unless they
// were told already when more came.
const maxChunk = 64 << 10

// maxEntries bounds how many pieces of a stream are kept, since each costs
// memory however small it is.
const maxEntries = 4096

// maxStderrEntries is the same for the ring of stderr.
const maxStderrEntries = 1024

type kind int

const (
	stdout kind = iota
	stderr
	exited
	closed
)

// entry is a piece of output, or the end of the child. It stands for the
// numbers first to seq.
type entry struct {
	first, seq int64
	kind       kind
	data       []byte // nil if it is in the spool or was dropped
	spooled    bool   // at [off, off+size) of the spool
	off        int64
	size       int
	dropped    int64 // bytes of stderr
}

// gate lets a stream run until limit bytes or entries are held, and then to
// the end of the line begun: half a line cannot be acked, so stopping inside
// of one would stop for good.
type gate struct {
	limit, lineMax int
	bytes, count   int
	lineLen        int // bytes since the last newline
	over           bool
	finishing      bool
}

func (g *gate) add(data []byte, newEntry bool) {
	g.bytes += len(data)
	if newEntry {
		g.count++
	}
	if i := bytes.LastIndexByte(data, '\n'); i >= 0 {
		g.lineLen = len(data) - i - 1
		g.finishing = false
	} else {
		g.lineLen += len(data)
	}
	if full := g.bytes >= g.limit || g.count >= maxEntries; full && !g.over {
		g.over = true
		g.finishing = g.lineLen > 0
	}
	if g.lineLen >= g.lineMax {
		g.finishing = false
	}
}

func (g *gate) free(bytes, count int) {
	g.bytes -= bytes
	g.count -= count
	if g.bytes < g.limit && g.count < maxEntries {
		g.over, g.finishing = false, false
	}
}

// open reports whether more may come.
func (g *gate) open() bool { return !g.over || g.finishing }

// output numbers and retains what the child said. It has no lock of its own.
type output struct {
	entries  []entry // by seq
	next     int64   // next number to be given
	acked    int64
	gone     int64 // bytes of stdout that were acked
	seen     int64 // highest number that anybody was told
	in       gate  // of stdout in memory
	ring     int   // bytes of stderr kept
	errBytes int
	errCount int
	dropped  int64 // of stderr, in all
}

func newOutput(l process.Limits) *output {
	return &output{next: 1, in: gate{limit: l.Retain, lineMax: l.Line}, ring: l.Stderr}
}

// last returns the newest entry of kind k if it was not sent yet and n more bytes fit
// in, else nil. Growing it keeps many small reads from costing one entry
// each while no daemon is attached.
func (o *output) last(k kind, n int) *entry {
	for i := len(o.entries) - 1; i >= 0 && o.entries[i].seq > o.seen; i-- {
		if e := &o.entries[i]; e.kind == k {
			if e.size+n > maxChunk || (k == stderr && e.data == nil) {
				return nil
			}
			return e
		}
	}
	return nil
}

// addStdout keeps a copy of data.
func (o *output) addStdout(data []byte) {
	if e := o.last(stdout, len(data)); e != nil && !e.spooled {
		e.data = append(e.data, data...)
		e.size = len(e.data)
		o.in.add(data, false)
		return
	}
	o.push(entry{kind: stdout, data: bytes.Clone(data), size: len(data)})
	o.in.add(data, true)
}

// addSpooled notes that n bytes of stdout are in the spool at off.
func (o *output) addSpooled(off int64, n int) {
	if e := o.last(stdout, n); e != nil && e.spooled && e.off+int64(e.size) == off {
		e.size += n
		return
	}
	o.push(entry{kind: stdout, spooled: true, off: off, size: n})
}

// addStderr keeps a copy of data and drops the oldest of what is kept.
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
			i = o.drop(i)
		}
	}
}

// drop makes a marker of the stderr entry at i, merged with the markers beside
// it so that markers are never many. It returns where the marker is then.
func (o *output) drop(i int) int {
	e := &o.entries[i]
	o.errBytes -= e.size
	o.errCount--
	o.dropped += int64(e.size)
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

// mergeable reports whether the entries at i-1 and i are both markers, and both
// told already or both not: else what was told once would be told again.
func (o *output) mergeable(i int) bool {
	if i < 1 || i >= len(o.entries) {
		return false
	}
	a, b := &o.entries[i-1], &o.entries[i]
	return a.kind == stderr && a.data == nil && b.kind == stderr && b.data == nil &&
		(a.seq <= o.seen) == (b.seq <= o.seen)
}

// merge makes one of the markers at i-1 and i.
func (o *output) merge(i int) {
	o.entries[i].first = o.entries[i-1].first
	o.entries[i].dropped += o.entries[i-1].dropped
	o.entries = slices.Delete(o.entries, i-1, i)
}

// push numbers e.
func (o *output) push(e entry) int64 {
	e.first, e.seq = o.next, o.next
	o.next++
	o.entries = append(o.entries, e)
	return e.seq
}

// ack frees what is numbered up to seq. sent is told each freed entry.
func (o *output) ack(seq int64, sent func(*entry)) {
	seq = min(seq, o.next-1)
	if seq <= o.acked {
		return
	}
	o.acked = seq
	n := o.after(seq)
	for i := range o.entries[:n] {
		e := &o.entries[i]
		if e.kind == stdout {
			o.gone += int64(e.size)
		}
		switch {
		case e.kind == stderr && e.data != nil:
			o.errBytes -= e.size
			o.errCount--
		case e.kind == stdout && !e.spooled:
			o.in.free(e.size, 1)
		}
		sent(e)
	}
	o.entries = slices.Delete(o.entries, 0, n)
	if len(o.entries) == 0 && cap(o.entries) > 64 {
		o.entries = nil
	}
}

// after is the index of the first entry that tells of numbers above seq.
func (o *output) after(seq int64) int {
	return sort.Search(len(o.entries), func(i int) bool { return o.entries[i].seq > seq })
}
