package jsonrpc

import (
	"errors"
	"os"
)

// minSpilled is the size in bytes from which on a line that has not ended goes into a file.
const minSpilled = 256 << 10

// ErrSpilled is returned by [Lines.Next] for a line that lies in a file: [Lines.TakeSpilled]
// has it.
var ErrSpilled = errors.New("the line lies in a file")

// spilled is the line that goes into a file.
type spilled struct {
	f       *os.File // nil if there is none
	size    int      // bytes in it
	refused bool     // the present line has to stay in memory
}

// TakeSpilled returns the file with the line for which Next has just returned [ErrSpilled], and
// its size. The line has no newline. The caller owns the file.
func (l *Lines) TakeSpilled() (f *os.File, size int) {
	f, size = l.spilled.f, l.spilled.size
	l.spilled = spilled{}
	return f, size
}

// spill moves what was read of a long line that has not ended into its file.
func (l *Lines) spill() {
	s, held := &l.spilled, l.buf[l.start:]
	if s.f == nil && (len(held) < minSpilled || l.Spill == nil || l.skipping || s.refused) {
		return
	}
	if s.f == nil {
		if s.f = l.Spill(); s.f == nil {
			s.refused = true
			return
		}
	}
	if _, err := s.f.WriteAt(held, int64(s.size)); err != nil {
		l.unspill()
		return
	}
	s.size += len(held)
	l.start = l.scanned
}

// endSpilled adds the end of the line to its file. If it cannot, the line is in memory again.
func (l *Lines) endSpilled(end []byte) bool {
	s := &l.spilled
	if _, err := s.f.WriteAt(end, int64(s.size)); err != nil {
		l.unspill()
		return false
	}
	s.size += len(end)
	return true
}

// unspill reads the line back into the buffer, since its file cannot be written. If it cannot
// be read either, reading ends.
func (l *Lines) unspill() {
	s := &l.spilled
	whole := make([]byte, s.size, s.size+len(l.buf)-l.start)
	if _, err := s.f.ReadAt(whole, 0); err != nil {
		// The end of the line must not be taken for a line: what was read behind it goes, too.
		l.err, l.buf, l.start, l.scanned = err, nil, 0, 0
		l.dropSpilled()
		return
	}
	l.scanned += len(whole) - l.start
	l.buf, l.start = append(whole, l.buf[l.start:]...), 0
	l.dropSpilled()
	s.refused = true
}

// dropSpilled removes the file of the line that has begun, if it has one.
func (l *Lines) dropSpilled() {
	if f := l.spilled.f; f != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	l.spilled = spilled{}
}
