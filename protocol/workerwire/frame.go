// Package workerwire is what the daemon and a worker say to each other.
//
// They send frames in both directions: requests of the daemon, answers, and events
// of the worker. The daemon makes a connection with [Initialize]. One connection at
// a time is attached ([Attach]): it alone may write to the child and receives the
// events. A worker numbers its events from 1 without gaps and keeps the output until
// the daemon has acknowledged it ([Ack]).
//
// The files of a worker's directory are in package protocol/process.
package workerwire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
)

// Kind says what a frame is.
type Kind byte

// The kinds of frames: requests, answers and events.
//
// All requests but Initialize and Attach are refused from a connection that is not the
// attached one. An answer has the ID of its request. N is the number of an event.
const (
	Initialize Kind = iota + 1 // Body: [InitializeParams]; answered by [InitializeResult]
	Attach                     // Body: [AttachParams]; answered by [AttachResult]
	Write                      // N: the write's id; bytes: Payload or [Filed]; answered by N, a [WriteStatus]
	Terminate                  // Body: [TerminateParams]; answered by [process.Exit]
	Ack                        // N: the daemon is done with all events up to it

	Result  // Body, Payload or N: what the request says; see [Answer]
	Failure // Body: [Error]

	Stdout // Payload: what the child wrote
	Stderr // the same; Body: [Dropped] if bytes are missing
	Exited // Body: [process.Exit]; output may still follow
	Closed // the very end: the child and all it left are gone, all output was sent
)

// WriteStatus is what became of a write.
type WriteStatus int64

// The outcomes of a write.
const (
	WriteAccepted    WriteStatus = iota + 1 // all of it is in the child's pipe
	WriteStdinClosed                        // nothing was written: stdin is closed
	WriteTorn                               // a part was written before stdin was closed
)

// Limits of a frame, in bytes. A payload holds a line of 64 MiB with some room for
// what a daemon wraps around it.
const (
	MaxBody    = 64 << 10
	MaxPayload = 65 << 20
)

const (
	// headSize is the size of the fixed head: the lengths of body and payload as
	// big-endian uint32, the kind, the id and the number as big-endian int64.
	headSize = 4 + 4 + 1 + 8 + 8
	// firstRead is how much is allocated for a payload before any of it has come.
	firstRead = 64 << 10
	// maxCopied is how long a payload may be that is copied behind its head, so that
	// both are one write.
	maxCopied = 8 << 10
)

// ErrFrame is returned by [ReadFrame] for bytes that are no frame. The connection is
// of no use afterwards.
var ErrFrame = errors.New("malformed frame")

// Frame is one message.
type Frame struct {
	Kind    Kind
	ID      int64 // of a request that wants an answer, and of its answer; else 0
	N       int64 // a number, by kind
	Body    json.RawMessage
	Payload []byte
}

// A Reader reads frames from R. A payload that fits into Buf is read to there, and is valid until
// the next frame is read. It must not be used by several goroutines at once.
type Reader struct {
	R   io.Reader
	Buf []byte

	head [headSize]byte
}

// ReadFrame reads one frame from r, as [Reader.Next] does.
func ReadFrame(r io.Reader) (Frame, error) { return (&Reader{R: r}).Next() }

// Next reads one frame. At the end of input between two frames it returns io.EOF, inside of one
// io.ErrUnexpectedEOF. It allocates a payload as the bytes come, so a false length costs nothing.
func (r *Reader) Next() (Frame, error) {
	var f Frame
	head := &r.head
	if _, err := io.ReadFull(r.R, head[:]); err != nil {
		return f, err
	}
	body, payload := binary.BigEndian.Uint32(head[0:]), binary.BigEndian.Uint32(head[4:])
	f.Kind = Kind(head[8])
	f.ID, f.N = int64(binary.BigEndian.Uint64(head[9:])), int64(binary.BigEndian.Uint64(head[17:]))
	if body > MaxBody || payload > MaxPayload || f.ID < 0 {
		return f, fmt.Errorf("%w: %d bytes of body, %d of payload, id %d", ErrFrame, body, payload, f.ID)
	}
	if isAnswer := f.Kind == Result || f.Kind == Failure; isAnswer && f.ID == 0 || f.Kind == 0 {
		return f, fmt.Errorf("%w: kind %d, id %d", ErrFrame, f.Kind, f.ID)
	}
	if body > 0 {
		f.Body = make(json.RawMessage, body)
		if _, err := io.ReadFull(r.R, f.Body); err != nil {
			return f, unexpectedEOF(err)
		}
	}
	if payload == 0 {
		return f, nil
	}
	total, buf := int(payload), r.Buf[:0]
	if total > cap(buf) {
		buf = make([]byte, 0, min(total, firstRead))
	}
	for len(buf) < total {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(total, 4*cap(buf)))
			copy(grown, buf)
			buf = grown
		}
		n, err := io.ReadFull(r.R, buf[len(buf):min(total, cap(buf))])
		buf = buf[:len(buf)+n]
		if err != nil {
			return f, unexpectedEOF(err)
		}
	}
	f.Payload = buf
	return f, nil
}

// WriteFrames writes frames in order, with one write where w can do that. It fails
// without writing if one of them is over the limits. w must not keep what is written.
func WriteFrames(w io.Writer, frames ...Frame) error {
	size, long := 0, false
	for i := range frames {
		f := &frames[i]
		if len(f.Body) > MaxBody || len(f.Payload) > MaxPayload {
			return fmt.Errorf("%w: %d bytes of body, %d of payload", ErrFrame, len(f.Body), len(f.Payload))
		}
		size += headSize + len(f.Body)
		if len(f.Payload) <= maxCopied {
			size += len(f.Payload)
		} else {
			long = true
		}
	}
	kept, _ := buffers.Get().(*[]byte)
	defer buffers.Put(kept)
	buf := slices.Grow((*kept)[:0], size)
	if cap(buf) <= 2*maxCopied {
		*kept = buf
	}
	if long {
		return gather(w, buf, frames)
	}
	for i := range frames {
		buf = append(appendHead(buf, &frames[i]), frames[i].Payload...)
	}
	_, err := w.Write(buf)
	return err
}

// buffers has buffers of [WriteFrames], so that what is written all the time becomes no garbage.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// gather writes frames with long payloads, which are not copied; buf has room for all else.
func gather(w io.Writer, buf []byte, frames []Frame) error {
	var bufs net.Buffers
	for i := range frames {
		f := &frames[i]
		buf = appendHead(buf, f)
		if len(f.Payload) > maxCopied {
			bufs = append(bufs, buf, f.Payload)
			buf = buf[len(buf):]
		} else {
			buf = append(buf, f.Payload...)
		}
	}
	if len(buf) > 0 {
		bufs = append(bufs, buf)
	}
	if g, ok := w.(interface {
		Gather(*net.Buffers) (int64, error)
	}); ok {
		_, err := g.Gather(&bufs)
		return err
	}
	_, err := bufs.WriteTo(w)
	return err
}

// appendHead appends the fixed head of f and its body.
func appendHead(b []byte, f *Frame) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Body)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Payload)))
	b = append(b, byte(f.Kind))
	b = binary.BigEndian.AppendUint64(b, uint64(f.ID))
	b = binary.BigEndian.AppendUint64(b, uint64(f.N))
	return append(b, f.Body...)
}

// unexpectedEOF turns an end of file inside a frame into io.ErrUnexpectedEOF.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
