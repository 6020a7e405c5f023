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

// errCut is returned for a stream that has ended, however it did.
var errCut = errors.New("the stream ended")

// maxEventID bounds what is kept to take a stream up again, in bytes.
const maxEventID = 4 << 10

// events reads a stream of server-sent events (HTML Living Standard, section
// 9.2), and the stream that takes it up.
type events struct {
	r    *bufio.Reader
	max  int           // bytes of one event, and of one line
	last string        // id of the last event, "" if there was none
	wait time.Duration // that the server asked for, or 0
}

func newEvents(r io.Reader, limit int) *events {
	return &events{r: bufio.NewReaderSize(r, 32<<10), max: limit}
}

// from goes on with another stream.
func (e *events) from(r io.Reader) { e.r.Reset(r) }

// read calls f with the data of each event that has some, and returns how many
// there were and f's error, one wrapping [jsonrpc.ErrTooLong], or errCut. An
// event that the stream does not end is dropped.
func (e *events) read(f func(data []byte) error) (n int, err error) {
	var data []byte
	var kind, id []byte
	some, first := false, true
	for {
		line, err := e.line()
		if errors.Is(err, jsonrpc.ErrTooLong) {
			return n, err
		}
		if err != nil {
			return n, errCut
		}
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
				data = append(data, '\n')
			}
			data, some = append(data, value...), true
		case "event":
			kind = bytes.Clone(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 && len(value) <= maxEventID {
				id = append([]byte{}, value...)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.wait = min(time.Duration(ms)*time.Millisecond, maxRetry)
			}
		}
	}
}

// line is the next line without its end. It is valid until the next call.
func (e *events) line() ([]byte, error) {
	part, err := e.r.ReadSlice('\n')
	if err == nil {
		return bytes.TrimRight(part, "\r\n"), nil
	}
	long := bytes.Clone(part)
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = e.r.ReadSlice('\n')
		if long = append(long, part...); len(long) > e.max+len("data: \r\n") {
			return nil, jsonrpc.ErrTooLong
		}
	}
	return bytes.TrimRight(long, "\r\n"), err
}

// retry is how long to wait before the stream is taken up again for the nth
// time in a row.
func (e *events) retry(n int) time.Duration {
	if e.wait > 0 {
		return e.wait
	}
	return min(maxRetry, firstRetry<<n)
}
