package jsonedit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Error is a mistake in the file. Line and Column count from 1, columns in
// characters; Line is 0 if the place is not known.
type Error struct {
	File         string
	Line, Column int
	Message      string
}

// Error returns the place and the message in the form that compilers use.
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
	if errors.Is(err, io.ErrUnexpectedEOF) {
		e.Message = "the file ends too early: a brace, a bracket or a quote is not closed"
	}
	return e
}

// space are the characters that are white space in JSON.
const space = " \t\r\n"

// cutComment returns what follows the comment with which text begins, and whether text
// begins with a comment that ends. The line break behind a comment is not part of it.
func cutComment(text []byte) (rest []byte, ok bool) {
	switch {
	case bytes.HasPrefix(text, []byte("//")):
		return text[len(line(text)):], true
	case bytes.HasPrefix(text, []byte("/*")):
		if _, rest, ok := bytes.Cut(text[2:], []byte("*/")); ok {
			return rest, true
		}
	}
	return text, false
}

// line returns text up to its first line break.
func line(text []byte) []byte {
	before, _, _ := bytes.Cut(text, []byte("\n"))
	return before
}

// firstLine returns how many bytes of text stand before its first line break that is not
// in a block comment.
func firstLine(text []byte) int {
	rest := text
	for len(rest) > 0 && rest[0] != '\n' {
		after, ok := cutComment(rest)
		if !ok {
			after = rest[1:]
		}
		rest = after
	}
	return len(text) - len(rest)
}

// SaysNothing reports whether data is nothing but space and comments: a file all of
// which was commented out is an empty one.
func SaysNothing(data []byte) bool {
	for ok := true; ok; {
		data, ok = cutComment(bytes.TrimLeft(data, space))
	}
	return len(data) == 0
}

// TooDeep returns the offset at which values nest deeper than limit, or -1. The parser
// recurses, so a text that nests deeper must not be parsed. Brackets in strings and comments
// do not count.
func TooDeep(data []byte, limit int) int {
	depth := 0
	for rest := data; len(rest) > 0; rest = rest[1:] {
		for after, ok := cutComment(rest); ok; after, ok = cutComment(rest) {
			rest = after
		}
		if len(rest) == 0 {
			break
		}
		switch rest[0] {
		case '"':
			rest = skipString(rest)
		case '{', '[':
			if depth++; depth > limit {
				return len(data) - len(rest)
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}

// skipString returns text, which begins with a string, from the last byte of that on.
func skipString(text []byte) []byte {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return text[i:]
		}
	}
	return text[len(text)-1:]
}

// EndLine returns text with a line break behind a comment that is its last line: the parser wants one there,
// and no editor writes one for certain.
func EndLine(text []byte) []byte {
	last := text[bytes.LastIndexByte(text, '\n')+1:]
	if !bytes.Contains(last, []byte("//")) {
		return text
	}
	return append(bytes.Clone(text), '\n')
}
