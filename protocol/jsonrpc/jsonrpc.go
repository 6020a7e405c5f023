// Package jsonrpc reads and writes JSON-RPC 2.0 envelopes whose params,
// results and errors stay raw bytes, and frames them as lines.
//
// It is strict where a loose reader would let two programs disagree about
// what a message says: keys are compared by exact case, keys of the envelope
// that stand twice or in another case are refused (see [Keys]), and so are
// batches (removed from MCP in 2025-06-18) and invalid UTF-8. It starts no goroutine and holds no state but a reader's
// buffer.
package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// ErrParse is returned by [Parse] for a line that is not JSON.
var ErrParse = errors.New("not valid JSON")

// ErrInvalid is returned by [Parse] for JSON that is no JSON-RPC 2.0 message.
var ErrInvalid = errors.New("not a JSON-RPC 2.0 message")

// deepError is the [ErrParse] of a line that nests too deep. It may be valid JSON.
type deepError struct{}

// Error names the limit.
func (deepError) Error() string {
	return fmt.Sprintf("JSON that nests deeper than %d levels is not read", maxDepth)
}

// Unwrap returns [ErrParse].
func (deepError) Unwrap() error { return ErrParse }

// Kind is the kind of a message.
type Kind int

// The kinds.
const (
	Request Kind = iota + 1
	Notification
	Response
)

// Message is an envelope. Its slices alias the line it was parsed from: a caller that keeps
// the message must own the line.
type Message struct {
	Kind   Kind
	ID     ID              // nil in a notification, and in a response to an unreadable request
	Method string          // "" in a response
	Params json.RawMessage // nil if absent
	Result json.RawMessage // nil if absent
	Error  json.RawMessage // nil if absent
}

// Offset returns where in the line a part of it begins, which must be one of the message that
// was parsed from the line.
func Offset(line, part []byte) int {
	at := func(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) } //nolint:gosec // only compared
	return int(at(part) - at(line))
}

// Clone returns a copy of m that shares no memory with it.
func (m Message) Clone() Message {
	m.ID, m.Params = bytes.Clone(m.ID), bytes.Clone(m.Params)
	m.Result, m.Error = bytes.Clone(m.Result), bytes.Clone(m.Error)
	return m
}

// ID is a request id as it was spelled on the wire.
type ID []byte

// MaxID is the most bytes of an id as it is spelled. It stands in the record of
// each call, and the records of all sessions share one file of bounded size.
const MaxID = 1 << 10

// Key returns a form of the id that is equal for equal ids: strings are unescaped
// and prefixed, numbers keep their spelling.
func (id ID) Key() string {
	if len(id) > 0 && id[0] == '"' {
		var s string
		if json.Unmarshal(id, &s) == nil {
			return "s" + s
		}
	}
	return "n" + string(id)
}

// IntID returns the id of number n.
func IntID(n int64) ID { return strconv.AppendInt(nil, n, 10) }

// Parse reads one line, without its newline. The error wraps [ErrParse] if the line is not
// JSON, and [ErrInvalid] if it is no message. Then the message still has the id and the kind as far
// as [Glimpse] sees them: the error can be sent as the answer to a request.
//
// It checks the envelope only. Params, result and error may be any JSON, except that params
// must be an object or an array. Some programs write all members that a message can have: one that is
// null counts as absent, except for the result of an answer that has no error. A message with a method
// whose id is null is a notification.
func Parse(line []byte) (Message, error) {
	m, err := parse(line)
	if err != nil {
		m = Message{}
		m.ID, m.Kind = Glimpse(line, nil)
	}
	return m, err
}

