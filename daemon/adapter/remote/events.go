package remote

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"

	"holdline/protocol/jsonrpc"
)

// errCut reports that the stream has ended, in whatever way.
var errCut = errors.New("the stream ended")

// maxEventID bounds the event id that is kept for a resume, in bytes.
const maxEventID = 4 << 10

// events reads a stream of server-sent events (HTML Living Standard, section 9.2), and
// the streams that resume it. It keeps the last event id and the server's wait between
// them. One goroutine at a time may use it.
type events struct {
	in   *bufio.Reader
	max  int           // bytes of one event, and of one line
	last string        // id of the last event, "" if there was none
	wait time.Duration // that the server asked for, or 0
	rest []byte        // data of the event in which the last stream ended, or nil

	afterCR bool // a newline that comes now belongs to the line end before
}

// newEvents returns a reader of r. limit bounds one event, and one line, in bytes.
func newEvents(r io.Reader, limit int) *events {
	e := &events{max: limit}
	e.from(r)
	return e
}

// from continues with another stream that resumes this one.
func (e *events) from(r io.Reader) { e.in, e.rest, e.afterCR = bufio.NewReader(r), nil, false }

// line reads a line, which a carriage return, a newline, or both end, and returns it without that. With an error it
// returns what there is of the line.
func (e *events) line() (line []byte, err error) {
	for {
		if _, err := e.in.Peek(1); err != nil {
			return line, err
		}
		part, _ := e.in.Peek(e.in.Buffered()) // which is there
		if e.afterCR && part[0] == '\n' {
			part = part[1:]
			_, _ = e.in.Discard(1)
		}
		e.afterCR = false
		end := bytes.IndexAny(part, "\r\n")
		isEnded := end >= 0
		if isEnded {
			e.afterCR, part = part[end] == '\r', part[:end]
		}
		line = append(jsonrpc.Grow(line, len(part)), part...)
		_, _ = e.in.Discard(len(part))
		if len(line) > e.max+len("data: ") {
			return line, jsonrpc.ErrTooLong
		}
		if isEnded {
			_, _ = e.in.Discard(1)
			return line, nil
		}
	}
}

// readEvents calls f with the data of each event that has data. It returns the number of
// these events, and an error: that of f, one that wraps [jsonrpc.ErrTooLong], or errCut
// at the end of the stream. An event without its final empty line is dropped, and its
// id does not count: a resume then delivers it again. Its data is in e.rest.
func (e *events) readEvents(f func(data []byte) error) (n int, err error) {
	var data []byte
	var kind, id []byte
	some, first := false, true
	for {
		line, err := e.line()
		if errors.Is(err, jsonrpc.ErrTooLong) {
			return n, err
		}
		if first {
			line, first = bytes.TrimPrefix(line, []byte("\ufeff")), false
		}
		if len(line) == 0 && err == nil {
			if id != nil {
				e.last = string(id)
			}
			if some && (len(kind) == 0 || string(kind) == "message") && len(bytes.TrimSpace(data)) > 0 {
				n++
				if err := f(data); err != nil {
					return n, err
				}
			}
			data, kind, id, some = nil, nil, nil, false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if err != nil && string(field) != "data" { // it is cut off
			field = nil
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if len(data)+len(value) >= e.max {
				return n, jsonrpc.ErrTooLong
			}
			if some {
				data = append(append(data, '\n'), value...)
			} else {
				data, some = value, true
			}
		case "event":
			kind = value
		case "id":
			if bytes.IndexByte(value, 0) < 0 && len(value) <= maxEventID {
				id = append([]byte{}, value...) // not nil, even if it is empty
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.wait = min(time.Duration(ms)*time.Millisecond, maxRetry)
			}
		}
		if err != nil {
			e.rest = data
			return n, errCut
		}
	}
}

// retry returns how long to wait before the nth resume in a row: the time that the
// server has asked for, else one that doubles up to [maxRetry]. What the server has asked for
// may be too short: then the wait grows from [minRetry] to a second.
func (e *events) retry(n int) time.Duration {
	n = min(n, 6)
	if e.wait > 0 {
		return max(e.wait, min(minRetry<<n, time.Second))
	}
	return min(maxRetry, firstRetry<<n)
}
