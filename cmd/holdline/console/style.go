package console

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"holdline/cmd/holdline/cmdenv"
)

// A Style is how a text looks on a terminal with colour. Elsewhere it has no effect, so a style
// never says anything that the words do not say.
type Style string

// The styles, as parameters of the control sequence SGR.
const (
	Plain Style = ""
	Bold  Style = "1"
	Dim   Style = "2"
	Bad   Style = "31" // red
	Good  Style = "32" // green
	Odd   Style = "33" // yellow
)

// Paint returns a text in this style, for [Line] and [Table.Row]. The text is that of
// [fmt.Sprint].
func (s Style) Paint(v any) Painted { return Painted{s, fmt.Sprint(v)} }

// Painted is a text with a style.
type Painted struct {
	Style Style
	Text  string
}

// String returns the text alone.
func (p Painted) String() string { return p.Text }

// A rendered text is harmless, and printed with the control sequences of its style.
type rendered Painted

// Format writes the text with its control sequences. A width counts columns of the terminal.
func (p rendered) Format(f fmt.State, _ rune) {
	text := p.Text
	if p.Style != Plain && text != "" {
		text = "\x1b[" + string(p.Style) + "m" + text + "\x1b[0m"
	}
	width, _ := f.Width()
	padding := strings.Repeat(" ", max(0, width-Width(text)))
	if f.Flag('-') {
		text += padding
	} else {
		text = padding + text
	}
	_, _ = io.WriteString(f, text) // f keeps it in memory
}

// Line prints a line of text. On a terminal it wraps the line between words, and indents what
// follows the first line by hang columns. The format is the program's own. Arguments may be
// words of others: they are made harmless, and stay on the line.
func Line(w io.Writer, hang int, format string, args ...any) {
	columns, color := layout(w)
	shown := make([]any, len(args))
	for i, arg := range args {
		switch reflect.ValueOf(arg).Kind() {
		case reflect.String, reflect.Struct, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
			shown[i] = render(arg, color)
		default: // a number, or a duration, which is one
			shown[i] = arg
		}
	}
	writeOwn(w, wrap(fmt.Sprintf(format, shown...), columns, hang)+"\n")
}

// Lines prints each line of a text by [Line]. What follows the first line of a wrapped one is
// indented a little.
func Lines(w io.Writer, text string) {
	for line := range strings.Lines(text) {
		Line(w, 2, "%s", strings.TrimSuffix(line, "\n"))
	}
}

// render returns the text of v on one line and harmless, with the style that v has if the
// output shows colour.
func render(v any, color bool) rendered {
	p := rendered{Text: oneLine(fmt.Sprint(v))}
	if own, ok := v.(Painted); ok && color {
		p.Style = own.Style
	}
	return p
}

// oneLine returns a text without line ends and without characters that control a terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return Printable(r)
	}, text)
}

// ColorModes are the values of the flag --color.
var ColorModes = []string{"auto", "always", "never"}

// WantsColor reports whether to use colour, by the value of the flag --color. With "auto" that
// is on a terminal only, unless the environment asks for none.
func WantsColor(mode string, getenv func(string) string, terminal bool) (bool, error) {
	switch mode {
	case "auto", "":
		return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb", nil
	case "always", "never":
		return mode == "always", nil
	}
	return false, fmt.Errorf("%w: --color is one of %s, not %q", cmdenv.ErrUsage, strings.Join(ColorModes, ", "), mode)
}
