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
}

// newEvents returns a reader of r. limit bounds one event, and one line, in bytes.
func newEvents(r io.Reader, limit int) *events {
	e := &events{max: limit}
	e.from(r)
	return e
}

// from continues with another stream that resumes this one.
func (e *events) from(r io.Reader) { e.in = bufio.NewReader(r) }

// readEvents calls f with the data of each event that has data. It returns the number of
// these events, and an error: that of f, one that wraps [jsonrpc.ErrTooLong], or errCut
// at the end of the stream. An event without its final empty line is dropped, and its
// id does not count: a resume then delivers it again.
func (e *events) readEvents(f func(data []byte) error) (n int, err error) {
	var data []byte
	var kind, id []byte
	some, first := false, true
	for {
		line, err := jsonrpc.ReadLine(e.in, e.max+len("data: \r\n"))
		if errors.Is(err, jsonrpc.ErrTooLong) {
			return n, err
		}
		if err != nil {
			return n, errCut
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if first {
			line, first = bytes.TrimPrefix(line, []byte("\ufeff")), false
		}
		if len(line) == 0 {
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
