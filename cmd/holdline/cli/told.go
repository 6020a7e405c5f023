package cli

import (
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// told is an output of a command. All that commands print goes through one, and
// most of it has words of others in it: of servers, clients and models. On a
// terminal no character is written that would move the cursor, set the title or
// reorder and hide what stands around it; see [printable]. Elsewhere everything
// is written as it is.
//
// It also remembers the first error: tables are printed without looking at each
// line's.
type told struct {
	w io.Writer

	mu       sync.Mutex // guards what follows, and keeps writes apart
	err      error
	looked   bool // whether w is a terminal is known
	terminal bool
	rest     []byte // the beginning of a character, whose end the next write has
}

func (t *told) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.looked {
		t.looked, t.terminal = true, isTerminal(t.w)
	}
	text := p
	if t.terminal {
		text = t.legible(p)
	}
	if err := t.write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// write writes p unless an earlier write has failed. The caller holds the lock.
func (t *told) write(p []byte) error {
	if t.err == nil && len(p) > 0 {
		_, t.err = t.w.Write(p)
	}
	return t.err
}

// legible returns what a terminal may show of p. The caller holds the lock.
func (t *told) legible(p []byte) []byte {
	p = append(t.rest, p...)
	end := len(p)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(p[i]) && !utf8.FullRune(p[i:]) {
			end = i
		}
	}
	t.rest = append([]byte(nil), p[end:]...)
	return []byte(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return printable(r)
	}, string(p[:end])))
}

// steer writes a command to the terminal that w is.
func steer(w io.Writer, command string) {
	t, ok := w.(*told)
	if !ok {
		_, _ = io.WriteString(w, command)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.write([]byte(command)) // the command's end tells the error
}

// printable returns r, or what stands for it where others' words must not command
// the terminal, reorder its text or be hidden in it: controls, C1 among them,
// marks of direction and characters without width.
func printable(r rune) rune {
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

// cell returns a text as a cell of a table shows it: on one line, and no longer
// than most.
func cell(text string, most int) string {
	if text == "" {
		return "-"
	}
	if len(text) > most { // else it has no more characters either
		if r := []rune(text); len(r) > most {
			text = string(r[:most-1]) + "…"
		}
	}
	return strings.Map(printable, text)
}
