// Package ttytest provides a terminal for tests.
package ttytest

import (
	"strings"
	"testing"
	"unicode"
)

// Columns is the width of the terminal that tests compare with.
const Columns = 80

// Hostile is text that would control a terminal or mislead its reader: control characters,
// marks of direction, characters without width.
const Hostile = "\x1b[2J\x1b]0;title\x07\b\u009b31m\u0085\u202e\u2066\u200b\u200e\u2060\ufeff\u00ad\u2028\U000e0041"

// WantHarmless fails the test if text has characters other than visible ones,
// spaces and line ends. Progress on one line may clear that line.
func WantHarmless(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range strings.ReplaceAll(text, "\r\x1b[K", "") {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			t.Errorf("%s sends %U to the terminal: %q", what, r, text)
			return
		}
	}
}
