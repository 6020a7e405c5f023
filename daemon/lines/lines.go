// Package lines splits what a hosted server writes to its stdout into lines.
//
// The output comes in numbered pieces, which the server's worker keeps until they
// are acknowledged: a daemon that is started in the middle of a line reads the whole
// line again. A [Splitter] says up to which piece that is not needed any more.
//
// A line that is longer than a message may be is skipped. The splitter keeps its
// first and last bytes only, and its pieces can be acknowledged before it ends, so
// that the server is never held up by it. Before the first of them is acknowledged,
// a file in the worker's directory records that the line is being skipped: the next
// daemon, which reads only the rest of the line, would not know otherwise.
package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

const (
	// maxStray is how long a line may be that does not begin as a message does, in
	// bytes.
	maxStray = 64 << 10
	// MaxSkipped is the length in bytes from which on a skipped line is taken to be
	// endless: nothing else can come from its server.
	MaxSkipped = 256 << 20
	// minOwned is the length in bytes from which on a line that came in pieces is
	// its reader's to keep. A copy of it would double the memory.
	minOwned = 1 << 20
	// retryFile is how long to wait after a failed write or removal of the record.
	retryFile = time.Second
)

// Event says what a [Line] is.
type Event int8

// The events. A line is either Whole, or there is Skipping and then Skipped, with
// Endless for each piece between them once the line has MaxSkipped bytes.
const (
	Whole    Event = iota // Text is the line
	Skipping              // a line is too long; Head has its beginning
	Endless               // the line that is being skipped has MaxSkipped bytes, and no end yet
	Skipped               // the line that was skipped has ended; Head and Tail have its ends
	Lost                  // output is missing for the reason Err; Head is the beginning of the line that it cuts
)

// Piece is a piece of output.
type Piece struct {
	Seq  int64 // its number
	Data []byte
	Span protocol.Span // of a file in the worker's directory that has the piece, and before it the line so far; or none
	Sum  uint32        // [bulk.Sum] of the span
	Gap  bool          // output before it was dropped
	Old  bool          // the server wrote it before this daemon attached
}

// Line is what a [Splitter] found.
type Line struct {
	Event Event
	Seq   int64  // number of the piece in which the line ends, or that was read last
	Old   bool   // that piece is old
	Nth   int    // how many lines end before it in that piece
	Text  []byte // without the newline
	Owned bool   // the reader may keep Text; else it is valid until the reader returns
	Torn  bool   // its beginning may be missing
	file  string // path of the worker's file in which it lies; "" if it is in memory
	Err   error  // why output is missing
	Many  bool   // more than one line may be missing

	Head, Tail []byte // at most so many bytes as [New] was given
}

// Part returns the element of that index of a line that is a list, as if it were a line of its own. It
// lies in memory.
func (l *Line) Part(index int, text []byte) *Line {
	part := *l
	part.Text, part.file = text, ""
	part.Nth += (index + 1) << 32 // a piece has fewer lines
	return &part
}

// skippedLine is a line that is skipped.
type skippedLine struct {
	Head []byte `json:"head"` // its first bytes, at most ends
	From int64  `json:"from"` // number of the piece in which it begins

	size     int64  // bytes so far, as far as this daemon has read them
	tail     []byte // its latest bytes, at most ends
	recorded bool   // the file exists
	safe     int64  // pieces up to this number can be acknowledged
	next     int64  // pieces up to this number can be, once ends bytes have followed them
	since    int    // bytes that have followed next
}

// Splitter splits the stdout of one server. It belongs to one goroutine.
type Splitter struct {
	// Stop ends the wait for a file that cannot be read just now, when it is closed. It may be nil.
	Stop <-chan struct{}

	dir  string // of the worker
	ends int    // bytes of each end of a skipped line that are kept
	log  *slog.Logger
	read func(*Line) // called for each line, in order

	rest  []byte       // of a line that has not ended
	begin int64        // number of the piece in which rest, or the next line, begins
	seq   int64        // number of the present piece
	old   bool         // the present piece is old
	nth   int          // how many lines have ended in the present piece
	torn  bool         // the next line may be the end of one
	skip  *skippedLine // the line that is being skipped; nil if none is
	done  *skippedLine // the line skipped last, while its file is still there
}

