package console

import (
	"slices"
	"strings"
	"unicode"
)

// wide has the characters that take two columns of a terminal: those that Unicode's
// EastAsianWidth.txt calls W or F, and emoji. Neighbouring blocks are joined where the gap
// between them has no characters that people print.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1},
		{0x231a, 0x231b, 1},
		{0x2329, 0x232a, 1},
		{0x23e9, 0x23ec, 1},
		{0x23f0, 0x23f3, 3},
		{0x25fd, 0x25fe, 1},
		{0x2614, 0x2615, 1},
		{0x2648, 0x2653, 1},
		{0x267f, 0x2693, 20},
		{0x26a1, 0x26a1, 1},
		{0x26aa, 0x26ab, 1},
		{0x26bd, 0x26be, 1},
		{0x26c4, 0x26c5, 1},
		{0x26ce, 0x26d4, 6},
		{0x26ea, 0x26ea, 1},
		{0x26f2, 0x26f3, 1},
		{0x26f5, 0x26fa, 5},
		{0x26fd, 0x2705, 8},
		{0x270a, 0x270b, 1},
		{0x2728, 0x274c, 36},
		{0x274e, 0x274e, 1},
		{0x2753, 0x2755, 1},
		{0x2757, 0x2757, 1},
		{0x2795, 0x2797, 1},
		{0x27b0, 0x27bf, 15},
		{0x2b1b, 0x2b1c, 1},
		{0x2b50, 0x2b55, 5},
		{0x2e80, 0x303e, 1},
		{0x3041, 0xa4cf, 1},
		{0xa960, 0xa97f, 1},
		{0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1},
		{0xfe10, 0xfe19, 1},
		{0xfe30, 0xfe6f, 1},
		{0xff01, 0xff60, 1},
		{0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{
		{0x16fe0, 0x18cff, 1},
		{0x1aff0, 0x1b2ff, 1},
		{0x1f004, 0x1f0cf, 203},
		{0x1f18e, 0x1f18e, 1},
		{0x1f191, 0x1f19a, 1},
		{0x1f200, 0x1f320, 1},
		{0x1f32d, 0x1f335, 1},
		{0x1f337, 0x1f37c, 1},
		{0x1f37e, 0x1f393, 1},
		{0x1f3a0, 0x1f3ca, 1},
		{0x1f3cf, 0x1f3d3, 1},
		{0x1f3e0, 0x1f3f0, 1},
		{0x1f3f4, 0x1f3f4, 1},
		{0x1f3f8, 0x1f43e, 1},
		{0x1f440, 0x1f440, 1},
		{0x1f442, 0x1f4fc, 1},
		{0x1f4ff, 0x1f53d, 1},
		{0x1f54b, 0x1f54e, 1},
		{0x1f550, 0x1f567, 1},
		{0x1f57a, 0x1f57a, 1},
		{0x1f595, 0x1f596, 1},
		{0x1f5a4, 0x1f5a4, 1},
		{0x1f5fb, 0x1f64f, 1},
		{0x1f680, 0x1f6c5, 1},
		{0x1f6cc, 0x1f6cc, 1},
		{0x1f6d0, 0x1f6d2, 1},
		{0x1f6d5, 0x1f6df, 1},
		{0x1f6eb, 0x1f6ec, 1},
		{0x1f6f4, 0x1f6fc, 1},
		{0x1f7e0, 0x1f7f0, 1},
		{0x1f90c, 0x1f93a, 1},
		{0x1f93c, 0x1f945, 1},
		{0x1f947, 0x1f9ff, 1},
		{0x1fa70, 0x1faff, 1},
		{0x20000, 0x3fffd, 1},
	},
}

// Width returns how many columns of a terminal a printable text takes. Control sequences of a
// [Style] take none.
func Width(text string) int {
	n, inSequence := 0, false
	for _, r := range text {
		switch {
		case r == '\x1b':
			inSequence = true
		case inSequence:
			inSequence = r != 'm'
		default:
			n += runeWidth(r)
		}
	}
	return n
}

// runeWidth returns the columns of one printable character.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me), r >= 0x1160 && r <= 0x11ff: // joins the character before it
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// Shorten returns text in at most that many columns: a longer one loses its end, and … takes
// its place.
func Shorten(text string, columns int) string {
	if Width(text) <= columns {
		return text
	}
	n := 0
	for i, r := range text {
		if n += runeWidth(r); n > columns-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// shortenPath is [Shorten] for paths, which lose their beginning: the end says more.
func shortenPath(text string, columns int) string {
	over := Width(text) - columns
	if over <= 0 {
		return text
	}
	for i, r := range text {
		if over < 0 {
			return "…" + text[i:]
		}
		over -= runeWidth(r)
	}
	return "…"
}

// wrap returns text with line ends between words, so that each line has at most that many
// columns. It indents all lines but the first by hang. A longer word keeps its line to itself,
// since it may be a path that the user wants to copy; only a list of paths goes on below. With
// no columns the width is not limited.
func wrap(text string, columns, hang int) string {
	if columns <= 0 || Width(text) <= columns {
		return text
	}
	hang = min(hang, columns/2)
	var b strings.Builder
	at, begun := 0, false // the column, and whether the line has a word
	for text != "" {
		word := strings.TrimLeft(text, " ")
		spaces := len(text) - len(word)
		if end := strings.IndexByte(word, ' '); end >= 0 {
			word = word[:end]
		}
		if first := pathsWithin(word, columns-hang); first > 0 {
			word = word[:first]
		}
		text = text[spaces+len(word):]
		if word == "" {
			break
		}
		if n := spaces + Width(word); begun && (at+n > columns || spaces == 0) { // no space: a list of paths goes on
			b.WriteString("\n" + strings.Repeat(" ", hang) + word)
			at = hang + n - spaces
		} else {
			b.WriteString(strings.Repeat(" ", spaces) + word)
			at += n
		}
		begun = true
	}
	return b.String()
}

// Fold returns a page of help for a terminal with that many columns. It wraps the lines that
// are longer: rows of a list below the second column, and the lines of a paragraph together.
func Fold(page string, columns int) string {
	var out, paragraph []string
	flush := func() {
		if slices.ContainsFunc(paragraph, func(line string) bool { return Width(line) > columns }) {
			paragraph = []string{wrap(strings.Join(paragraph, " "), columns, 0)}
		}
		out, paragraph = append(out, paragraph...), nil
	}
	for line := range strings.SplitSeq(page, "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		flush()
		out = append(out, wrap(line, columns, secondColumn(line)))
	}
	flush()
	return strings.Join(out, "\n")
}

// secondColumn returns where the second column of a row begins, whose first one is indented, and
// followed by two spaces or more. A line with no second column is one that goes on at its
// indentation.
func secondColumn(line string) int {
	first := strings.TrimLeft(line, " ")
	indent := len(line) - len(first)
	if gap := strings.Index(first, "  "); gap > 0 {
		rest := strings.TrimLeft(first[gap:], " ")
		return Width(line) - Width(rest)
	}
	return indent
}

// pathsWithin returns how many bytes of a list of paths, separated by colons, are whole paths
// that fit into that many columns; 0 if word fits or is no such list.
func pathsWithin(word string, columns int) int {
	if Width(word) <= columns {
		return 0
	}
	end, at := 0, 0
	for i, r := range word {
		if at += runeWidth(r); at > columns {
			break
		}
		if r == ':' && strings.HasPrefix(word[i+1:], "/") {
			end = i + 1
		}
	}
	return end
}
