package masked

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"strings"

	"holdline/daemon/logfile"
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
	Since  int64 // Unix time in ms: unless Known, what was written before that is left out; 0 leaves out nothing
	Most   int   // bytes; 0 is [maxLog]. Of no meaning if Known
	Follow bool  // a line that is not whole is left for the next look
}

// Part is a part of a log, without secrets.
type Part struct {
	Text  string
	Next  int64  // offset in bytes at which to go on
	Times []Time // of its lines, if the end of the log was read and that is known
}

// Time says when the lines of a part were written from one on: in ms of Unix time, and about a second exact.
type Time struct {
	Line   int
	UnixMS int64
}

// ReadLog returns the part at a place of the log at path. A log whose secrets are not known, or that
// does not exist, has no text. One call returns at most [maxLog] bytes, or about [maxPart]
// from a known place.
//
// If the log is now shorter than the place, another file has replaced it, and reading
// begins at its start.
func (s *Secrets) ReadLog(path string, at Place) (part Part, err error) {
	part.Next = at.From
	if s.IsUnknown() {
		return part, nil
	}
	f, err := ownfile.Open(path)
	if errors.Is(err, os.ErrNotExist) { // the process has written nothing
		return part, nil
	} else if err != nil {
		return part, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return part, err
	}
	from, size := at.From, info.Size()
	most := max(int64(maxPart), 2*int64(s.longest()))
	var ranges []logfile.Range
	if !at.Known {
		ranges, most = logfile.Ranges(path, size), int64(cmp.Or(at.Most, maxLog))
		from = max(startOf(ranges, at.Since, size), size-most, 0)
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
		return part, err
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
	raw := b[first:]
	text, last := s.maskPart(b, first, last)
	part.Text = redact.Text(strings.ToValidUTF8(text, "\uFFFD"))
	part.Times = timesOf(ranges, begin+int64(first), raw[:last-first], part.Text)
	part.Next = begin + int64(last)
	return part, nil
}

// startOf returns the offset of the first range that may have been written since a time; size if none may have been.
func startOf(ranges []logfile.Range, since, size int64) int64 {
	for i, r := range ranges {
		end := r.UnixMS + logfile.MomentEvery.Milliseconds()
		if since <= end || r.UnixMS == 0 && i+1 == len(ranges) {
			return r.From
		}
	}
	return size
}

// timesOf returns when the lines of text were written, which stood in raw at an offset of the log.
func timesOf(ranges []logfile.Range, from int64, raw []byte, text string) (times []Time) {
	// A secret of several lines leaves fewer: then only the time of the first one is certain.
	exact := strings.Count(text, "\n") == bytes.Count(raw, []byte("\n"))
	line, done := 0, 0
	for _, r := range ranges {
		at := int(max(0, r.From-from))
		if r.UnixMS == 0 || at > 0 && !exact || at > len(raw) {
			continue
		}
		line += bytes.Count(raw[done:at], []byte("\n"))
		done = at
		first := line
		if at > 0 && raw[at-1] != '\n' { // it was begun before
			first++
		}
		if n := len(times); n > 0 && times[n-1].Line == first {
			times = times[:n-1]
		}
		times = append(times, Time{Line: first, UnixMS: r.UnixMS})
	}
	return times
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
