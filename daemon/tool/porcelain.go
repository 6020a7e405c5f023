package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds limit the generic porcelain: how many lines it has, and how many
// characters each value shows.
type Bounds struct {
	ConciseLines, ConciseChars int
	FullLines, FullChars       int
}

// Bounds by what a tool answers with.
var (
	BoundsOverview = Bounds{10, 144, 28, 240}
	BoundsList     = Bounds{16, 128, 32, 176}
	BoundsRead     = Bounds{18, 176, 40, 320}
	BoundsMutation = Bounds{12, 160, 24, 256}
	BoundsOps      = Bounds{8, 160, 24, 240}
)

// Bounds of a tool that names none, in full detail.
const (
	fullLines = 40
	fullChars = 512
)

// How many elements an array and how many members an object shows inside
// another value.
const (
	shownElements = 3
	shownMembers  = 4
)

// ellipsis ends a text that was cut.
const ellipsis = "..."

// limits returns the lines and characters for a detail. The zero value stands
// for an overview with more room in full detail.
func (b Bounds) limits(d Detail) (lines, chars int) {
	if b == (Bounds{}) {
		b = BoundsOverview
		b.FullLines, b.FullChars = fullLines, fullChars
	}
	if d == Full {
		return b.FullLines, b.FullChars
	}
	return b.ConciseLines, b.ConciseChars
}

// Text renders a JSON value as the generic porcelain: an object as one line
// for each key, sorted; an array as a count and its numbered elements;
// anything else as its preview. It has at most so many lines, and each value
// (and key) at most so many characters.
func (b Bounds) Text(value json.RawMessage, d Detail) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber() // 2^53+1 is shown as it was spelled
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", fmt.Errorf("rendering a value: %w", err)
	}
	lines, chars := b.limits(d)
	return porcelain(v, max(lines, 1), max(chars, len(ellipsis)+1)), nil
}

// porcelain renders a decoded JSON value; see [Bounds.Text]. Both bounds must be at
// least 1. The last line says so if lines are left out.
func porcelain(v any, lines, chars int) string {
	var out []string
	cut := false
	add := func(line string) bool {
		if len(out) == lines {
			out[lines-1] = fmt.Sprintf("... truncated to %d lines", lines)
			cut = true
			return false
		}
		out = append(out, line)
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return "empty object"
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if !add(shorten(oneLine(key), chars) + ": " + preview(v[key], chars)) {
				break
			}
		}
	case []any:
		add(fmt.Sprintf("%d item(s)", len(v)))
		for i, e := range v {
			if cut || !add(fmt.Sprintf("[%d] %s", i+1, preview(e, chars))) {
				break
			}
		}
	default:
		return preview(v, chars)
	}
	return strings.Join(out, "\n")
}

// preview renders a value on one line of at most chars characters.
func preview(v any, chars int) string {
	var b strings.Builder
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		b.WriteByte('"')
		b.WriteString(oneLine(v))
		b.WriteByte('"')
	case []any:
		b.WriteByte('[')
		for i, e := range v[:min(len(v), shownElements)] {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(preview(e, chars))
		}
		if more := len(v) - shownElements; more > 0 {
			fmt.Fprintf(&b, ", +%d more", more)
		}
		b.WriteByte(']')
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		b.WriteByte('{')
		for i, key := range keys[:min(len(keys), shownMembers)] {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(shorten(oneLine(key), chars))
			b.WriteByte('=')
			b.WriteString(preview(v[key], chars))
		}
		if more := len(keys) - shownMembers; more > 0 {
			fmt.Fprintf(&b, ", +%d more", more)
		}
		b.WriteByte('}')
	default: // a json.Number or a bool
		fmt.Fprint(&b, v)
	}
	return shorten(b.String(), chars)
}

// oneLine makes every run of white space and control characters one space,
// so that no value can break out of its line.
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

// shorten cuts s to limit characters, the last three being dots if it did.
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