// parse is [Parse], whose message has no meaning after an error.
func parse(line []byte) (Message, error) {
	var m Message
	if !utf8.Valid(line) {
		return m, fmt.Errorf("%w: invalid UTF-8", ErrParse)
	}
	trimmed := bytes.TrimLeft(line, " \t\r\n")
	valid, deep, longest := check(trimmed)
	switch {
	case deep:
		return m, deepError{}
	case !valid:
		return m, ErrParse
	}
	switch trimmed[0] {
	case '{':
	case '[':
		return m, fmt.Errorf("%w: batches are not part of MCP, send one message a line", ErrInvalid)
	default:
		return m, fmt.Errorf("%w: an object is wanted", ErrInvalid)
	}
	var version, id, method []byte
	err := members(trimmed, longest, &envelope, func(_ []byte, key string, value []byte) error {
		switch key {
		case "jsonrpc":
			version = value
		case "id":
			id = value
		case "method":
			method = value
		case "params":
			m.Params = value
		case "result":
			m.Result = value
		case "error":
			m.Error = value
		}
		return nil
	})
	if err != nil {
		return m, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if id = present(id); id != nil {
		switch {
		case !isID(id):
			return m, fmt.Errorf("%w: id is neither a string nor a number", ErrInvalid)
		case len(id) > MaxID:
			return m, fmt.Errorf("%w: id has %d bytes, the most is %d", ErrInvalid, len(id), MaxID)
		}
		m.ID = id
	}
	method, m.Params, m.Error = present(method), present(m.Params), present(m.Error)
	if method != nil || m.Error != nil {
		m.Result = present(m.Result)
	}
	if string(version) != `"2.0"` {
		return m, fmt.Errorf(`%w: "jsonrpc":"2.0" is missing`, ErrInvalid)
	}
	switch {
	case method != nil:
		if m.Method, err = keyOf(method); method[0] != '"' || err != nil {
			return m, fmt.Errorf("%w: method is not a string", ErrInvalid)
		}
		if m.Result != nil || m.Error != nil {
			return m, fmt.Errorf("%w: both a request and a response", ErrInvalid)
		}
		if m.Params != nil && m.Params[0] != '{' && m.Params[0] != '[' {
			return m, fmt.Errorf("%w: params is neither an object nor an array", ErrInvalid)
		}
		m.Kind = Request
		if id == nil {
			m.Kind = Notification
		}
	case (m.Result != nil) != (m.Error != nil):
		m.Kind = Response
	default:
		return m, fmt.Errorf("%w: no method, and not one of result and error", ErrInvalid)
	}
	return m, nil
}

// present returns value, or nil if it is null.
func present(value []byte) []byte {
	if string(value) == "null" {
		return nil
	}
	return value
}

// ErrDuplicate is returned by [Fields] for an object that has a key twice. Two readers could
// take different values for it.
var ErrDuplicate = errors.New("duplicate key")

// Fields calls f for each member of the JSON object obj, in order, with the
// key unescaped and the value as it is spelled. obj must be valid JSON (see
// [json.Valid]); anything but an object is an error. It stops at the first error
// of f and returns that. Values alias obj. A duplicate key is found when its second
// member is read, so f may have been called for the first one.
func Fields(obj []byte, f func(key string, value []byte) error) error {
	return members(obj, extent{}, nil, func(_ []byte, key string, value []byte) error { return f(key, value) })
}

// members is [Fields], or [Keys.Fields] if keys is not nil; f also gets the key as it is spelled,
// with its quotes. A string at known is not scanned.
func members(obj []byte, known extent, keys *Keys, f func(spelled []byte, key string, value []byte) error) error {
	i := skipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return errors.New("not an object")
	}
	var room [fewKeys]string // most objects have few keys: no map for them
	few := room[:0]
	var many map[string]struct{}
	i = skipSpace(obj, i+1)
	for i < len(obj) && obj[i] != '}' {
		if obj[i] == ',' {
			i = skipSpace(obj, i+1)
		}
		end := skipValue(obj, i, known)
		spelled := obj[i:end]
		key, err := keyOf(spelled)
		if err != nil {
			return err
		}
		mark := key
		if keys != nil {
			if mark, err = keys.mark(key); err != nil {
				return err
			}
		}
		if mark != passed {
			if _, dup := many[mark]; dup || slices.Contains(few, mark) {
				return fmt.Errorf("%w %q", ErrDuplicate, key)
			}
			if len(few) < cap(few) {
				few = append(few, mark)
			} else {
				if many == nil {
					many = map[string]struct{}{}
				}
				many[mark] = struct{}{}
			}
		}
		i = skipSpace(obj, end)
		if i >= len(obj) || obj[i] != ':' {
			return errors.New("not an object")
		}
		i = skipSpace(obj, i+1)
		end = skipValue(obj, i, known)
		if err := f(spelled, key, obj[i:end:end]); err != nil {
			return err
		}
		i = skipSpace(obj, end)
	}
	return nil
}

