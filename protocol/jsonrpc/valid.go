package jsonrpc

import (
	"bytes"
	"encoding/binary"
)

// maxDepth is how deep values may nest, as for [json.Valid].
const maxDepth = 10_000

// extent is where a string is, with its quotes; nowhere if it is zero.
type extent struct{ from, to int }

// check reports whether b is one JSON value (RFC 8259) that nests no deeper than maxDepth.
// It returns the same as [json.Valid] in a fraction of the time: proxy and daemon check each
// line. Like that one it does not check for valid UTF-8. deep is true if b is refused only
// since it nests too deep: what follows was not checked. longest is the longest string in b.
//
// It uses no recursion: a deep value would grow the stack. open holds the bracket of each
// level.
func check(b []byte) (valid, deep bool, longest extent) {
	var room [64]byte
	open := room[:0] // the brackets that are not closed
	i := skipSpace(b, 0)
value:
	for {
		if i >= len(b) {
			return false, false, longest
		}
		switch c := b[i]; {
		case c == '{' || c == '[':
			if len(open) == maxDepth {
				return false, true, longest
			}
			i = skipSpace(b, i+1)
			if i < len(b) && b[i] == c+2 { // nothing in it
				i++
				break
			}
			open = append(open, c)
			if c == '[' {
				continue value
			}
			if i = endKey(b, i); i < 0 {
				return false, false, longest
			}
			continue value
		case c == '"':
			from := i
			if i = endString(b, i); i-from > longest.to-longest.from {
				longest = extent{from, i}
			}
		case c == '-' || c >= '0' && c <= '9':
			i = endNumber(b, i)
		case c == 't':
			i = endWord(b, i, "true")
		case c == 'f':
			i = endWord(b, i, "false")
		case c == 'n':
			i = endWord(b, i, "null")
		default:
			return false, false, longest
		}
		if i < 0 {
			return false, false, longest
		}
		for { // after a value: commas, and the ends of objects and arrays
			i = skipSpace(b, i)
			if len(open) == 0 {
				return i == len(b), false, longest
			}
			if i == len(b) {
				return false, false, longest
			}
			in := open[len(open)-1]
			if b[i] == in+2 { // the bracket's other half, in ASCII
				open = open[:len(open)-1]
				i++
				continue
			}
			if b[i] != ',' {
				return false, false, longest
			}
			i = skipSpace(b, i+1)
			if in == '{' {
				if i = endKey(b, i); i < 0 {
					return false, false, longest
				}
			}
			continue value
		}
	}
}

// DeeperThan reports whether a value nests deeper than most levels. It must be
// valid JSON; a number or a string has no level.
func DeeperThan(value []byte, most int) bool {
	depth := 0
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			i = skipString(value, i, extent{}) - 1
		case '{', '[':
			if depth++; depth > most {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// endKey returns the index of the value whose key begins at i, behind colon and white space;
// -1 if there is no key and colon.
func endKey(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	if i = endString(b, i); i < 0 {
		return -1
	}
	if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
		return -1
	}
	return skipSpace(b, i+1)
}

// endString returns the index behind the string that begins at i; -1 if it is not valid. Quotes
// and backslashes are searched by [bytes.IndexByte], which sees many bytes at a time: long
// strings are most of a long line.
func endString(b []byte, i int) int {
	for i++; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		for quote := i + n; i <= quote; { // an escape may end with the quote
			slash := bytes.IndexByte(b[i:quote], '\\')
			if slash < 0 {
				if hasControl(b[i:quote]) {
					return -1
				}
				return quote + 1
			}
			if hasControl(b[i : i+slash]) {
				return -1
			}
			if i = endEscape(b, i+slash) + 1; i == 0 {
				return -1
			}
		}
	}
	return -1
}

// hasControl reports whether b has a control character (below the space). It looks at 32 bytes
// at a time, and then at single ones.
func hasControl(b []byte) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	below := func(x uint64) uint64 { return (x - each*' ') &^ x } // has a high bit set if a character is
	for ; len(b) >= 32; b = b[32:] {
		x, y := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		z, w := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
		if (below(x)|below(y)|below(z)|below(w))&high != 0 {
			return true
		}
	}
	for _, c := range b {
		if c < ' ' {
			return true
		}
	}
	return false
}

// endEscape returns the index of the last byte of the escape that begins at i; -1 if it is
// not valid.
func endEscape(b []byte, i int) int {
	if i+1 >= len(b) {
		return -1
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		if i+5 >= len(b) {
			return -1
		}
		for _, c := range b[i+2 : i+6] {
			digit := c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
			if !digit {
				return -1
			}
		}
		return i + 5
	}
	return -1
}

// endNumber returns the index behind the number that begins at i; -1 if it is not valid.
func endNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = endDigits(b, i); i < 0 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i = endDigits(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return endDigits(b, i)
	}
	return i
}

// endDigits returns the index behind the digits at i; -1 if there is no digit.
func endDigits(b []byte, i int) int {
	begin := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	if i == begin {
		return -1
	}
	return i
}

// endWord returns the index behind word, which may begin at i; -1 if it does not.
func endWord(b []byte, i int, word string) int {
	if !bytes.HasPrefix(b[i:], []byte(word)) {
		return -1
	}
	return i + len(word)
}
