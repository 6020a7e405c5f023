package console

import (
	"fmt"
	"io"
	"strings"

	"holdline/cmd/holdline/screen"
)

// Text prints a text of others, with a line end. On a terminal its lines are wrapped between
// words, below where they begin; an item of a list below its first word. Elsewhere it is printed
// as it is.
func Text(w io.Writer, text string) {
	columns := Columns(w)
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintln(w, wrap(line, columns, hangOf(line)))
	}
}

// hangOf returns how far to indent what follows the first line of a wrapped line of text.
func hangOf(line string) int {
	rest := strings.TrimLeft(line, " ")
	hang := len(line) - len(rest)
	if strings.HasPrefix(rest, "- ") || strings.HasPrefix(rest, "* ") {
		hang += len("- ")
	}
	return hang
}

// Stream prints a text of others that comes in pieces, made harmless. It looks like that of
// [Text], and only whole lines are printed: on a terminal as soon as one is full. One goroutine
// at a time may use it.
type Stream struct {
	w      io.Writer
	filter screen.Filter
	line   string // the beginning of a line that is not printed yet
	goesOn bool   // line goes on below others, by hang
	hang   int
}

// NewStream returns a stream that prints to w.
func NewStream(w io.Writer) *Stream { return &Stream{w: w} }

// Add adds a piece of the text.
func (s *Stream) Add(piece string) {
	piece = strings.NewReplacer("\r\n", "\n", "\t", "    ").Replace(piece)
	for part := range strings.Lines(s.line + string(s.filter.Legible([]byte(piece)))) {
		whole, ended := strings.CutSuffix(part, "\n")
		s.line = whole
		if !s.goesOn {
			s.hang = hangOf(whole)
		}
		rows := strings.Split(wrap(whole, Columns(s.w), s.hang), "\n")
		if ended {
			if s.goesOn {
				rows[len(rows)-1] = strings.TrimRight(rows[len(rows)-1], " ") // as wrap does
			}
			fmt.Fprintln(s.w, strings.Join(rows, "\n"))
			s.line, s.goesOn = "", false
		} else if n := len(rows) - 1; n > 0 { // the last row may still get longer
			fmt.Fprintln(s.w, strings.Join(rows[:n], "\n"))
			spaces := whole[len(strings.TrimRight(whole, " ")):] // that wrap leaves out, and a word may follow
			s.line, s.goesOn = rows[n]+spaces, true
		}
	}
}

// End prints the rest of a line without a line end, if there is one, so that something else can
// be printed below.
func (s *Stream) End() {
	if s.line != "" {
		s.Add("\n")
	}
}
