package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// MaxFrame is the longest line that either side takes, in bytes.
const MaxFrame = 64 << 20

// keepBuffer is the size in bytes above which a [Lines] replaces its buffer by a small one,
// once the long line in it was taken. Most lines are short, and each session has a reader:
// with 256 KiB a thousand sessions that each had one line of 64 KiB would hold 128 MiB.
const keepBuffer = 32 << 10

// ErrTooLong is returned by [Lines.Next] and [ReadLine] for a line over the limit. Next returns it
// once the line has ended, unless AtOnce is set, so reading can go on; [Lines.Ends] has its beginning and its end.
var ErrTooLong = errors.New("line too long")

// ErrNoRoom is returned by [Lines.Next] in place of ErrTooLong for a line for which [Lines.Hold] had no room.
var ErrNoRoom = errors.New("no room for the line")

// Lines reads newline-delimited messages. A carriage return before the
// newline and a byte order mark at the beginning of a line are dropped, empty lines are skipped, and a last line without a
// newline still counts. It is for one goroutine.
type Lines struct {
	// DropTail leaves out a last line without a newline: from a peer that died
	// in the middle of a write it is no message.
	DropTail bool
	// AtOnce makes Next return [ErrTooLong] before the line has ended, which may be never. It is for
	// a reader that gives up then.
	AtOnce bool
	// BeforeRead, if not nil, is called before each read, which may block: nothing more
	// of what was read before can be taken then.
	BeforeRead func()
	// Spill, if not nil, returns a new file for a long line that has not ended yet; nil if the
	// line has to stay in memory. See [ErrSpilled].
	Spill func() *os.File
	// Hold, if not nil, is called with the size that the buffer is about to get, in bytes. If it returns
	// false for a greater one, the line is skipped; of a smaller one it is only told.
	Hold func(size int) bool

	r        io.Reader
	max      int    // longest line, in bytes
	buf      []byte // read from r
	start    int    // first byte not yet returned
	scanned  int    // no newline in buf[start:scanned]
	err      error  // of r; returned once all that was read before is taken
	skipping bool   // inside a line that is too long
	noRoom   bool   // it is skipped since there was no room for it
	skipped  int    // bytes of it that were read before buf[start:]
	head     []byte // of the latest such line, at most [LineEnds] bytes
	tail     []byte // the same of its end
	spilled  spilled
}

// NewLines reads from r lines of at most limit bytes.
func NewLines(r io.Reader, limit int) *Lines { return &Lines{r: r, max: limit} }

// Next returns the next line without its end. The line stays valid until the next call. At
// the end of input Next returns io.EOF. After [ErrTooLong] the caller may go on; any other
// error comes from the reader.
func (l *Lines) Next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.scanned:], '\n'); i >= 0 {
			line := l.buf[l.start : l.scanned+i]
			if l.spilled.f != nil {
				if !l.endSpilled(line) {
					continue
				}
				l.start = l.scanned + i + 1
				l.scanned = l.start
				if l.spilled.size > l.max {
					l.beginSkip(line)
					l.skipping = false
					return nil, l.tooLong()
				}
				return nil, ErrSpilled
			}
			l.start = l.scanned + i + 1
			l.scanned = l.start
			l.spilled.refused = false
			if l.skipping {
				l.keepTail(line)
				return nil, l.endSkip()
			}
			if len(line) > l.max {
				l.beginSkip(line)
				l.skipping = false
				return nil, l.tooLong()
			}
			if line = trim(line); len(line) > 0 {
				return line, nil
			}
			continue
		}
		l.scanned = len(l.buf)
		l.spill()
		if l.skipping {
			l.keepTail(l.buf[l.start:])
			l.skipped += l.scanned - l.start
			l.start = l.scanned
		} else if l.spilled.size+l.scanned-l.start > l.max+1 {
			l.beginSkip(l.buf[l.start:])
			l.skipped = l.scanned - l.start
			l.start = l.scanned
			if l.AtOnce {
				return nil, l.tooLong()
			}
		}
		if l.err != nil {
			if l.skipping && errors.Is(l.err, io.EOF) {
				return nil, l.endSkip()
			}
			if l.spilled.f != nil && errors.Is(l.err, io.EOF) && !l.DropTail && l.endSpilled(nil) {
				return nil, ErrSpilled
			}
			l.dropSpilled()
			line := trim(l.buf[l.start:])
			l.start, l.scanned = len(l.buf), len(l.buf)
			if len(line) > 0 && !l.skipping && !l.DropTail && errors.Is(l.err, io.EOF) {
				return line, nil
			}
			return nil, l.err
		}
		l.fill()
	}
}

// beginSkip begins to skip the line of which rest was read last, behind what is in its file if it has
// one. It keeps the ends of what was read, and removes the file.
func (l *Lines) beginSkip(rest []byte) {
	l.skipping, l.tail = true, l.tail[:0]
	if s := &l.spilled; s.f != nil {
		l.head = append(l.head[:0], make([]byte, min(s.size, LineEnds))...)
		if _, err := s.f.ReadAt(l.head, 0); err != nil {
			l.head = l.head[:0] // then its beginning is not known
		}
		end := make([]byte, min(s.size, LineEnds))
		if _, err := s.f.ReadAt(end, int64(s.size-len(end))); err == nil {
			l.keepTail(end)
		}
		l.dropSpilled()
	} else {
		l.head = append(l.head[:0], rest[:min(len(rest), LineEnds)]...)
	}
	l.keepTail(rest)
}

