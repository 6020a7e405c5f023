// Package sendonce has what keeps net/http from sending a request twice, and says when a message may be sent again
// since the server has moved: see [Moved].
//
// By itself net/http sends a request again, on another connection, if that looks harmless to it:
//
//   - HTTP/1: a kept connection failed before a byte of the request was written, or it failed before the first
//     byte of the answer and the request is a GET, HEAD, OPTIONS or TRACE, or has the header Idempotency-Key or
//     X-Idempotency-Key;
//   - HTTP/2: the server refuses the stream (REFUSED_STREAM), says that it has not looked at it (GOAWAY), or ends
//     it with PROTOCOL_ERROR; or the connection takes no more streams. If the connection is given up, too, this
//     goes on without end.
//
// A server, or a gateway in front of one, can say each of these after it has done what was asked. For all of
// them net/http needs the body again: from Request.GetBody, or because the body is missing or was not read yet.
// A [Body] has none of that, so it goes out at most once, whatever the headers and the method are.
package sendonce

import (
	"errors"
	"io"
	"sync"
)

// errOver is the error of a read after the end of the request.
var errOver = errors.New("the request is over")

// Body is the body of one request, which can be read once. Set it as the Body of a request without GetBody, and
// set ContentLength, too. It is safe for concurrent use: net/http may read it until long after the answer.
type Body struct {
	mu     sync.Mutex // held for before, too
	rest   []byte
	before func() error
	err    error // of before, or errOver
}

// New returns a body of a text, which the caller must not change. before, if it is not nil, is called once when
// the first byte is asked for: the connection stands then, and nothing of the body has been sent. If it fails,
// nothing is sent, and the request fails with its error.
func New(text []byte, before func() error) *Body { return &Body{rest: text, before: before} }

// Read reads the body.
func (b *Body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before := b.before; before != nil && b.err == nil {
		b.before = nil
		b.err = before()
	}
	if b.err != nil {
		return 0, b.err
	}
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; len(b.rest) == 0 {
		return n, io.EOF // at once: with HTTP/2 this saves a frame
	}
	return n, nil
}

// Close ends the body. net/http closes a body that it does not read any more.
func (b *Body) Close() error {
	b.End()
	return nil
}

// End waits for a read that is under way, and sees to it that no other one follows. It reports whether the
// whole body has been read. If not, the receiver can never have all of it.
func (b *Body) End() (whole bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = errOver
	}
	return len(b.rest) == 0
}
