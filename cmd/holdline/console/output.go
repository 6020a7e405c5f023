// Package console prints what commands have found: text, tables, JSON, a line of
// progress, and the ends of log files. It keeps words of servers, clients and models
// from controlling the terminal.
package console

import (
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
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
	rest     []byte // the first bytes of a character whose other bytes the next write has
}

// NewOutput returns a writer to w that keeps the first error of a write.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

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
	if !o.looked {
		o.looked, o.terminal = true, IsTerminal(o.w)
	}
	text := p
	if o.terminal {
		text = o.legible(p)
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

// legible returns what a terminal may show of p. It keeps back the beginning of a character at
// the end of p until the next call. The caller must hold o.mu.
func (o *Output) legible(p []byte) []byte {
	p = append(o.rest, p...)
	// Find a character that begins in p and does not end there.
	end := len(p)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(p[i]) && !utf8.FullRune(p[i:]) {
			end = i
		}
	}
	o.rest = append([]byte(nil), p[end:]...)
	return []byte(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return Printable(r)
	}, string(p[:end])))
}

// WriteControl writes a control sequence to w, which is a terminal. An [Output] does not alter
// it.
func WriteControl(w io.Writer, command string) {
	o, ok := w.(*Output)
	if !ok {
		_, _ = io.WriteString(w, command)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.writeUnlessFailed([]byte(command)) // o keeps the error
}

// Printable returns r if it is printable, a space for any other kind of space, and a question
// mark for the rest. That keeps words of others from commanding the terminal, reordering its
// text or hiding in it: it replaces all controls, marks of direction and characters without
// width.
func Printable(r rune) rune {
	switch {
	case unicode.IsPrint(r):
		return r
	case unicode.Is(unicode.Zs, r):
		return ' '
	}
	return '?'
}

// Most characters of a cell of a table. All cells of a column are padded to its
// longest one, but for the last column.
const (
	maxCell     = 128
	maxLastCell = 1024
)

// cell returns a text as a cell of a table shows it: on one line, with at most that many
// characters, and "-" for an empty text.
func cell(text string, most int) string {
	if text == "" {
		return "-"
	}
	if len(text) > most { // a text has no more characters than bytes
		if r := []rune(text); len(r) > most {
			text = string(r[:most-1]) + "…"
		}
	}
	return strings.Map(Printable, text)
}