// New returns a splitter for the worker of that directory. read is called for each
// line. Of a skipped line the splitter keeps so many bytes of each end.
func New(dir string, ends int, log *slog.Logger, read func(*Line)) *Splitter {
	return &Splitter{dir: dir, ends: ends, log: log, read: read}
}

// Begin returns the number of the piece in which the present line begins.
func (s *Splitter) Begin() int64 { return s.begin }

// Rest returns the beginning of a line that has not ended, as far as it is in memory. It is valid until
// the next Split.
func (s *Splitter) Rest() []byte { return s.rest }

// path returns the path of the file that records a skipped line.
func (s *Splitter) path() string { return filepath.Join(s.dir, process.FileLongLine) }

// Split reads the next piece. It calls read for each line that ends in it.
func (s *Splitter) Split(p Piece) {
	if p.Span.File != "" {
		s.splitFile(p)
		return
	}
	if p.Gap {
		s.lose(&p, true, errDropped)
	}
	if len(s.rest) == 0 && s.skip == nil {
		s.begin = p.Seq
	}
	data := p.Data
	for s.seq, s.old, s.nth = p.Seq, p.Old, 0; ; s.nth++ {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		if s.skip != nil {
			s.addSkipped(data[:i])
			s.endSkipped()
		} else {
			s.readWhole(data[:i])
		}
		data, s.begin = data[i+1:], p.Seq
	}
	if len(data) == 0 {
		return
	}
	if s.skip != nil {
		s.addSkipped(data)
		return
	}
	if s.rest = append(jsonrpc.Grow(s.rest, len(data)), data...); isTooLong(s.rest) {
		s.beginSkipped()
	}
}

// errDropped is why output is missing that the worker itself does not have any more.
var errDropped = errors.New("its worker has lost it")

// lose reports that output is missing between what was read so far and what follows p: the rest of
// one line, or many lines.
func (s *Splitter) lose(p *Piece, many bool, err error) {
	s.seq, s.old, s.nth = p.Seq, p.Old, 0
	if len(s.rest) == 0 && s.skip == nil {
		s.begin = p.Seq
	}
	skipped := s.skip != nil
	if skipped {
		s.endSkipped()
		s.begin = p.Seq
	}
	if s.torn = true; skipped && !many {
		return // it was reported when it was begun to be skipped
	}
	l := s.line(Lost)
	l.Head, l.Many, l.Err = s.rest[:min(len(s.rest), s.ends)], many, err
	s.read(l)
	s.rest = nil
}

// line returns what was found in the present piece.
func (s *Splitter) line(e Event) *Line { return &Line{Event: e, Seq: s.seq, Old: s.old, Nth: s.nth} }

// readWhole reads a line that ends with text.
func (s *Splitter) readWhole(text []byte) {
	l := s.line(Whole)
	if len(s.rest) > 0 {
		s.rest = append(jsonrpc.Grow(s.rest, len(text)), text...)
		text = s.rest
		l.Owned = len(text) > minOwned
	}
	l.Text, l.Torn = bytes.TrimSuffix(text, []byte("\r")), s.torn
	s.torn = false
	s.read(l)
	s.rest = nil // only now: if read panics, the piece in which the line begins is not acknowledged
}

// End reads what follows the last newline of a server that has ended, as far as
// accept wants it: some servers end their last message with the end of their
// output, and others are cut off in the middle of a line. seq is the number of the
// event of the end, and old says that it came before this daemon attached.
func (s *Splitter) End(seq int64, old bool, accept func(text []byte) bool) {
	s.seq, s.old = seq, old
	text := s.rest
	if s.rest = nil; s.skip != nil {
		s.endSkipped()
		return
	}
	if accept(text) {
		l := s.line(Whole)
		l.Text, l.Torn = text, s.torn
		s.read(l)
	}
}

// isTooLong reports whether a line that begins so is skipped: it is longer than a
// message may be, or it is long and its first character shows that it is no message.
func isTooLong(line []byte) bool {
	if len(line) > jsonrpc.MaxFrame || len(line) <= maxStray {
		return len(line) > jsonrpc.MaxFrame
	}
	line = bytes.TrimLeft(line, " \t\r")
	return len(line) > 0 && line[0] != '{'
}

