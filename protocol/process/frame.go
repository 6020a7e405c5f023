package process

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// Limits of a frame, in bytes. A payload holds a line of 64 MiB with some room
// for what a daemon wraps around it.
const (
	MaxHeader  = 64 << 10
	MaxPayload = 65 << 20
)

// firstRead is how much is allocated for a payload before any of it came.
const firstRead = 64 << 10

// ErrFrame is returned by [ReadFrame] for bytes that are no frame; the
// connection is of no use afterwards.
var ErrFrame = errors.New("malformed frame")

// Frame is one message: two big-endian uint32 lengths, a JSON header, and
// bytes that are nobody's business.
//
// A request has a Method and an ID; without an ID it is not answered. An
// answer has the ID and either Result or Error. An event has only a Method.
type Frame struct {
	ID      int64           `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
	Payload []byte          `json:"-"`
}

// ReadFrame reads one frame. At the end of input between two frames it returns
// io.EOF, inside of one io.ErrUnexpectedEOF. The payload is allocated as it
// comes, so a length alone costs nothing.
func ReadFrame(r io.Reader) (Frame, error) {
	var f Frame
	var lengths [8]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return f, err
	}
	header, payload := binary.BigEndian.Uint32(lengths[:4]), binary.BigEndian.Uint32(lengths[4:])
	if header > MaxHeader || payload > MaxPayload {
		return f, fmt.Errorf("%w: %d bytes of header, %d of payload", ErrFrame, header, payload)
	}
	h := make([]byte, header)
	if _, err := io.ReadFull(r, h); err != nil {
		return f, inside(err)
	}
	var simple bool
	if f, simple = parseHeader(h); !simple {
		f = Frame{}
		if err := json.Unmarshal(h, &f); err != nil {
			return f, fmt.Errorf("%w: %w", ErrFrame, err)
		}
	}
	if f.ID < 0 || (f.Method == "" && f.ID == 0) {
		return f, fmt.Errorf("%w: neither request nor answer nor event", ErrFrame)
	}
	if payload == 0 {
		return f, nil
	}
	total := int(payload)
	buf := make([]byte, 0, min(total, firstRead))
	for len(buf) < total {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(total, 4*cap(buf)))
			copy(grown, buf)
			buf = grown
		}
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil {
			return f, inside(err)
		}
	}
	f.Payload = buf
	return f, nil
}

// WriteFrame writes f as one write where w can do that. It fails without
// writing if f is over the limits.
func WriteFrame(w io.Writer, f *Frame) error { return WriteFrames(w, *f) }

// WriteFrames is [WriteFrame] of several, in order.
func WriteFrames(w io.Writer, frames ...Frame) error {
	size := 0
	for i := range frames {
		f := &frames[i]
		size += 8 + headRoom + len(f.Params) + len(f.Result)
		if len(f.Payload) <= maxCopied {
			size += len(f.Payload)
		}
	}
	var bufs net.Buffers
	buf := make([]byte, 0, size)
	for i := range frames {
		f := &frames[i]
		var err error
		if buf, err = appendFrame(buf, f); err != nil {
			return err
		}
		if len(f.Payload) > maxCopied {
			bufs = append(bufs, buf, f.Payload)
			buf = buf[len(buf):]
		}
	}
	if bufs == nil {
		_, err := w.Write(buf)
		return err
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

const (
	maxCopied = 8 << 10 // bytes of a payload that is copied behind its header
	headRoom  = 48      // for what stands around params and result of most headers
)

// appendFrame appends lengths and header of f, and its payload if that is small.
func appendFrame(b []byte, f *Frame) ([]byte, error) {
	at := len(b)
	b = append(b, make([]byte, 8)...)
	b, simple := appendHeader(b, f)
	if !simple {
		h, err := json.Marshal(f)
		if err != nil {
			return b, fmt.Errorf("frame header: %w", err)
		}
		b = append(b[:at+8], h...)
	}
	header := len(b) - at - 8
	if header > MaxHeader || len(f.Payload) > MaxPayload {
		return b, fmt.Errorf("%w: %d bytes of header, %d of payload", ErrFrame, header, len(f.Payload))
	}
	binary.BigEndian.PutUint32(b[at:], uint32(header))
	binary.BigEndian.PutUint32(b[at+4:], uint32(len(f.Payload)))
	if len(f.Payload) <= maxCopied {
		b = append(b, f.Payload...)
	}
	return b, nil
}

// inside turns an end of file inside a frame into what it is.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
