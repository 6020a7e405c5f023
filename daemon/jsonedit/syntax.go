package jsonedit

import (
	"errors"
	"fmt"
	"strings"
)

// Error is a mistake in the file. Line and Column count from 1, columns in
// characters; Line is 0 if the place is not known.
type Error struct {
	File         string
	Line, Column int
	Message      string
}

// Error says where the mistake is, as compilers do.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// SyntaxError returns the parser's error as an [*Error], with the place that stands only
// in its text.
func SyntaxError(name string, err error) error {
	e := &Error{File: name, Message: strings.TrimPrefix(err.Error(), "hujson: ")}
	if n, _ := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &e.Line, &e.Column); n == 2 {
		if inner := errors.Unwrap(err); inner != nil {
			e.Message = inner.Error()
		}
	}
	return e
}

// TooDeep returns the offset at which values nest deeper than limit, or -1. The parser
// recurses, so such a text must not be parsed. Brackets in strings and comments do not count.
func TooDeep(data []byte, limit int) int {
	depth := 0
	for i := 0; i < len(data); i++ {
		rest := string(data[i:min(i+2, len(data))])
		switch {
		case rest == "//":
			for i < len(data) && data[i] != '\n' {
				i++
			}
		case rest == "/*":
			end := strings.Index(string(data[i+2:]), "*/")
			if end < 0 {
				return -1
			}
			i += end + 3
		case data[i] == '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case data[i] == '{', data[i] == '[':
			if depth++; depth > limit {
				return i
			}
		case data[i] == '}', data[i] == ']':
			depth--
		}
	}
	return -1
}