// beginSkipped begins to skip the line whose beginning is in s.rest.
func (s *Splitter) beginSkipped() {
	s.skip = &skippedLine{
		Head: bytes.Clone(s.rest[:min(len(s.rest), s.ends)]), From: s.begin, safe: s.begin - 1, next: s.seq,
		tail: bytes.Clone(s.rest[max(len(s.rest)-s.ends, 0):]),
	}
	s.rest = nil
	l := s.line(Skipping)
	l.Head = s.skip.Head
	s.read(l)
}

// addSkipped adds data to the line that is being skipped, of which only the ends are
// kept. A piece of the line can be acknowledged once as many bytes as are kept of its
// end have followed the piece.
func (s *Splitter) addSkipped(data []byte) {
	l := s.skip
	l.tail = append(l.tail, data[max(len(data)-s.ends, 0):]...)
	l.tail = bytes.Clone(l.tail[max(len(l.tail)-s.ends, 0):])
	l.size += int64(len(data))
	if l.since += len(data); l.since >= s.ends {
		l.safe, l.next, l.since = l.next, s.seq, 0
	}
	if l.size >= MaxSkipped {
		s.read(s.line(Endless))
	}
}

// endSkipped ends the line that is skipped.
func (s *Splitter) endSkipped() {
	skipped := s.skip
	s.skip, s.torn = nil, false
	if skipped.recorded {
		s.done = skipped
	}
	l := s.line(Skipped)
	l.Head, l.Tail = skipped.Head, skipped.tail
	s.read(l)
}

// Ackable returns up to which piece the output can be acknowledged, of the output up
// to the piece last. kept is the piece in which the first line begins that the reader
// still needs the worker to keep. If a file cannot be written or removed, again is the
// time after which to call Ackable again; else it is 0.
func (s *Splitter) Ackable(last, kept int64) (seq int64, again time.Duration) {
	seq, again = s.ackableSkipped(last, kept)
	if len(s.rest) > 0 {
		seq = min(seq, s.begin-1)
	}
	return seq, again
}

// ackableSkipped returns what Ackable does, as far as skipped lines limit it. It
// writes the record of the line that is being skipped before any piece of it may be
// acknowledged, and removes the record once the reader does not need the line.
func (s *Splitter) ackableSkipped(last, kept int64) (seq int64, again time.Duration) {
	if l := s.done; l != nil && kept > l.From { // the reader has kept what it needs of the line elsewhere
		if err := os.RemoveAll(s.path()); err != nil {
			s.log.Warn("the record of a line that was left out cannot be removed", "err", err)
			return l.safe, retryFile
		}
		s.done = nil
	}
	l := s.skip
	switch {
	case s.done != nil:
		return s.done.safe, 0
	case l == nil:
		return last, 0
	case !l.recorded:
		if err := statedir.WriteFile(s.path(), jsonrpc.Encode(l)); err != nil {
			s.log.Warn("it cannot be recorded that a line is left out: its server is held up", "err", err)
			return l.safe, retryFile
		}
		l.recorded = true
	}
	return l.safe, 0
}

// Resume continues with the output of a worker that an earlier daemon has read up to
// the piece last, perhaps in the middle of a line that was being skipped. Call it
// before the first Split.
func (s *Splitter) Resume(last int64) {
	b, err := ownfile.Read(s.path(), ownfile.MaxDocument)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if st, serr := process.ReadState(s.dir); serr == nil && st.Phase == process.PhaseExited {
		last = st.Acked // the worker was not asked, since it is gone
	}
	l := &skippedLine{}
	if err == nil {
		err = json.Unmarshal(b, l)
	}
	if err == nil && last >= l.From {
		l.recorded, l.safe, l.next = true, last, last
		s.skip, s.begin = l, l.From
		return
	}
	if err != nil {
		s.log.Warn("the record of a line that was left out is forgotten", "err", err)
	}
	s.done = l // its beginning is read again
}

// MarkTorn records that the output may begin in the middle of a line. The next line is
// then marked as torn.
func (s *Splitter) MarkTorn() { s.torn = true }
