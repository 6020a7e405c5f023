package hosted

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"holdline/daemon/dialect"
	"holdline/daemon/statedir"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// A line that is longer than a message may be is left out while it is read. Only
// its ends are kept, which show the call that it answers. Its output can be
// acknowledged before it ends, so the server is never held up by it. By then it
// is on record, in a file of the worker's directory, that the line is being left
// out: the next daemon, which sees only the rest of it, would not know.

const (
	// maxStray is how long a line may be that does not begin as a message
	// does, in bytes.
	maxStray = 64 << 10
	// maxLongLine is the length in bytes from which on a line is taken to be
	// endless: nothing else can come from its server.
	maxLongLine = 256 << 20
)

// longLine is a line that is left out. It belongs to the reader.
type longLine struct {
	Head []byte `json:"head"` // its first bytes, at most dialect.LineEnds
	From int64  `json:"from"` // number of the output in which it begins

	size     int64  // bytes so far, as far as this daemon has read them
	tail     []byte // its latest bytes, at most dialect.LineEnds
	recorded bool   // the file says so
	safe     int64  // output up to this number can be acknowledged
	next     int64  // output up to this number can be, once dialect.LineEnds bytes have followed it
	since    int    // bytes behind next
}

// isStray reports whether the beginning of a line shows that it is no message.
func isStray(line []byte) bool {
	line = bytes.TrimLeft(line, " \t\r")
	return len(line) > 0 && line[0] != '{'
}

// isTooLong reports whether a line that begins so is to be left out.
func isTooLong(line []byte) bool {
	return len(line) > jsonrpc.MaxFrame || len(line) > maxStray && isStray(line)
}

// skipLine begins to leave out the line whose beginning is in u.rest, up to the
// output seq.
func (u *upstream) skipLine(seq int64) {
	l := &longLine{Head: bytes.Clone(u.rest[:min(len(u.rest), dialect.LineEnds)]), From: u.begin, safe: u.begin - 1, next: seq}
	l.tail = bytes.Clone(u.rest[max(len(u.rest)-dialect.LineEnds, 0):])
	u.rest, u.long = nil, l
	if id := dialect.AnswerID(l.Head, nil); id != nil {
		u.failAnswer(id, tooLong)
	}
}

// add notes more of the line, from the output seq.
func (l *longLine) add(data []byte, seq int64) {
	l.tail = append(l.tail, data[max(len(data)-dialect.LineEnds, 0):]...)
	l.tail = bytes.Clone(l.tail[max(len(l.tail)-dialect.LineEnds, 0):])
	l.size += int64(len(data))
	if l.since += len(data); l.since >= dialect.LineEnds {
		l.safe, l.next, l.since = l.next, seq, 0
	}
}

// addLong notes more of the line that is left out, from the output seq. The server
// of one that is endless is ended.
func (u *upstream) addLong(data []byte, seq int64) {
	l := u.long
	if l.add(data, seq); l.size < maxLongLine {
		return
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if u.state == serving && u.condemned == nil {
		f := fault.New(fault.ProcessFailure, fault.Server, "run:"+u.name(),
			"Holdline ended server %s: it wrote %d MiB to stdout without a newline, so no answer could come from it any more",
			u.name(), int64(maxLongLine)>>20)
		f.Fault.Generation = u.generation
		u.condemnLocked(f)
	}
}

// endLong ends the line that is left out, whose last bytes were noted.
func (u *upstream) endLong() {
	l := u.long
	u.long, u.torn = nil, false
	if l.recorded {
		u.longDone = l
	}
	u.noisy("longer than a message may be")
	if id := dialect.AnswerID(l.Head, l.tail); id != nil {
		u.failAnswer(id, tooLong)
	}
}

// ackable is up to which number output can be acknowledged, as far as lines that
// are left out are concerned. If a file cannot be written or removed, it says
// when to try again.
func (u *upstream) ackable() (seq int64, again time.Duration) {
	// The call that the line answers has its fault in a file by now.
	if l := u.longDone; l != nil && (len(u.marks) == 0 || u.marks[0].seq > l.From) {
		if err := os.RemoveAll(u.longFile()); err != nil {
			u.log.Warn("the record of a line that was left out cannot be removed", "err", err)
			return l.safe, time.Second
		}
		u.longDone = nil
	}
	l := u.long
	switch {
	case u.longDone != nil:
		return u.longDone.safe, 0
	case l == nil:
		return u.last, 0
	case !l.recorded:
		if err := statedir.WriteFile(u.longFile(), process.Encode(l)); err != nil {
			u.log.Warn("it cannot be recorded that a line is left out: its server is held up", "err", err)
			return l.safe, time.Second
		}
		l.recorded = true
	}
	return l.safe, 0
}

func (u *upstream) longFile() string { return filepath.Join(u.dir, process.FileLongLine) }

// resumeLong goes on leaving out a line whose beginning an earlier daemon has
// acknowledged.
func (u *upstream) resumeLong() {
	b, err := ownfile.Read(u.longFile(), ownfile.MaxDocument)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	acked := u.last
	if st, serr := process.ReadState(u.dir); serr == nil && st.Phase == process.PhaseExited {
		acked = st.Acked // the worker was not asked, since it is gone
	}
	l := &longLine{}
	if err == nil {
		err = json.Unmarshal(b, l)
	}
	if err == nil && acked >= l.From {
		l.recorded, l.safe, l.next = true, acked, acked
		u.long, u.begin = l, l.From
		return
	}
	if err != nil {
		u.log.Warn("the record of a line that was left out is forgotten", "err", err)
	}
	u.longDone = l // its beginning is read again
}

// tooLong is the fault of a call whose answer is left out.
func tooLong(server, operation string) *fault.Record {
	return fault.New(fault.DownstreamFailure, fault.Server, operation,
		"server %s gave an answer of more than %d MiB, the most that a message may have: it was left out",
		server, jsonrpc.MaxFrame>>20).WithReason(fault.BadOutput)
}
