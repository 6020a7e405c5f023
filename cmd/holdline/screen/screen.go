// Package screen keeps words of servers, clients and models from controlling the user's
// terminal. The proxy links this package, so it imports little; commands print by package
// console, which uses it.
package screen

import (
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Filter makes text harmless for a terminal, piece by piece. The zero value is ready.
type Filter struct {
	rest []byte // the first bytes of a character whose other bytes the next piece has
}

// Legible returns what a terminal may show of p. It keeps back the beginning of a character at
// the end of p until the next call.
func (f *Filter) Legible(p []byte) []byte {
	p = append(f.rest, p...)
	// Find a character that begins in p and does not end there.
	end := len(p)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(p[i]) && !utf8.FullRune(p[i:]) {
			end = i
		}
	}
	f.rest = append([]byte(nil), p[end:]...)
	return []byte(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return Printable(r)
	}, string(p[:end])))
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

// IsTerminal reports whether v is a file that is a terminal: a character device with a window
// size.
func IsTerminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	const charDevice = os.ModeDevice | os.ModeCharDevice
	if err != nil || info.Mode()&charDevice != charDevice {
		return false
	}
	_, err = unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ) // only a terminal has that (ioctl_tty(2))
	return err == nil
}

// Writer writes text to w, made harmless if w is a terminal. It is safe for concurrent use.
type Writer struct {
	w io.Writer

	mu       sync.Mutex // guards the fields below, and is held while w is written to
	looked   bool       // terminal is known
	terminal bool
	filter   Filter
}

// NewWriter returns a writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes p. It reports all of p as written, or none of it.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.looked {
		w.looked, w.terminal = true, IsTerminal(w.w)
	}
	text := p
	if w.terminal {
		text = w.filter.Legible(p)
	}
	if _, err := w.w.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}
