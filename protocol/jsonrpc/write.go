package jsonrpc

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// Error codes of JSON-RPC 2.0 and of MCP.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeUnknownMethod  = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// Marshal is [json.Marshal] without the escapes of <, > and & that are meant for HTML:
// texts of other programs stay as they were, and models read no needless bytes.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Encode returns v as JSON. It is for types of this program's own and for maps of them, which
// always encode. It returns null for anything that does not.
func Encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}

// AppendResult appends the answer to id, without a newline.
func AppendResult(dst []byte, id ID, result json.RawMessage) []byte {
	return append(append(beginAnswer(dst, id, "result"), result...), '}')
}

// AppendError appends an error answer, without a newline. A nil id is written
// as null; nil data is left out.
func AppendError(dst []byte, id ID, code int, message string, data json.RawMessage) []byte {
	dst = append(beginAnswer(dst, id, "error"), `{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, message)
	if data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, data...)
	}
	return append(dst, "}}"...)
}

// AppendFailure appends an error answer, without a newline. err is the error object as it
// came.
func AppendFailure(dst []byte, id ID, err json.RawMessage) []byte {
	return append(append(beginAnswer(dst, id, "error"), err...), '}')
}

// AppendRequest appends a request, without a newline; with a nil id it is a
// notification. Nil params are left out.
func AppendRequest(dst []byte, id ID, method string, params json.RawMessage) []byte {
	const members = len(`{"jsonrpc":"2.0","id":,"method":"","params":}` + "\n")
	dst = append(slices.Grow(dst, members+len(id)+len(method)+len(params)), `{"jsonrpc":"2.0"`...)
	if id != nil {
		dst = append(dst, `,"id":`...)
		dst = append(dst, id...)
	}
	dst = append(dst, `,"method":`...)
	dst = AppendString(dst, method)
	if params != nil {
		dst = append(dst, `,"params":`...)
		dst = append(dst, params...)
	}
	return append(dst, '}')
}

// beginAnswer appends an answer up to its member result or error. A nil id is
// written as null.
func beginAnswer(dst []byte, id ID, member string) []byte {
	if id == nil {
		id = ID("null")
	}
	dst = append(append(dst, `{"jsonrpc":"2.0","id":`...), id...)
	return append(append(append(dst, `,"`...), member...), `":`...)
}

// AppendString appends s as a JSON string, as package json spells it.
func AppendString(dst []byte, s string) []byte {
	if Plain(s) {
		return append(append(append(dst, '"'), s...), '"')
	}
	b, err := json.Marshal(s)
	if err != nil { // no string fails to encode
		b = []byte(`""`)
	}
	return append(dst, b...)
}

// Plain reports whether the JSON spelling of s is s itself, within quotes. It holds for
// writing, as package json does it, and for reading. It is false for all non-ASCII text.
func Plain[T string | []byte](s T) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