// endSkip ends a skip, and returns why the line was skipped.
func (l *Lines) endSkip() error {
	noRoom := l.noRoom
	l.skipping, l.noRoom, l.skipped = false, false, 0
	if noRoom {
		return ErrNoRoom
	}
	return l.tooLong()
}

// Begun returns how many bytes were read of a line that has not ended. It is for BeforeRead.
func (l *Lines) Begun() int { return l.skipped + l.spilled.size + l.scanned - l.start }

// Close lets go of what was read. Next must not be called any more.
func (l *Lines) Close() {
	l.dropSpilled()
	l.buf, l.start, l.scanned, l.err = nil, 0, 0, io.EOF
	l.hold()
}

// hold tells l.Hold the size of the buffer, which has become smaller.
func (l *Lines) hold() {
	if l.Hold != nil {
		l.Hold(cap(l.buf))
	}
}

// keepTail keeps the last bytes of a line that is skipped and goes on with part.
func (l *Lines) keepTail(part []byte) {
	l.tail = append(l.tail, part[max(len(part)-LineEnds, 0):]...)
	l.tail = append(l.tail[:0], l.tail[max(len(l.tail)-LineEnds, 0):]...)
}

// Ends returns the beginning and the end of the line for which Next has just returned [ErrTooLong] or
// [ErrNoRoom].
func (l *Lines) Ends() (head, tail []byte) { return l.head, l.tail }

// Own returns line, which Next has just returned, in memory of its caller's own, with a
// newline behind its end. Of a long line that fills much of the buffer it makes no copy, but
// gives away the buffer.
func (l *Lines) Own(line []byte) []byte {
	if atFront := cap(line) == cap(l.buf); !atFront || len(line) < max(keepBuffer, cap(l.buf)/2) {
		return append(append(make([]byte, 0, len(line)+1), line...), '\n')[:len(line)]
	}
	l.buf = append(make([]byte, 0, keepBuffer/8), l.buf[l.start:]...)
	l.start, l.scanned = 0, 0
	l.hold()
	return line
}

// Grow returns a slice with the bytes of b and room for n more. It doubles the room at least,
// and does more while that is little: a line that is longer than its buffer is often very long.
func Grow(b []byte, n int) []byte {
	if len(b)+n <= cap(b) {
		return b
	}
	return append(make([]byte, 0, grown(b, n)), b...)
}

// grown returns the room of the slice that [Grow] makes of b, which has too little.
func grown(b []byte, n int) int {
	next := 2 * cap(b)
	if cap(b) < 1<<20 {
		next = 4 * cap(b)
	}
	return max(next, len(b)+n)
}

// ReadLine returns the next line of r with its newline, in memory of the caller's own. With an
// error it returns what it has read of the line: [ErrTooLong] for a line of more than limit bytes,
// whose rest, if it was not read, is the next line, or the error of r. Unlike a [bufio.Scanner]
// it looks at each byte of a long line once.
func ReadLine(r *bufio.Reader, limit int) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(Grow(line, len(part)), part...)
		switch {
		case len(line) > limit:
			return line, ErrTooLong
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// tooLong returns an [ErrTooLong] with the limit.
func (l *Lines) tooLong() error {
	return fmt.Errorf("%w: more than %d bytes", ErrTooLong, l.max)
}

// fill moves the unread bytes to the front of the buffer, makes room, and reads once.
func (l *Lines) fill() {
	if l.start > 0 {
		held := l.buf[l.start:]
		if cap(l.buf) > keepBuffer && len(held) < keepBuffer/4 && l.spilled.f == nil {
			l.buf = append(make([]byte, 0, keepBuffer/8), held...)
			l.hold()
		} else {
			l.buf = l.buf[:copy(l.buf, held)]
		}
		l.scanned -= l.start
		l.start = 0
	}
	if len(l.buf) == cap(l.buf) {
		l.grow()
	}
	if l.BeforeRead != nil {
		l.BeforeRead()
	}
	n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	l.err = err
}

// grow makes the full buffer greater, though not for more than the longest line. If there is no room for
// that, it begins to skip the line instead.
func (l *Lines) grow() {
	const least = 4 << 10
	size := max(min(grown(l.buf, least), l.max+keepBuffer), len(l.buf)+least)
	if l.Hold == nil || l.Hold(size) {
		l.buf = append(make([]byte, 0, size), l.buf...)
		return
	}
	l.beginSkip(l.buf)
	l.noRoom, l.skipped = true, len(l.buf)
	l.buf, l.scanned = make([]byte, 0, keepBuffer/8), 0
	l.hold()
}

// trim returns a line without carriage returns at its end.
func trim(line []byte) []byte { return bytes.TrimRight(bytes.TrimPrefix(line, bom), "\r") }

// bom is the byte order mark, which some programs write before a line.
var bom = []byte("\xef\xbb\xbf")

// SetLimit changes the longest line that is taken from now on.
func (l *Lines) SetLimit(limit int) { l.max = limit }
