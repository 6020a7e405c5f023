package masked

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"

	"holdline/daemon/redact"
	"holdline/protocol/ownfile"
)

// Limits of one look into a log, in bytes.
const (
	maxLog  = 1 << 20
	maxPart = 64 << 10 // if the log is followed from a known place
)

// Place is where to read a log.
type Place struct {
	From   int64 // offset in bytes; of no meaning unless Known
	Known  bool  // if false, the end of the log is read
	Follow bool  // a line that is not whole is left for the next look
}

// ReadLog returns the text at a place of the log at path, without the secrets, and
// the offset at which to go on. A log whose secrets are not known, or that does not
// exist, has no text. One call returns at most [maxLog] bytes, or about [maxPart]
// from a known place.
//
// If the log is now shorter than the place, another file has replaced it, and reading
// begins at its start.
func (s *Secrets) ReadLog(path string, at Place) (text string, next int64, err error) {
	if s.IsUnknown() {
		return "", at.From, nil
	}
	f, err := ownfile.Open(path)
	if errors.Is(err, os.ErrNotExist) { // the process has written nothing
		return "", at.From, nil
	} else if err != nil {
		return "", at.From, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", at.From, err
	}
	from, size := at.From, info.Size()
	most := max(int64(maxPart), 2*int64(s.longest()))
	if !at.Known {
		from, most = max(0, size-maxLog), maxLog
	} else if size < from { // another file took its place
		from = 0
	}
	// The bytes around the part are read, too: a secret may begin before it or
	// end behind it.
	around := int64(max(s.longest()-1, 0))
	begin := max(0, from-around)
	b := make([]byte, from-begin+most+around)
	n, err := f.ReadAt(b, begin)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", at.From, err
	}
	b = b[:n]
	first := int(min(from-begin, int64(n)))
	last := first + int(min(most, int64(n-first)))
	switch end := bytes.LastIndexByte(b[first:last], '\n') + 1; {
	case at.Follow && (end > 0 || n == last && begin+int64(n) >= size): // whole lines
		last = first + end
	case at.Follow && begin+int64(n) >= size: // what may be the beginning of a secret waits for the rest
		last = max(first, min(last, n-int(around)))
	}
	text, last = s.maskPart(b, first, last)
	return redact.Text(strings.ToValidUTF8(text, "\uFFFD")), begin + int64(last), nil
}

// maskPart returns b[first:last] without secrets. Bytes outside of that are there to
// find secrets that cross an end; no part of these is shown. It also returns where
// the next part begins, which is behind a secret that crosses last.
func (s *Secrets) maskPart(b []byte, first, last int) (string, int) {
	var out strings.Builder
	for at := 0; at < last; {
		n := 0
		for _, secret := range s.known() {
			if bytes.HasPrefix(b[at:], []byte(secret)) {
				n = len(secret)
				break
			}
		}
		switch {
		case n > 0:
			if at+n > first {
				out.WriteString(redact.Hidden)
			}
			at += n
			last = max(last, at)
		case at >= first:
			out.WriteByte(b[at])
			at++
		default:
			at++
		}
	}
	return out.String(), last
}
