package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// spilling reads lines of text, of which long ones go into files in dir.
func spilling(t *testing.T, r io.Reader, limit int, newFile func() *os.File) (lines []string, spilled int) {
	t.Helper()
	l := NewLines(r, limit)
	l.Spill = newFile
	for {
		line, err := l.Next()
		switch {
		case errors.Is(err, ErrSpilled):
			f, size := l.TakeSpilled()
			b, err := os.ReadFile(f.Name())
			if err != nil || len(b) != size {
				t.Errorf("a file of %d bytes has %d, %v", size, len(b), err)
			}
			f.Close()
			os.Remove(f.Name())
			line, spilled = b, spilled+1
		case errors.Is(err, ErrTooLong):
			line = []byte("too long")
		case errors.Is(err, io.EOF):
			return lines, spilled
		case err != nil:
			t.Fatal(err)
		}
		lines = append(lines, string(bytes.TrimRight(line, "\r")))
	}
}

// TestSpill checks that long lines go into files, and that the lines beside them are read as
// ever, wherever the input is cut, and if a file cannot be written.
func TestSpill(t *testing.T) {
	long := func(n int, c string) string { return strings.Repeat(c, n) }
	want := []string{
		"short", long(minSpilled+1, "a"), "between", long(3*minSpilled, "b"), long(minSpilled-1, "c"), "too long",
		"after", long(2*minSpilled, "d"),
	}
	text := strings.Join(want, "\n")
	text = strings.Replace(text, "too long", long(5*minSpilled, "x"), 1)
	text = strings.Replace(text, "between\n", "between\r\n\n", 1)
	dir := t.TempDir()
	files := func() *os.File {
		f, err := os.CreateTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	broken := func() *os.File { // it can be read only
		f, err := os.Open(files().Name())
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for what, in := range map[string]struct {
		r    io.Reader
		file func() *os.File
		want int
	}{
		"at once":              {strings.NewReader(text), files, 3},
		"in halves":            {iotest.HalfReader(strings.NewReader(text)), files, 3},
		"with its end":         {iotest.DataErrReader(strings.NewReader(text)), files, 3},
		"without files":        {strings.NewReader(text), func() *os.File { return nil }, 0},
		"files without a room": {strings.NewReader(text), broken, 0},
	} {
		got, spilled := spilling(t, in.r, 4*minSpilled, in.file)
		if strings.Join(got, "\n") != strings.Join(want, "\n") || spilled != in.want {
			t.Errorf("%s: %d lines, %d of them in files, want %d and %d", what, len(got), spilled, len(want), in.want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
}

// TestSpillLost checks that reading ends if a line in a file is lost: its end is no line.
func TestSpillLost(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	l := NewLines(io.MultiReader(strings.NewReader(strings.Repeat("a", 2*minSpilled)),
		strings.NewReader("end\nnext\n")), MaxFrame)
	l.Spill = func() *os.File { return f }
	l.BeforeRead = func() {
		if l.spilled.size == 2*minSpilled {
			f.Close()
		}
	}
	for range 2 {
		if line, err := l.Next(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("read %q, %v", line, err)
		}
	}
}

// TestLineOverTheLimitInAFile_ItsIDIsFound checks that the ends of a line are known although the greater
// part of it was in a file, which is removed.
func TestLineOverTheLimitInAFile_ItsIDIsFound(t *testing.T) {
	dir := t.TempDir()
	filler := strings.Repeat("x", 5*minSpilled)
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":7,"method":"m","params":{"x":"` + filler + `"}}`,
		`{"method":"m","params":{"x":"` + filler + `"},"jsonrpc":"2.0","id":7}`,
	} {
		l := NewLines(&slowReader{[]byte(line + "\n"), minSpilled / 3}, 2*minSpilled)
		l.Spill = func() *os.File {
			f, err := os.CreateTemp(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		_, err := l.Next()
		head, tail := l.Ends()
		if id, kind := Glimpse(head, tail); !errors.Is(err, ErrTooLong) || string(id) != "7" || kind != Request {
			t.Errorf("%.30s: id %s, kind %d, %v", line, id, kind, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}
