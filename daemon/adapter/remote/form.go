package remote

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
)

// A form is how the body of an answer is written.
type form int

// The forms.
const (
	asNeither form = iota
	asOneText      // of JSON
	asStream       // of events
)

// maxLook bounds what [formOf] reads of a body, in bytes.
const maxLook = 64

// formOf returns the form of a body. The type of its content is wrong with some servers, or missing. So the first
// characters decide where they are clear, and else the type. They can be read again. isDeclared reports whether
// the type is one of those that answers may have. If the body broke off before it showed its form, err says how.
func formOf(kind string, resp *http.Response) (f form, isDeclared bool, err error) {
	declared := map[string]form{"application/json": asOneText, "text/event-stream": asStream}[kind]
	in := bufio.NewReader(resp.Body)
	resp.Body = readAgain{in, resp.Body}
	for n := 1; n <= maxLook; n++ {
		b, err := in.Peek(n)
		if f, sure := begins(b); sure {
			return f, declared != asNeither, nil
		}
		if err != nil {
			return declared, declared != asNeither, cutOff(err, b, resp)
		}
		if declared == asStream && !mayBeJSON(b) {
			break
		}
	}
	return declared, declared != asNeither, nil
}

// cutOff returns err, with which a body has ended behind the bytes b, or nil if that is its own end.
func cutOff(err error, b []byte, resp *http.Response) error {
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case mayBeJSON(b) && endsWithConnection(resp):
		return io.ErrUnexpectedEOF
	}
	return nil
}

// begins returns the form of a body with these first bytes, if they show it.
func begins(b []byte) (f form, sure bool) {
	b = bytes.TrimLeft(bytes.TrimPrefix(b, bom), " \t\r\n")
	if len(b) == 0 {
		return asNeither, false
	}
	switch b[0] {
	case '{', '[':
		return asOneText, true
	case ':': // a comment
		return asStream, true
	}
	for _, field := range []string{"data:", "event:", "id:", "retry:"} {
		if bytes.HasPrefix(b, []byte(field)) {
			return asStream, true
		}
	}
	return asNeither, false
}

// mayBeJSON reports whether a body with these first bytes may turn out to be JSON.
func mayBeJSON(b []byte) bool {
	return bytes.HasPrefix(bom, b) || len(bytes.TrimLeft(bytes.TrimPrefix(b, bom), " \t\r\n")) == 0
}

// readAgain is a body of which something was read ahead.
type readAgain struct {
	io.Reader
	io.Closer
}
