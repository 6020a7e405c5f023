package jsonrpc

import "bytes"

// LineEnds is how many bytes of the beginning and of the end of a line [Glimpse] needs at least,
// and how many [Lines] keeps of a line that is too long.
const LineEnds = 4 << 10

// Glimpse returns what can be seen of a line that is no valid message, or of which only the beginning
// and the end are known: its kind, and its id if that is a member of the line's own object. If two
// members give different ids, it is the first one of a request, and nil for others. The kind is 0 if
// neither end shows it. Of a line that is known whole, tail is nil. The id may have more bytes than [MaxID]:
// its refusal bears it.
func Glimpse(head, tail []byte) (ID, Kind) {
	var g glimpse
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\uFEFF")), " \t\r\n")
	if len(head) == 0 || head[0] != '{' {
		return nil, 0
	}
	g.forward(head)
	g.backward(bytes.TrimRight(tail, " \t\r\n"))
	id := g.id
	if g.differs && !g.method {
		id = nil
	}
	switch {
	case g.method && g.id == nil:
		return nil, Notification
	case g.method:
		return id, Request
	case g.result:
		return id, Response
	}
	return id, 0
}

// glimpse is what the members of a line say that were read.
type glimpse struct {
	id             ID
	differs        bool // two members give different ids
	method, result bool // the line has such a member; an error counts as a result
}

// forward reads members from the beginning of an object, until one has no end.
func (g *glimpse) forward(b []byte) {
	for i := skipSpace(b, 1); i < len(b) && b[i] == '"'; {
		end := skipString(b, i, extent{})
		key := b[i:end]
		if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
			return
		}
		i = skipSpace(b, i+1)
		end = skipValue(b, i, extent{})
		if end <= i {
			return
		}
		var value []byte // unless the line goes on with more of it
		if end < len(b) {
			value = b[i:end]
		}
		g.member(key, value)
		if i = skipSpace(b, end); i >= len(b) || b[i] != ',' {
			return
		}
		i = skipSpace(b, i+1)
	}
}

// backward reads members from the end of an object, until one is neither a string nor a number.
func (g *glimpse) backward(b []byte) {
	if len(b) == 0 || b[len(b)-1] != '}' {
		return
	}
	for b = trimEnd(b[:len(b)-1]); ; {
		from := beginScalar(b)
		if from < 0 {
			return
		}
		value := b[from:]
		if b = trimEnd(b[:from]); len(b) == 0 || b[len(b)-1] != ':' {
			return
		}
		b = trimEnd(b[:len(b)-1])
		if len(b) == 0 || b[len(b)-1] != '"' {
			return
		}
		if from = beginScalar(b); from < 0 {
			return
		}
		key := b[from:]
		if b = trimEnd(b[:from]); len(b) == 0 || b[len(b)-1] != ',' && b[len(b)-1] != '{' {
			return
		}
		g.member(key, value)
		b = trimEnd(b[:len(b)-1])
	}
}

// member takes down a member; value is nil if it is not known whole.
func (g *glimpse) member(spelled, value []byte) {
	switch key, err := keyOf(spelled); {
	case err != nil:
	case key == "method":
		g.method = true
	case key == "result", key == "error":
		g.result = true
	case key == "id" && isID(value):
		if g.id == nil {
			g.id = bytes.Clone(value)
		}
		g.differs = g.differs || !bytes.Equal(g.id, value)
	}
}

// isID reports whether a value is of a type that an id may have.
func isID(value []byte) bool {
	return len(value) > 0 && (value[0] == '"' || value[0] == '-' || value[0] >= '0' && value[0] <= '9')
}

// trimEnd returns b without white space at its end.
func trimEnd(b []byte) []byte { return bytes.TrimRight(b, " \t\r\n") }

// beginScalar returns where the string, the number or the word begins with which b ends; -1 if it
// ends with none, or that begins before b.
func beginScalar(b []byte) int {
	i := len(b) - 1
	if i < 0 {
		return -1
	}
	if b[i] != '"' {
		for i >= 0 && (b[i] >= '0' && b[i] <= '9' || b[i] >= 'a' && b[i] <= 'z' || b[i] == 'E' || b[i] == '.' || b[i] == '-' ||
			b[i] == '+') {
			i--
		}
		if i < 0 || i == len(b)-1 {
			return -1
		}
		return i + 1
	}
	for i--; i >= 0; i-- {
		if b[i] != '"' {
			continue
		}
		escapes := 0
		for i-escapes > 0 && b[i-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
	}
	return -1
}
