package tool

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ellipsis ends a text that was cut.
const ellipsis = "..."

// oneLine returns s with each run of white space and control characters replaced by one
// space. A value of a server can then not break out of its line in an answer.
func oneLine(s string) string {
	plain := true
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
}

// shorten returns s, cut to limit characters. A text that was cut ends with [ellipsis].
func shorten(s string, limit int) string {
	if len(s) <= limit || utf8.RuneCountInString(s) <= limit {
		return s
	}
	keep := limit - len(ellipsis)
	for i := range s {
		if keep == 0 {
			return s[:i] + ellipsis
		}
		keep--
	}
	return s
}
