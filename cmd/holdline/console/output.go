// Package console prints what commands have found: text, tables, JSON, a line of
// progress, and the ends of log files. It keeps words of servers, clients and models
// from controlling the terminal.
package console

import (
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"holdline/cmd/holdline/screen"
)

// An Output is the standard output or error of a command. All commands print through one,
// since most of what they print has words of servers, clients and models in it.
//
// On a terminal it replaces each character that would move the cursor, set the title, or
// reorder or hide the text around it; see [Printable]. Elsewhere it writes everything
// unchanged. It keeps the first error of a write, so that callers need not check each line. It
// is safe for concurrent use.
type Output struct {
	w io.Writer

	mu       sync.Mutex // guards the fields below, and is held while w is written to
	err      error
	looked   bool // terminal is known
	terminal bool
	color    bool // text may have styles
	dumb     bool // it has no control sequences but those of styles
	columns  int  // that the user wants lines to have; 0 for those of the terminal
	filter   screen.Filter
}

// NewOutput returns a writer to w that keeps the first error of a write.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

// Configure makes the output look as the user wants: mode is the flag --color, see
// [WantsColor], and $COLUMNS goes before the width of the terminal. Output that goes elsewhere
// has lines of any length.
func (o *Output) Configure(mode string, getenv func(string) string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var err error
	o.color, err = WantsColor(mode, getenv, o.isTerminal())
	o.dumb = getenv("TERM") == "dumb"
	if n, bad := strconv.Atoi(getenv("COLUMNS")); bad == nil && n > 0 && o.isTerminal() {
		o.columns = max(n, minColumns)
	}
	return err
}

// Widths in columns.
const (
	minColumns   = 20 // below which nothing can be laid out
	usualColumns = 80 // of what must be laid out although the width is not known
)

// isTerminal reports whether the output is a terminal. The caller must hold o.mu.
func (o *Output) isTerminal() bool {
	if !o.looked {
		o.looked, o.terminal = true, IsTerminal(o.w)
	}
	return o.terminal
}

// layout returns how many columns a line of w has, or 0 if it may have any number, and whether
// text has styles. It asks a terminal each time, whose window may get another size.
func layout(w io.Writer) (columns int, color bool) {
	o, ok := w.(*Output)
	if !ok {
		return 0, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !o.isTerminal():
		return 0, o.color
	case o.columns > 0:
		return o.columns, o.color
	}
	size, err := unix.IoctlGetWinsize(int(o.w.(*os.File).Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 { // a serial line does not know its width
		return 0, o.color
	}
	return max(int(size.Col), minColumns), o.color
}

// Columns returns how many columns a line of w has, or 0 if lines may have any length.
func Columns(w io.Writer) int {
	columns, _ := layout(w)
	return columns
}

// Failure returns the first error of a write.
func (o *Output) Failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Write writes p, made harmless if w is a terminal. It always reports all of p as written, or
// none of it.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := p
	if o.isTerminal() {
		text = o.filter.Legible(p)
	}
	if err := o.writeUnlessFailed(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// writeUnlessFailed writes p unless an earlier write has failed. The caller must hold o.mu.
func (o *Output) writeUnlessFailed(p []byte) error {
	if o.err == nil && len(p) > 0 {
		_, o.err = o.w.Write(p)
	}
	return o.err
}

// WriteControl writes a control sequence to w. An [Output] does not alter it, and leaves it out
// unless it is a terminal that has such sequences.
func WriteControl(w io.Writer, command string) {
	if o, ok := w.(*Output); !ok || o.takesControl() {
		writeOwn(w, command)
	}
}

// takesControl reports whether the output is a terminal that has control sequences.
func (o *Output) takesControl() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.isTerminal() && !o.dumb
}

// writeOwn writes text that is harmless, or has only control sequences of this program. An
// [Output] does not alter it.
func writeOwn(w io.Writer, text string) {
	o, ok := w.(*Output)
	if !ok {
		_, _ = io.WriteString(w, text)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.writeUnlessFailed([]byte(text)) // o keeps the error
}

// Printable returns what a terminal may show for r: see [screen.Printable].
func Printable(r rune) rune { return screen.Printable(r) }

// Most characters of a cell of a table. All cells of a column are padded to its
// longest one, but for the last column.
const (
	maxCell     = 128
	maxLastCell = 1024
)

// bound returns a text as a cell of a table shows it: on one line, with at most that many
// characters, and "-" for an empty text.
func bound(text string, most int) string {
	if text == "" {
		return "-"
	}
	if len(text) > most { // a text has no more characters than bytes
		if r := []rune(text); len(r) > most {
			text = string(r[:most-1]) + "…"
		}
	}
	return oneLine(text)
}
