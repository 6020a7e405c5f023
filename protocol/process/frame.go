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
	if err := json.Unmarshal(h, &f); err != nil {
		return f, fmt.Errorf("%w: %w", ErrFrame, err)
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
	bufs := make(net.Buffers, 0, 2*len(frames))
	for i := range frames {
		f := &frames[i]
		h, err := json.Marshal(f)
		if err != nil {
			return fmt.Errorf("frame header: %w", err)
		}
		if len(h) > MaxHeader || len(f.Payload) > MaxPayload {
			return fmt.Errorf("%w: %d bytes of header, %d of payload", ErrFrame, len(h), len(f.Payload))
		}
		head := make([]byte, 0, 8+len(h))
		head = binary.BigEndian.AppendUint32(head, uint32(len(h)))
		head = binary.BigEndian.AppendUint32(head, uint32(len(f.Payload)))
		bufs = append(bufs, append(head, h...))
		if len(f.Payload) > 0 {
			bufs = append(bufs, f.Payload)
		}
	}
	if len(bufs) == 1 {
		_, err := w.Write(bufs[0])
		return err
	}
	_, err := bufs.WriteTo(w)
	return err
}

// inside turns an end of file inside a frame into what it is.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
