package jsonrpc

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// TestLineThatIsNoMessage_ItsIDIsFound checks what is seen of lines that cannot be read: the id of their
// own object alone.
func TestLineThatIsNoMessage_ItsIDIsFound(t *testing.T) {
	longID := strings.Repeat("a", MaxID) // with its quotes it is too long
	for _, tc := range []struct {
		line, id string
		kind     Kind
	}{
		{`{"jsonrpc":"2.0","id":1,`, "1", 0},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"m\",\"params\":{\"x\":\"\xff\"}}", `"a"`, Request},
		{"{\"method\":\"m\",\"params\":{\"id\":2,\"x\":\"\xff\"},\"id\":7}", "7", Request},
		{`{"jsonrpc":"2.0","method":"m","params":{"id":5}`, "", Notification},
		{`{"jsonrpc":"2.0","method":"m","params":1}`, "", Notification},
		{`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`, "1", Request},
		{`{"jsonrpc":"2.0","id":1,"id":2,"result":{}}`, "", Response},
		{`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, "1", Response},
		{`{"jsonrpc":"2.0","id":1,"error":null}`, "1", Response},
		{`{"jsonrpc":"2.0","id":1}`, "1", 0},
		{"\uFEFF" + `{"jsonrpc":"2.0","id":1,"method":"m"}`, "1", Request},
		{`{"jsonrpc":"2.0","id":{},"method":"m"}`, "", Notification},
		{`{"jsonrpc":"2.0","id":"` + longID + `","method":"m"}`, `"` + longID + `"`, Request},
		{`[{"jsonrpc":"2.0","id":1,"method":"m"}]`, "", 0},
		{`"id":1`, "", 0},
		{`{"id"`, "", 0},
		{`{"id":`, "", 0},
		{`{"id":1`, "", 0},
		{``, "", 0},
	} {
		m, err := Parse([]byte(tc.line))
		if err == nil || string(m.ID) != tc.id || m.Kind != tc.kind {
			t.Errorf("%s: id %s, kind %d, %v; want %s, %d", tc.line, m.ID, m.Kind, err, tc.id, tc.kind)
		}
	}
}

// TestLineOverTheLimit_ItsIDIsFoundAtEitherEnd checks that the id of a request is found although most of
// its line was skipped, wherever its client writes the id and however the line comes.
func TestLineOverTheLimit_ItsIDIsFoundAtEitherEnd(t *testing.T) {
	long := `{"name":"t","arguments":{"id":3,"x":"` + strings.Repeat("x", 9*LineEnds) + `\",\"id\":4","y":{"id":5}}}`
	for _, tc := range []struct {
		line, id string
		kind     Kind
	}{
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + long + `}`, "7", Request},
		{`{"method":"tools/call","params":` + long + `,"jsonrpc":"2.0","id":7}`, "7", Request},
		{`{"params":` + long + `, "id" : "a\"b" , "method":"tools/call" , "jsonrpc":"2.0" }`, `"a\"b"`, Request},
		{`{"jsonrpc":"2.0","method":"tools/call","params":` + long + `}`, "", Notification},
		{`{"params":` + long + `,"method":"tools/call"}`, "", Notification},
		{`{"id":"s:1","result":` + long + `}`, `"s:1"`, Response},
		{`{"params":` + long + `}`, "", 0},
		{strings.Repeat("x", 9*LineEnds), "", 0},
	} {
		for _, piece := range []int{1, 100, LineEnds, len(tc.line) + 8} {
			l := NewLines(&slowReader{[]byte(tc.line + "\r\n{}\n"), piece}, 8*LineEnds)
			_, err := l.Next()
			head, tail := l.Ends()
			id, kind := Glimpse(head, tail)
			if !errors.Is(err, ErrTooLong) || string(id) != tc.id || kind != tc.kind {
				t.Errorf("%.40s in pieces of %d: id %s, kind %d, %v; want %s, %d", tc.line, piece, id, kind, err, tc.id, tc.kind)
			}
			if next, err := l.Next(); err != nil || string(next) != "{}" {
				t.Errorf("behind it: %s, %v", next, err)
			}
		}
	}
}

// A slowReader gives so many bytes at once, at most.
type slowReader struct {
	b    []byte
	most int
}

func (r *slowReader) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), r.most)], r.b)
	r.b = r.b[n:]
	if n == 0 {
		return bytes.NewReader(nil).Read(p)
	}
	return n, nil
}