// Rewrite returns a copy of the object obj, with each value replaced by the result of f. If f
// returns nil, the member is left out. Order and spelling of all else stay, except for the
// white space between members. obj must be valid JSON; anything but an object without
// duplicate keys is an error.
func Rewrite(obj []byte, f func(key string, value []byte) []byte) (json.RawMessage, error) {
	out := append(make([]byte, 0, len(obj)+16), '{')
	err := members(obj, extent{}, nil, func(spelled []byte, key string, value []byte) error {
		v := f(key, value)
		if v == nil {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, spelled...), ':'), v...)
		return nil
	})
	return append(out, '}'), err
}

// Replace returns a copy of the object obj in which the member key has another value, if it
// is there. It is left out if with is nil. As for [Rewrite], obj must be valid JSON.
func Replace(obj []byte, key string, with []byte) (json.RawMessage, error) {
	return Rewrite(obj, func(member string, value []byte) []byte {
		if member == key {
			return with
		}
		return value
	})
}

// Prepend returns a copy of the object obj with members before its own. members is JSON
// without braces, joined by commas, and not empty. Prepend does not look for duplicate keys:
// the caller must know that obj has none of these members.
func Prepend(obj json.RawMessage, members string) json.RawMessage {
	i := skipSpace(obj, 0) + 1
	out := append(make([]byte, 0, len(obj)+len(members)+1), '{')
	out = append(out, members...)
	if j := skipSpace(obj, i); j < len(obj) && obj[j] != '}' {
		out = append(out, ',')
	}
	return append(out, obj[i:]...)
}

// keyOf returns the string with this spelling, of a key or of a method.
func keyOf(spelled []byte) (string, error) {
	if bytes.IndexByte(spelled, '\\') < 0 && len(spelled) >= 2 {
		return intern(spelled[1 : len(spelled)-1]), nil
	}
	var key string
	err := json.Unmarshal(spelled, &key)
	return key, err
}

// fewKeys is how many keys of an object are compared one by one. Further keys go into a map.
const fewKeys = 16

// intern returns the key as a string. It makes no copy of the keys and the method that are in
// most messages: each line would cost several small allocations.
func intern(key []byte) string {
	switch string(key) {
	case "jsonrpc":
		return "jsonrpc"
	case "id":
		return "id"
	case "method":
		return "method"
	case "params":
		return "params"
	case "result":
		return "result"
	case "error":
		return "error"
	case "name":
		return "name"
	case "arguments":
		return "arguments"
	case "_meta":
		return "_meta"
	case "tools/call":
		return "tools/call"
	case "content":
		return "content"
	case "isError":
		return "isError"
	case "structuredContent":
		return "structuredContent"
	}
	return string(key)
}

// Field returns the value of one member of the object obj, or nil if it has none
// or is no object.
func Field(obj []byte, key string) json.RawMessage {
	var v json.RawMessage
	_ = Fields(obj, func(k string, value []byte) error {
		if k == key {
			v = value
		}
		return nil
	})
	return v
}

// Elements calls f for each element of the JSON array arr, in order, as it is
// spelled. arr should be valid JSON: it returns an error for anything but an array, and
// where no element can begin, but does not find all errors. It stops at the first error
// of f and returns that.
func Elements(arr []byte, f func(value []byte) error) error {
	i := skipSpace(arr, 0)
	if i >= len(arr) || arr[i] != '[' {
		return errors.New("not an array")
	}
	i = skipSpace(arr, i+1)
	for i < len(arr) && arr[i] != ']' {
		if arr[i] == ',' {
			i = skipSpace(arr, i+1)
		}
		end := skipValue(arr, i, extent{})
		if end <= i || end > len(arr) {
			return errors.New("not a valid array")
		}
		if err := f(arr[i:end:end]); err != nil {
			return err
		}
		i = skipSpace(arr, end)
	}
	return nil
}

// skipSpace returns the index of the first byte from i on that is no white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the index behind the value that begins at i. b must be valid JSON: it
// only counts brackets and skips strings, see skipString.
func skipValue(b []byte, i int, known extent) int {
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return skipString(b, i, known)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = skipString(b, i, known)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return i
	}
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ':', ' ', '\t', '\n', '\r':
			return i
		}
		i++
	}
	return i
}

// skipString returns the index behind the string that begins at i. It does not look into one at
// known.
func skipString(b []byte, i int, known extent) int {
	if i == known.from && known.to > 0 {
		return known.to
	}
	begin := i + 1
	for i = begin; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		escapes := 0 // an odd number of them ends with one of the quote
		for i-escapes > begin && b[i-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}
