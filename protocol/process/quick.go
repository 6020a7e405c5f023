package process

import (
	"bytes"
	"encoding/json"
	"strconv"

	"holdline/protocol/jsonrpc"
)

// Each call of a hosted server takes a handful of frames through daemon and
// worker whose headers are always of the same few shapes. These are written and
// read here, byte for byte as package encoding/json does it; whatever is of
// another shape is left to that.

// appendHeader appends the header of f, if its shape is a simple one.
func appendHeader(b []byte, f *Frame) ([]byte, bool) {
	if f.Error != nil || !plain(f.Params) || !plain(f.Result) {
		return b, false
	}
	b = append(b, '{')
	if f.ID != 0 {
		b = append(strconv.AppendInt(append(b, `"id":`...), f.ID, 10), ',')
	}
	if f.Method != "" {
		for _, c := range []byte(f.Method) {
			if !isWord(c) {
				return b, false
			}
		}
		b = append(append(append(b, `"method":"`...), f.Method...), `",`...)
	}
	if len(f.Params) > 0 {
		b = append(append(append(b, `"params":`...), f.Params...), ',')
	}
	if len(f.Result) > 0 {
		b = append(append(append(b, `"result":`...), f.Result...), ',')
	}
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	return append(b, '}'), true
}

// plain tells whether raw is nothing, or JSON that is copied as it stands:
// without white space, and without what is escaped for web pages.
func plain(raw json.RawMessage) bool {
	for _, c := range raw {
		if c <= ' ' || c >= 0x7f || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return len(raw) == 0 || jsonrpc.Valid(raw)
}

func isWord(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '/' }

// parseHeader reads a header of a simple shape: its members in our order,
// without white space, and flat objects for their values. What it returns holds
// parts of h.
func parseHeader(h []byte) (f Frame, ok bool) {
	rest, ok := bytes.CutPrefix(h, []byte("{"))
	if !ok {
		return f, false
	}
	more := true // another member follows
	if after, ok := bytes.CutPrefix(rest, []byte(`"id":`)); ok {
		if f.ID, rest, ok = cutNumber(after); !ok {
			return f, false
		}
		rest, more = bytes.CutPrefix(rest, []byte(","))
	}
	if after, ok := bytes.CutPrefix(rest, []byte(`"method":"`)); ok && more {
		n := 0
		for n < len(after) && isWord(after[n]) {
			n++
		}
		f.Method = method(after[:n])
		if rest, ok = bytes.CutPrefix(after[n:], []byte(`"`)); !ok {
			return f, false
		}
		rest, more = bytes.CutPrefix(rest, []byte(","))
	}
	if after, ok := bytes.CutPrefix(rest, []byte(`"params":`)); ok && more {
		if f.Params, rest, ok = cutFlat(after); !ok {
			return f, false
		}
		rest, more = bytes.CutPrefix(rest, []byte(","))
	}
	if after, ok := bytes.CutPrefix(rest, []byte(`"result":`)); ok && more {
		if f.Result, rest, ok = cutFlat(after); !ok {
			return f, false
		}
		more = false
	}
	return f, !more && string(rest) == "}"
}

// method is the name of a method, without making the few that are frequent
// anew.
func method(name []byte) string {
	switch string(name) {
	case MethodWrite:
		return MethodWrite
	case MethodAck:
		return MethodAck
	case EventOutput:
		return EventOutput
	}
	return string(name)
}

// cutNumber cuts off a positive number as we spell it.
func cutNumber(b []byte) (n int64, rest []byte, ok bool) {
	const most = 18 // digits: they fit in any case
	i := 0
	for i < len(b) && i < most && b[i] >= '0' && b[i] <= '9' {
		n = 10*n + int64(b[i]-'0')
		i++
	}
	return n, b[i:], i > 0 && b[0] != '0' && (i == len(b) || b[i] < '0' || b[i] > '9')
}

// cutFlat cuts off an object that has no other within.
func cutFlat(b []byte) (object json.RawMessage, rest []byte, ok bool) {
	end := bytes.IndexByte(b, '}') + 1
	if end == 0 || b[0] != '{' || !jsonrpc.Valid(b[:end]) {
		return nil, b, false
	}
	return b[:end:end], b[end:], true
}

// EncodeWrite is [Encode] of [WriteParams].
func EncodeWrite(id int64) json.RawMessage {
	b := make([]byte, 0, 32)
	return append(strconv.AppendInt(append(b, `{"writeId":`...), id, 10), '}')
}

// ParseWrite reads [WriteParams].
func ParseWrite(params json.RawMessage) (p WriteParams, err error) {
	if rest, ok := bytes.CutPrefix(params, []byte(`{"writeId":`)); ok {
		if id, rest, ok := cutNumber(rest); ok && string(rest) == "}" {
			return WriteParams{id}, nil
		}
	}
	if len(params) > 0 {
		err = json.Unmarshal(params, &p)
	}
	return p, err
}

// EncodeOutput is [Encode] of [OutputParams].
func EncodeOutput(p OutputParams) json.RawMessage {
	if p.First != 0 || p.Dropped != 0 || p.Stream != Stdout {
		return Encode(p)
	}
	b := make([]byte, 0, 48)
	b = strconv.AppendInt(append(b, `{"seq":`...), p.Seq, 10)
	return append(b, stdoutEnd...)
}

const stdoutEnd = `,"stream":"` + Stdout + `"}`

// ParseOutput reads [OutputParams] of a piece of standard output; false if that
// is not what they are, or they say more.
func ParseOutput(params json.RawMessage) (p OutputParams, ok bool) {
	rest, ok := bytes.CutPrefix(params, []byte(`{"seq":`))
	if !ok {
		return p, false
	}
	seq, rest, ok := cutNumber(rest)
	if !ok || string(rest) != stdoutEnd {
		return p, false
	}
	return OutputParams{Seq: seq, Stream: Stdout}, true
}

// Accepted is [Encode] of the result of a write that was made.
var Accepted = Encode(WriteResult{Status: WriteAccepted})
